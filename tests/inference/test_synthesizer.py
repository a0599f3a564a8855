"""The Synthesizer: from a run, a text and a voice to audio, at once or streamed, and the errors on the way."""

import json
import shutil

import attrs
import numpy as np
import pytest
from speakers import RECIPE, SIZE, make_run, reference, vocabulary, write_model

from xtts.audio import wav
from xtts.inference import synthesizer, voices
from xtts.inference.generation import SamplingParams
from xtts.inference.loading import LoadingError, load_model
from xtts.inference.references import VoiceError
from xtts.inference.settings import SynthesisError
from xtts.text.splitting import SplittingError
from xtts.text.tokenizer import CharacterTokenizer, TextError
from xtts.weights import model_folder
from xtts.weights.safetensors_file import WeightsError

ALL = ("gpt", "codec", "speaker", "decoder")


class Setup:
    """A synthesizer, its notes, and a voice."""

    def __init__(self, folder, root):
        self.notes = []
        self.speaker = synthesizer.Synthesizer.load(folder, self.notes.append)
        self.voice = self.speaker.voice(reference(root / f"{folder.name}.wav"))

    def say(self, text, **settings):
        del self.notes[:]
        return self.speaker.say(text, self.voice, **settings)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("speak")


@pytest.fixture(scope="module")
def codec(root):
    """A run's model that uses its codec and stops by itself."""
    return Setup(make_run(root / "codec", stop=0.0), root)


@pytest.fixture(scope="module")
def decoder(root):
    """A model with a waveform decoder that never stops by itself."""
    return Setup(make_run(root / "decoder", ALL, stop=-99.0), root)


def test_three_lines_of_python_synthesize_speech(codec, root):
    """The wave has the codec's sample rate and the length of its codes, and can be written to a file."""
    wave = codec.say("Hello there. How are you?")
    assert wave.sample_rate == 22050
    assert [said.text for said in wave.said] == ["hello there.", "how are you?"]
    sound = sum(said.seconds for said in wave.said)
    assert wave.seconds == pytest.approx(sound + 0.3, abs=0.001)  # a pause between two sentences
    for said in wave.said:
        assert said.seconds == pytest.approx((len(said.codes) * 4 - 1) * 256 / 22050)
    wave.write(root / "out.wav")
    assert len(wav.load_audio(root / "out.wav", 22050)) == len(wave.samples)


def test_a_decoder_synthesizes_at_24_khz(decoder):
    """The decoder uses the latents of the codes and the speaker embedding."""
    wave = decoder.say("hello")
    assert wave.sample_rate == 24000
    assert len(wave.samples) == decoder.speaker.model.decoder.samples(len(wave.said[0].codes))


def test_a_seed_determines_the_codes(codec):
    """The same seed gives the same codes and another one different codes; with top_k=1 the seed has no effect."""
    first, again, other = (codec.say("hello there", seed=seed).said[0].codes.tolist() for seed in (3, 3, 4))
    assert first == again != other
    best = [codec.say("hello", seed=seed, top_k=1).said[0].codes.tolist() for seed in (1, 2)]
    assert best[0] == best[1]


def test_texts_of_any_length_cause_few_traces(codec):
    """Lengths of texts and codes are rounded up to a few sizes, with one trace each."""
    generator, counts = codec.speaker.generator, set()
    for length in range(1, 32):
        ids = codec.speaker.model.tokenizer.encode("y" * length, "en")
        (spoken,) = generator.generate(ids, codec.voice, SamplingParams(2.0, 0.75, seed=length))
        counts.add(len(spoken.codes))
        assert len(generator.decode_mel(spoken.codes)) == 4 * len(spoken.codes)
    assert len(counts) > 10
    traces = {name: function.compilations for name, function in generator.functions.items()}
    assert traces["conditioning_latents"] == traces["start"] == traces["generate"] == 1  # for texts of up to 32 tokens
    assert traces["decode_mel"] <= 3  # for 32, 64 and 80 codes
    codec.say("y " * 18)
    assert generator.functions["start"].traces == generator.functions["generate"].compilations == 2  # for up to 64


@pytest.mark.parametrize("name", ["codec", "decoder"])
def test_a_stream_gives_the_same_audio_and_starts_early(name, request):
    """The codes and length are the same, and the first chunk is returned before the sentence is finished."""
    setup = request.getfixturevalue(name)
    text, settings = "hello there, how are you? fine.", {"seed": 0, "speed": 1.2}
    whole = setup.say(text, **settings)
    stream = setup.speaker.stream(text, setup.voice, **settings)
    chunks = iter(stream)
    first = next(chunks)
    assert len(whole.said[0].codes) > 16
    assert not stream.wave.said  # no sentence is finished yet
    joined = np.concatenate([first, *chunks])
    assert all(chunk.dtype == np.float32 for chunk in (first, joined))
    assert [said.codes.tolist() for said in stream.wave.said] == [said.codes.tolist() for said in whole.said]
    assert len(joined) == len(whole.samples) == len(stream.wave.samples)
    if name == "decoder":
        assert np.abs(joined - whole.samples).max() < 1e-5
        assert np.abs(np.diff(joined)).max() <= np.abs(np.diff(whole.samples)).max() + 1e-5


def test_speech_that_does_not_stop_is_cut_off_with_a_note(decoder):
    """The wave marks the sentence as cut off."""
    wave = decoder.say("hello")
    assert wave.said[0].is_cut
    assert len(wave.said[0].codes) == 80
    assert decoder.notes == ["note: cut after 80 codes, because the model did not stop: hello"]
    assert wave.as_json()["sentences"][0]["cut"] is True


def test_a_model_that_stops_at_once_is_an_error(root):
    """The user gets an error and a note instead of silence."""
    setup = Setup(make_run(root / "mute", stop=99.0), root)
    with pytest.raises(SynthesisError, match="nothing was spoken"):
        setup.say("hello")
    assert setup.notes == ["note: not spoken, because the model stopped at once; try another --seed: hello"]


def test_speed_changes_the_duration_and_not_the_codes(decoder):
    """Speed 2 gives a quarter of the duration of speed 0.5."""
    slow, fast = decoder.say("hello", speed=0.5), decoder.say("hello", speed=2.0)
    assert slow.said[0].codes.tolist() == fast.said[0].codes.tolist()
    assert slow.seconds / fast.seconds == pytest.approx(4, rel=0.01)


def test_speed_does_not_change_the_pitch(root):
    """A steady voice at another speed keeps its spectral peak."""
    from recorded_codec import Recorded, make_wave

    model = Recorded(reference(root / "steady.wav", 2.0))

    def strongest(wave):
        spectrum = np.abs(np.fft.rfft(wave[2048:-2048] * np.hanning(len(wave) - 4096)))
        return np.fft.rfftfreq(len(wave) - 4096, 1 / 22050)[spectrum.argmax()]

    pitches = [strongest(make_wave(model, speed)[0]) for speed in (0.7, 1.0, 1.4)]
    assert max(pitches) - min(pitches) < 0.06 * pitches[1]


def test_the_language_is_detected_from_the_script(codec):
    """Persian letters are Persian, and others are in the corpus's own language."""
    assert codec.say("سلام").language == "fa"
    assert codec.say("hello").language == "en"
    with pytest.raises(TextError, match="has no language 'xx'; known: en, fa"):
        codec.say("hello", language="xx")


def test_unknown_characters_are_left_out_with_a_note(codec):
    """A text with few unknown characters is spoken without them; one with too many is refused."""
    assert codec.say("hello ☃ there").said[0].text == "hello there"
    assert codec.notes[0] == "note: left out, because the model does not know them: ☃"
    with pytest.raises(SynthesisError, match=r"does not know most of the text's characters: .*languages \(en, fa\)"):
        codec.say("привет a")


@pytest.mark.parametrize("text", ["", "   ", "...", "☃"])
def test_text_without_words_is_refused(codec, text):
    """A text without words raises an error instead of giving silence."""
    with pytest.raises(SynthesisError, match=r"nothing to speak|does not know"):
        codec.say(text)


def test_a_text_longer_than_the_model_allows_is_split(codec):
    """Each piece fits the model's text positions and codes; a word that does not is refused."""
    wave = codec.say("hello there my friend " * 6)
    assert len(wave.said) >= 4
    model = codec.speaker.model
    assert all(len(model.tokenizer.encode(said.text, "en")) <= model.max_text_tokens for said in wave.said)
    with pytest.raises(SplittingError, match="write it with spaces"):
        codec.say("a" * 300)


def test_a_runs_model_is_limited_to_the_lengths_it_was_trained_on(root):
    """Positions that no utterance of the corpus reached are untrained."""
    folder = make_run(root / "planned")
    (folder / "plan.json").write_text('{"shapes": [{"text_length": 20, "mel_frames": 160}]}')
    model = load_model(folder)
    assert (model.max_text_tokens, model.max_codes, model.tokens_per_code) == (20, 40, None)


@pytest.mark.parametrize(("pace", "pieces"), [(1.0, 1), (0.65, 1), (0.5, 2), (None, 2)])
def test_a_text_is_split_by_the_speech_rate_of_the_run(root, pace, pieces):
    """Splitting uses the run's tokens per code; where that is unknown, slow speech is assumed."""
    folder = make_run(root / f"pace-{pace}", stop=0.0)
    text = "hello there how are you my friend"
    shapes = [{"text_length": 60, "mel_frames": 244}]
    (folder / "plan.json").write_text(json.dumps({"shapes": shapes, **({"pace": pace} if pace else {})}))
    speaker = Setup(folder, root)
    assert speaker.speaker.model.tokens_per_code == pace
    assert len(speaker.speaker.model.tokenizer.encode(text, "en")) == 34
    assert len(speaker.say(text).said) == pieces


@pytest.mark.parametrize(
    ("setting", "value"),
    [("temperature", 0.0), ("top_k", 0), ("top_p", 1.5), ("repetition_penalty", 0.5), ("speed", 0.01), ("seed", -1)],
)
def test_settings_out_of_range_are_refused(codec, setting, value):
    """The error names the setting and its range."""
    with pytest.raises(SynthesisError, match=f"{setting} = .* is out of range; write a number from"):
        codec.say("hello", **{setting: value})


def test_a_voice_is_saved_and_used_again(codec, decoder, root):
    """It gives the same speech; another model refuses it."""
    voices.write_voice(root / "kept.safetensors", codec.voice)
    said = codec.say("hello there").said[0].codes.tolist()
    again = codec.speaker.say("hello there", root / "kept.safetensors").said[0].codes.tolist()
    assert said == again
    with pytest.raises(VoiceError, match="this voice was made by another model"):
        decoder.speaker.voice(root / "kept.safetensors")
    assert codec.voice.speaker_embedding is None
    assert decoder.voice.speaker_embedding.shape == (SIZE.speaker.width,)


def test_several_recordings_are_averaged(decoder, root):
    """A voice is the mean over recordings, of crops of the same length."""
    paths = [reference(root / f"{pitch}.wav", 0.6, pitch=pitch) for pitch in (100.0, 200.0)]
    one, other, both = decoder.speaker.voice(paths[0]), decoder.speaker.voice(paths[1]), decoder.speaker.voice(paths)
    assert np.allclose(
        both.conditioning_latents, (one.conditioning_latents + other.conditioning_latents) / 2, atol=1e-5
    )
    assert np.allclose(both.speaker_embedding, (one.speaker_embedding + other.speaker_embedding) / 2, atol=1e-5)


def test_a_run_provides_its_voices(root):
    """A voice can be requested by name, and the first is the default; without any, the error asks for one."""
    folder = make_run(root / "lending")
    notes = []
    speaker = synthesizer.Synthesizer.load(folder, notes.append)
    with pytest.raises(VoiceError, match="has no voices of its own; name a recording with --speaker"):
        speaker.voice()
    for name, pitch in (("nora", 210.0), ("adam", 110.0)):
        reference(folder / "voices" / f"{name}.wav", pitch=pitch)
    assert speaker.voice().name == "adam"
    assert notes == ["note: no voice was named; using adam, of adam, nora"]
    assert speaker.voice("nora").name == "nora"
    with pytest.raises(VoiceError, match="has no voice 'sara'; it has adam, nora"):
        speaker.voice("sara")


def test_a_runs_model_uses_the_settings_it_was_trained_with(codec):
    """It has no [STOP] after the text and no repetition penalty."""
    model = codec.speaker.model
    assert not model.gpt.tokens.use_stop_token
    assert (model.speaking.repetition_penalty, model.speaking.temperature) == (1, 0.4)


@pytest.mark.parametrize("is_published", [True, False], ids=["published", "own"])
@pytest.mark.parametrize("recipe", [None, '[model]\nweights = "somewhere"'], ids=["alone", "tuned"])
def test_a_published_model_is_recognised(tmp_path, recipe, is_published):
    """Weights of a run, exported or fine-tuned from another run's, keep the settings of a run."""
    tokenizer = CharacterTokenizer(["en"], "abc")
    write_model(tmp_path / "model", tokenizer, ("gpt", "codec"), is_published=is_published)
    tokenizer.save(tmp_path / ("model/vocab.json" if recipe is None else "tokenizer.json"))
    if recipe is not None:
        (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
    model = load_model(tmp_path / "model" if recipe is None else tmp_path)
    assert model.gpt.tokens.use_stop_token == is_published
    wanted = (5, 0.75) if is_published else (1, 0.4)
    assert (model.speaking.repetition_penalty, model.speaking.temperature) == wanted


def test_an_imported_model_synthesizes_speech(root):
    """Published weights use their decoder and vocabulary, the published penalty and [STOP] after the text."""
    pytest.importorskip("tokenizers")
    from xtts.text.tokenizer import BPETokenizer

    vocab = vocabulary(root / "vocab.json")
    write_model(root / "import", BPETokenizer.load(vocab), ("gpt", "speaker", "decoder"), vocab=vocab)
    speaker = synthesizer.Synthesizer.load(root / "import")
    assert (speaker.model.speaking.repetition_penalty, speaker.model.speaking.temperature) == (5, 0.75)
    assert speaker.model.gpt.tokens.use_stop_token
    assert speaker.model.codec is None
    wave = speaker.say("Hello there", reference(root / "import.wav", 1.0), "de")
    assert wave.sample_rate == 24000
    assert wave.seconds > 0
    (root / "import" / "vocab.json").unlink()
    with pytest.raises(LoadingError, match=r"it has no vocab\.json.*import it again with --vocab"):
        synthesizer.Synthesizer.load(root / "import")


def test_folders_without_a_usable_model_are_refused(root):
    """A missing folder, an unfinished run, a model without codec or decoder, and a wrong vocabulary are refused."""
    with pytest.raises(WeightsError, match="there is no such folder"):
        synthesizer.Synthesizer.load(root / "nowhere")
    begun = make_run(root / "begun")
    shutil.rmtree(str(begun / "model"))
    with pytest.raises(LoadingError, match="the run's GPT has not begun and cannot speak before it is finished"):
        synthesizer.Synthesizer.load(begun)
    with pytest.raises(LoadingError, match="neither a waveform decoder nor a codec"):
        synthesizer.Synthesizer.load(make_run(root / "silent", ("gpt",)))
    mismatch = make_run(root / "mismatch")
    CharacterTokenizer(["en"], map(chr, range(200, 400))).save(mismatch / "tokenizer.json")
    with pytest.raises(LoadingError, match="its vocabulary has 205 tokens, but its model"):
        synthesizer.Synthesizer.load(mismatch)


def test_xtts_v1_is_refused(root):
    """XTTS v1 has no perceiver; the error says what to use instead."""
    folder = make_run(root / "v1")
    model, tensors = model_folder.read_model_folder(folder)
    size = attrs.evolve(model.size, gpt=attrs.evolve(model.size.gpt, perceiver_layers=0))
    shutil.rmtree(str(folder / "model"))
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("gpt.conditioning_perceiver")}
    model_folder.write_model_folder(folder / "model", attrs.evolve(model, size=size), kept)
    with pytest.raises(WeightsError, match=r"the model has no perceiver.*name an XTTS-v2"):
        synthesizer.Synthesizer.load(folder)


def test_a_reference_is_cut_to_the_trained_length(root):
    """The length is `data.reference_seconds` of a run, or six seconds for published weights."""
    assert load_model(make_run(root / "cut")).reference_samples == pytest.approx(0.6 * 22050, abs=256)
    longer = make_run(root / "longer", recipe=RECIPE.replace("0.6", "1.2"))
    assert load_model(longer).reference_samples == pytest.approx(1.2 * 22050, abs=256)
