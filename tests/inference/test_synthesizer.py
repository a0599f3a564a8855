"""Speaking: a folder, a text and a voice become sound, whole or as it is made, and mistakes become sentences."""

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
from xtts.inference.synthesizer import SynthesisError
from xtts.inference.voices import VoiceError
from xtts.text.splitting import SplittingError
from xtts.text.tokenizer import CharacterTokenizer, TextError
from xtts.weights import model_folder
from xtts.weights.safetensors_file import WeightsError

ALL = ("gpt", "codec", "speaker", "decoder")


class Heard:
    """A speaker, what it noted, and a voice."""

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
    """A run's model, which speaks by its codec. It stops after a while."""
    return Heard(make_run(root / "codec", stop=0.0), root)


@pytest.fixture(scope="module")
def decoder(root):
    """A model with a waveform decoder, which never stops by itself."""
    return Heard(make_run(root / "decoder", ALL, stop=-99.0), root)


def test_three_lines_speak(codec, root):
    """The wave has the codec's rate and as many samples as its codes, and can be written and read."""
    wave = codec.say("Hello there. How are you?")
    assert wave.sample_rate == 22050
    assert [said.text for said in wave.said] == ["hello there.", "how are you?"]
    sound = sum(said.seconds for said in wave.said)
    assert wave.seconds == pytest.approx(sound + 0.3, abs=0.001)  # a pause between two sentences
    for said in wave.said:
        assert said.seconds == pytest.approx((len(said.codes) * 4 - 1) * 256 / 22050)
    wave.write(root / "out.wav")
    assert len(wav.load_audio(root / "out.wav", 22050)) == len(wave.samples)


def test_a_decoder_speaks_at_24_khz(decoder):
    """By the latents of the codes and the voice's vector."""
    wave = decoder.say("hello")
    assert wave.sample_rate == 24000
    assert len(wave.samples) == decoder.speaker.model.decoder.samples(len(wave.said[0].codes))


def test_one_seed_is_one_reading(codec):
    """The same codes again; other ones for another seed; the best ones, whatever the seed, of one code to draw from."""
    first, again, other = (codec.say("hello there", seed=seed).said[0].codes.tolist() for seed in (3, 3, 4))
    assert first == again != other
    best = [codec.say("hello", seed=seed, top_k=1).said[0].codes.tolist() for seed in (1, 2)]
    assert best[0] == best[1]


def test_no_length_of_a_sentence_traces_again(codec):
    """Texts and codes are rounded up to a few sizes, and each size is one trace."""
    generator, counts = codec.speaker.generator, set()
    for length in range(1, 32):
        ids = codec.speaker.model.tokenizer.encode("y" * length, "en")
        (spoken,) = generator.generate(ids, codec.voice, SamplingParams(2.0, 0.75, seed=length))
        counts.add(len(spoken.codes))
        assert len(generator.decode_mel(spoken.codes)) == 4 * len(spoken.codes)
    assert len(counts) > 10
    traces = {name: function.compilations for name, function in generator.functions.items()}
    assert traces["conditioning_latents"] == traces["start"] == traces["generate"] == 1  # of texts up to 32 tokens
    assert traces["decode_mel"] <= 3  # of 32, 64 and 80 codes
    codec.say("y " * 18)
    assert generator.functions["start"].traces == generator.functions["generate"].compilations == 2  # up to 64


@pytest.mark.parametrize("name", ["codec", "decoder"])
def test_a_stream_says_the_same_and_begins_before_the_end(name, request):
    """The same codes and as many samples; the first chunk is heard before the sentence is finished."""
    heard = request.getfixturevalue(name)
    text, settings = "hello there, how are you? fine.", {"seed": 0, "speed": 1.2}
    whole = heard.say(text, **settings)
    stream = heard.speaker.stream(text, heard.voice, **settings)
    chunks = iter(stream)
    first = next(chunks)
    assert len(whole.said[0].codes) > 16
    assert not stream.wave.said  # no sentence is finished
    joined = np.concatenate([first, *chunks])
    assert all(chunk.dtype == np.float32 for chunk in (first, joined))
    assert [said.codes.tolist() for said in stream.wave.said] == [said.codes.tolist() for said in whole.said]
    assert len(joined) == len(whole.samples) == len(stream.wave.samples)
    if name == "decoder":
        assert np.abs(joined - whole.samples).max() < 1e-5
        assert np.abs(np.diff(joined)).max() <= np.abs(np.diff(whole.samples)).max() + 1e-5


def test_decoding_that_does_not_stop_is_cut_and_told(decoder):
    """In the wave and in a note."""
    wave = decoder.say("hello")
    assert wave.said[0].is_cut
    assert len(wave.said[0].codes) == 80
    assert decoder.notes == ["note: cut after 80 codes, because the model did not stop: hello"]
    assert wave.as_json()["sentences"][0]["cut"] is True


def test_a_model_that_says_nothing_is_told(root):
    """Silence is not passed off as speech."""
    heard = Heard(make_run(root / "mute", stop=99.0), root)
    with pytest.raises(SynthesisError, match="nothing was spoken"):
        heard.say("hello")
    assert heard.notes == ["note: not spoken, because the model stopped at once; try another --seed: hello"]


def test_speed_changes_the_time_and_not_the_codes(decoder):
    """Twice as fast is half as long."""
    slow, fast = decoder.say("hello", speed=0.5), decoder.say("hello", speed=2.0)
    assert slow.said[0].codes.tolist() == fast.said[0].codes.tolist()
    assert slow.seconds / fast.seconds == pytest.approx(4, rel=0.01)


def test_speed_does_not_change_the_pitch(root):
    """A steady voice at another speed has its energy at the same frequencies."""
    from recorded_codec import Recorded, heard

    model = Recorded(reference(root / "steady.wav", 2.0))

    def strongest(wave):
        spectrum = np.abs(np.fft.rfft(wave[2048:-2048] * np.hanning(len(wave) - 4096)))
        return np.fft.rfftfreq(len(wave) - 4096, 1 / 22050)[spectrum.argmax()]

    pitches = [strongest(heard(model, speed)[0]) for speed in (0.7, 1.0, 1.4)]
    assert max(pitches) - min(pitches) < 0.06 * pitches[1]


def test_language_is_told_by_the_letters(codec):
    """Persian letters are Persian, others the corpus's own language."""
    assert codec.say("سلام").language == "fa"
    assert codec.say("hello").language == "en"
    with pytest.raises(TextError, match="has no language 'xx'; known: en, fa"):
        codec.say("hello", language="xx")


def test_characters_that_are_unknown_are_told_and_left_out(codec):
    """Enough is left: the rest is said. Too little: a sentence."""
    assert codec.say("hello ☃ there").said[0].text == "hello there"
    assert codec.notes[0] == "note: left out, because the model does not know them: ☃"
    with pytest.raises(SynthesisError, match=r"does not know most of the text's characters: .*languages \(en, fa\)"):
        codec.say("привет a")


@pytest.mark.parametrize("text", ["", "   ", "...", "☃"])
def test_text_without_words_is_a_sentence(codec, text):
    """Nothing is not said in silence."""
    with pytest.raises(SynthesisError, match=r"nothing to speak|does not know"):
        codec.say(text)


def test_a_text_past_the_models_places_is_cut_to_fit(codec):
    """Each piece fits the model's text positions and codes; a word that cannot is refused."""
    wave = codec.say("hello there my friend " * 6)
    assert len(wave.said) >= 4
    model = codec.speaker.model
    assert all(len(model.tokenizer.encode(said.text, "en")) <= model.max_text_tokens for said in wave.said)
    with pytest.raises(SplittingError, match="write it with spaces"):
        codec.say("a" * 300)


def test_a_run_says_no_more_at_once_than_it_was_trained_on(root):
    """Places that no utterance of the corpus reached have learnt nothing."""
    folder = make_run(root / "planned")
    (folder / "plan.json").write_text('{"shapes": [{"text_length": 20, "mel_frames": 160}]}')
    model = load_model(folder)
    assert (model.max_text_tokens, model.max_codes, model.tokens_per_code) == (20, 40, None)


@pytest.mark.parametrize(("pace", "pieces"), [(1.0, 1), (0.65, 1), (0.5, 2), (None, 2)])
def test_a_text_is_split_by_how_fast_the_runs_voices_read(root, pace, pieces):
    """What fits the codes at their pace is said in one go; where that is not known, slow speech is reckoned with."""
    folder = make_run(root / f"pace-{pace}", stop=0.0)
    text = "hello there how are you my friend"
    shapes = [{"text_length": 60, "mel_frames": 244}]
    (folder / "plan.json").write_text(json.dumps({"shapes": shapes, **({"pace": pace} if pace else {})}))
    speaker = Heard(folder, root)
    assert speaker.speaker.model.tokens_per_code == pace
    assert len(speaker.speaker.model.tokenizer.encode(text, "en")) == 34
    assert len(speaker.say(text).said) == pieces


@pytest.mark.parametrize(
    ("setting", "value"),
    [("temperature", 0.0), ("top_k", 0), ("top_p", 1.5), ("repetition_penalty", 0.5), ("speed", 9.0), ("seed", -1)],
)
def test_settings_have_a_range(codec, setting, value):
    """What is outside is told, with the range."""
    with pytest.raises(SynthesisError, match=f"{setting} = .* is out of range; write a number from"):
        codec.say("hello", **{setting: value})


def test_a_voice_is_kept_and_used_again(codec, decoder, root):
    """It says the same; to another model it is refused."""
    voices.write_voice(root / "kept.safetensors", codec.voice)
    said = codec.say("hello there").said[0].codes.tolist()
    again = codec.speaker.say("hello there", root / "kept.safetensors").said[0].codes.tolist()
    assert said == again
    with pytest.raises(VoiceError, match="this voice was made by another model"):
        decoder.speaker.voice(root / "kept.safetensors")
    assert codec.voice.speaker_embedding is None
    assert decoder.voice.speaker_embedding.shape == (SIZE.speaker.width,)


def test_several_recordings_are_one_voice(decoder, root):
    """The mean of what is heard in each; of cuts of the same length."""
    paths = [reference(root / f"{pitch}.wav", 0.6, pitch=pitch) for pitch in (100.0, 200.0)]
    one, other, both = decoder.speaker.voice(paths[0]), decoder.speaker.voice(paths[1]), decoder.speaker.voice(paths)
    assert np.allclose(
        both.conditioning_latents, (one.conditioning_latents + other.conditioning_latents) / 2, atol=1e-5
    )
    assert np.allclose(both.speaker_embedding, (one.speaker_embedding + other.speaker_embedding) / 2, atol=1e-5)


def test_a_run_lends_the_voices_it_keeps(root):
    """By name, or the first where none is named; without any, a sentence asks for one."""
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


def test_a_run_speaks_as_it_was_trained(codec):
    """Without [STOP] after the text, which it was not trained with, and without a repetition penalty."""
    model = codec.speaker.model
    assert not model.gpt.tokens.use_stop_token
    assert (model.repetition_penalty, model.temperature) == (1, 0.4)


@pytest.mark.parametrize("is_published", [True, False], ids=["published", "own"])
@pytest.mark.parametrize("recipe", [None, '[model]\nweights = "somewhere"'], ids=["alone", "tuned"])
def test_a_model_says_whether_it_is_published(tmp_path, recipe, is_published):
    """A run's model that stands alone, or was trained on from another run's, speaks as it was trained all the same."""
    tokenizer = CharacterTokenizer(["en"], "abc")
    write_model(tmp_path / "model", tokenizer, ("gpt", "codec"), is_published=is_published)
    tokenizer.save(tmp_path / ("model/vocab.json" if recipe is None else "tokenizer.json"))
    if recipe is not None:
        (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
    model = load_model(tmp_path / "model" if recipe is None else tmp_path)
    assert model.gpt.tokens.use_stop_token == is_published
    assert (model.repetition_penalty, model.temperature) == ((10, 0.75) if is_published else (1, 0.4))


def test_an_import_speaks(root):
    """Published weights speak by their decoder and vocabulary, with the published penalty and the text's [STOP]."""
    pytest.importorskip("tokenizers")
    from xtts.text.tokenizer import BPETokenizer

    vocab = vocabulary(root / "vocab.json")
    write_model(root / "import", BPETokenizer.load(vocab), ("gpt", "speaker", "decoder"), vocab=vocab)
    speaker = synthesizer.Synthesizer.load(root / "import")
    assert (speaker.model.repetition_penalty, speaker.model.temperature) == (10, 0.75)
    assert speaker.model.gpt.tokens.use_stop_token
    assert speaker.model.codec is None
    wave = speaker.say("Hello there", reference(root / "import.wav", 1.0), "de")
    assert wave.sample_rate == 24000
    assert wave.seconds > 0
    (root / "import" / "vocab.json").unlink()
    with pytest.raises(LoadingError, match=r"it has no vocab\.json.*import it again with --vocab"):
        synthesizer.Synthesizer.load(root / "import")


def test_folders_without_a_model_that_speaks_are_sentences(root):
    """No folder, a run that has not finished, a v1 without a perceiver, neither codec nor decoder."""
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


def test_a_v1_is_refused(root):
    """It has no perceiver, and says what to name instead."""
    folder = make_run(root / "v1")
    model, tensors = model_folder.read_model_folder(folder)
    size = attrs.evolve(model.size, gpt=attrs.evolve(model.size.gpt, perceiver_layers=0))
    shutil.rmtree(str(folder / "model"))
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("gpt.conditioning_perceiver")}
    model_folder.write_model_folder(folder / "model", attrs.evolve(model, size=size), kept)
    with pytest.raises(WeightsError, match=r"the model has no perceiver.*name an XTTS-v2"):
        synthesizer.Synthesizer.load(folder)


def test_a_reference_is_cut_as_the_run_was_trained(root):
    """`data.reference_seconds` of a run; six seconds of published weights."""
    assert load_model(make_run(root / "cut")).reference_samples == pytest.approx(0.6 * 22050, abs=256)
    longer = make_run(root / "longer", recipe=RECIPE.replace("0.6", "1.2"))
    assert load_model(longer).reference_samples == pytest.approx(1.2 * 22050, abs=256)
