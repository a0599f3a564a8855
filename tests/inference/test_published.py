"""Published weights: voices, codes and waves are those of the public implementation, from recordings and token ids."""

import attrs
import numpy as np
import pytest
from published import ABOUT, EVERY, GOLDEN, SPEECH, error, golden, reference_files, speak_ids
from published_texts import missing_packages

from xtts.commands import main
from xtts.inference.references import VoiceError
from xtts.inference.settings import SynthesisError
from xtts.inference.sound import SOUNDS, SoundError, choose_sound
from xtts.inference.synthesizer import Synthesizer

pytest.importorskip("tokenizers")  # the published vocabulary needs it

LATENTS, SPOKEN = golden("latents.cut"), golden("speech.cut")
VOICES = sorted(key.rsplit("/", 1)[0] for key in LATENTS if key.endswith("/gpt_cond_latent"))
SENTENCES = sorted(name for name, one in SPEECH.items() if one["kind"] == "inference")
BEAMS = sorted(key for key in SPOKEN if key.startswith("beams/"))
PUBLISHED = SOUNDS["published"]
STREAMED = [20] * 100  # codes in the chunks of a stream


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """The small published model, as `xtts import` brings it in."""
    folder = tmp_path_factory.mktemp("published") / "v2"
    files = {"vocab": "vocab.json", "config": "config.json", "speakers": "speakers_xtts.pth"}
    flags = [word for flag, name in files.items() for word in (f"--{flag}", str(GOLDEN / name))]
    assert main.main(["import", str(GOLDEN / "model.pth"), str(folder), *flags]) == 0
    return Synthesizer.load(folder, note=lambda line: None)


@pytest.mark.parametrize("name", VOICES)
def test_a_voice_is_the_published_one(speaker, name, tmp_path):
    """Latents and speaker embedding, of one recording or several, at any rate and in stereo, with each setting."""
    reference, settings = name.split("/")
    chosen = dict(ABOUT["settings"][settings])
    chosen["max_ref_len"] = chosen.pop("max_ref_length")
    voice = speaker.voice(reference_files(reference, tmp_path), **chosen)
    assert error(voice.conditioning_latents, LATENTS[f"{name}/gpt_cond_latent"][0]) < 1e-5
    assert error(voice.speaker_embedding, LATENTS[f"{name}/speaker_embedding"][0, :, 0]) < 1e-5
    if settings == "shipped":  # the settings that were imported
        again = speaker.voice(reference_files(reference, tmp_path))
        assert (again.conditioning_latents == voice.conditioning_latents).all()


def test_references_of_any_length_need_one_trace(speaker, tmp_path):
    """Chunks are as long as they are, and are neither padded nor traced again."""
    for reference in ("short", "tail_kept", "middle"):
        speaker.voice(reference_files(reference, tmp_path))
    assert speaker.generator.functions["conditioning_latents"].traces == 1


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_is_spoken_as_published(speaker, name):
    """Greedy codes are equal, and so is the wave, whose last frames are those of the stop; at any speed."""
    codes, (wave,) = speak_ids(speaker, SPOKEN[f"{name}/ids"], SPEECH[name], PUBLISHED)
    assert codes == SPOKEN[f"{name}/codes"].tolist()
    assert len(wave) == SPEECH[name]["samples"]
    assert error(wave[::EVERY], SPOKEN[f"{name}/wav_every_8th"]) < 1e-5


def test_a_sentence_that_does_not_stop_is_cut_where_the_published_one_is(speaker):
    """At 602 codes, however short its text; then there is no stop to speak."""
    codes, (wave,) = speak_ids(speaker, SPOKEN["limit/ids"], SPEECH["limit"], PUBLISHED)
    assert codes == SPOKEN["limit/codes"].tolist()
    assert len(wave) == SPEECH["limit"]["samples"]
    assert error(wave[:12000:EVERY], SPOKEN["limit/wav_begin_every_8th"]) < 1e-5
    assert error(wave[-24000::EVERY], SPOKEN["limit/wav_end_every_8th"]) < 1e-5


def test_the_room_for_codes_grows_with_a_sentence(speaker, monkeypatch):
    """A short text is given little room for codes; a sentence that needs more goes on as if it had had it."""
    monkeypatch.setattr("xtts.model.generation.CODES_PER_TOKEN", 0)  # room for 8 codes
    cramped = Synthesizer.load(speaker.model.folder, note=lambda line: None)
    for counts in ((), (5, 3, 1, 2), (8, 8)):
        codes, _ = speak_ids(cramped, SPOKEN["00/ids"], SPEECH["00"], PUBLISHED, counts)
        assert codes == SPOKEN["00/codes"].tolist()


@pytest.mark.parametrize("name", SENTENCES)
def test_text_and_recordings_become_the_published_wave(speaker, name, tmp_path):
    """Nothing is handed in: a text in one of six languages is read, and a voice encoded, as published."""
    about = SPEECH[name]
    missing = missing_packages(about["language"])
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    recordings = [path for one in ABOUT["voices"][about["voice"]] for path in reference_files(one, tmp_path)]
    settings = {"top_k": 1, "repetition_penalty": about["repetition_penalty"], "speed": about["speed"]}
    wave = speaker.say(about["text"], recordings, about["language"], **settings)
    (said,) = wave.said
    assert [*said.codes.tolist(), speaker.model.gpt.tokens.audio_stop] == SPOKEN[f"{name}/codes"].tolist()
    assert error(wave.samples[::EVERY], SPOKEN[f"{name}/wav_every_8th"]) < 1e-5


@pytest.mark.parametrize("name", ["split", "split_other"])
def test_pieces_of_a_paragraph_follow_each_other_as_published(speaker, name):
    """Nothing stands between them."""
    waves = []
    for number in range(len(SPEECH[name]["pieces"])):
        codes, (wave,) = speak_ids(speaker, SPOKEN[f"{name}/{number}/ids"], SPEECH[name], PUBLISHED)
        assert codes == SPOKEN[f"{name}/{number}/codes"].tolist()
        waves.append(wave)
    assert error(np.concatenate(waves)[::EVERY], SPOKEN[f"{name}/wav_every_8th"]) < 1e-5


@pytest.mark.parametrize("name", ["stream0", "stream1"])
def test_a_stream_with_an_overlap_is_the_published_one(speaker, name):
    """Its chunks have the published lengths, and are crossfaded where they meet."""
    sound = choose_sound("published", overlap=1024)
    _, chunks = speak_ids(speaker, SPOKEN[f"{name}/ids"], SPEECH[name], sound, STREAMED)
    assert [len(chunk) for chunk in chunks] == SPEECH[name]["chunks"]
    assert error(np.concatenate(chunks)[::EVERY], SPOKEN[f"{name}/wav_every_8th"]) < 1e-5


@pytest.mark.parametrize("name", ["stream0", "stream1", "04", "05"])
@pytest.mark.parametrize("speed", [1.0, 0.37, 3.0])
def test_a_stream_is_the_whole_wave(speaker, name, speed):
    """Without an overlap the chunks join to the wave of the sentence, exactly as long and equal."""
    about = {**SPEECH[name], "speed": speed}
    _, (whole,) = speak_ids(speaker, SPOKEN[f"{name}/ids"], about, PUBLISHED)
    _, chunks = speak_ids(speaker, SPOKEN[f"{name}/ids"], about, PUBLISHED, STREAMED)
    assert error(np.concatenate(chunks), whole) < 1e-4
    assert len([chunk for chunk in chunks if len(chunk)]) > 1 or len(whole) < 15_000


@pytest.mark.parametrize("overlap", [700, 1024, 6000])
def test_a_stream_of_fast_speech_repeats_nothing(speaker, overlap):
    """Chunks that are shorter than their overlap wait for the next; the sum has the length of the whole."""
    about, sound = {**SPEECH["00"], "speed": 6.0}, choose_sound("published", overlap=overlap)
    _, (whole,) = speak_ids(speaker, SPOKEN["00/ids"], about, PUBLISHED)
    _, chunks = speak_ids(speaker, SPOKEN["00/ids"], about, sound, [3] * 100)
    joined = np.concatenate(chunks)
    assert len(joined) == len(whole)
    assert error(joined, whole) < 0.5  # nothing is said twice, or left out


@pytest.mark.parametrize("key", BEAMS)
def test_beam_search_finds_the_published_codes(speaker, key):
    """With any number of beams, length penalty and repetition penalty."""
    _, name, beams, length_penalty, penalty, _ = key.split("/")
    settings = {"length_penalty": float(length_penalty), "repetition_penalty": float(penalty)}
    codes, _ = speak_ids(speaker, SPOKEN[f"{name}/ids"], SPEECH[name], PUBLISHED, num_beams=int(beams), **settings)
    assert codes == SPOKEN[key].tolist()


def test_a_wave_of_beam_search_has_the_length_of_its_codes(speaker):
    """Latents of the chosen codes, with that of the stop, are made into sound."""
    codes, (wave,) = speak_ids(speaker, SPOKEN["05/ids"], {**SPEECH["05"], "speed": 1.0}, PUBLISHED, num_beams=3)
    assert codes[-1] == 1025
    assert len(wave) == speaker.model.decoder.samples(len(codes))


def test_studio_voices_are_found_by_name(speaker, tmp_path):
    """They came with the import, equal the voices of the recordings they were made of, and are listed."""
    assert sorted(speaker.voices) == ["Alva Thorne", "Brint Maro"]
    for name, references in ABOUT["voices"].items():
        voice = speaker.voice(name)
        files = [path for one in references for path in reference_files(one, tmp_path)]
        assert error(voice.conditioning_latents, speaker.voice(files).conditioning_latents) < 1e-5
    with pytest.raises(VoiceError, match="has no voice 'Nobody'; it has Alva Thorne, Brint Maro"):
        speaker.voice("Nobody")


def test_sounds_are_chosen_by_name_and_by_setting(speaker):
    """`xtts` leaves out the stop and fades; a pause, a fade and an unknown name do what they say."""
    text = "The lamp is lit. The cat sleeps."
    settings = {"language": "en", "top_k": 1, "repetition_penalty": 5.0}
    plain = speaker.say(text, "Alva Thorne", **settings)
    ours = speaker.say(text, "Alva Thorne", sound="xtts", **settings)
    paused = speaker.say(text, "Alva Thorne", pause=0.5, **settings)
    assert [said.codes.tolist() for said in ours.said] == [said.codes.tolist() for said in plain.said]
    assert ours.samples[0] == 0 != plain.samples[0]
    assert ours.said[0].seconds < plain.said[0].seconds
    assert plain.seconds == pytest.approx(sum(said.seconds for said in plain.said))
    assert paused.seconds - plain.seconds == pytest.approx(0.5 * (len(plain.said) - 1))
    with pytest.raises(SoundError, match="there is no such sound; choose one of published, published-api, xtts"):
        speaker.say(text, "Alva Thorne", sound="loud")
    with pytest.raises(SoundError, match=r"overlap = -1 is out of range; write a number from 0 to 24000"):
        speaker.say(text, "Alva Thorne", overlap=-1)
    with pytest.raises(SynthesisError, match=r"volume: there is no such setting; the settings are temperature, "):
        speaker.say(text, "Alva Thorne", volume=3)


def test_the_toolkits_highest_level_call_is_a_sound(speaker):
    """Sentence by sentence, each followed by 10,000 zeros, the last one too; files are scaled to full scale."""
    about = SPEECH["api"]
    chunks = []
    for number, sentence in enumerate(about["sentences"]):
        settings = {"top_k": 1, "repetition_penalty": 5.0, "sound": "published-api"}
        wave = speaker.say(sentence, GOLDEN / "wavs" / "ten.flac", "en", **settings)
        (said,) = wave.said
        assert [*said.codes.tolist(), 1025] == SPOKEN[f"api/{number}/codes"].tolist()
        chunks.append(wave.samples)
    samples = np.concatenate(chunks)
    assert len(samples) == about["samples"]
    assert error(samples[::EVERY], SPOKEN["api/wav_every_8th"]) < 1e-5


def test_a_file_of_the_highest_level_call_is_scaled(speaker, tmp_path):
    """As the toolkit writes it: to full scale, but as if the peak were at least a hundredth."""
    from xtts.audio import wav

    wave = speaker.say("Take it off!", "Alva Thorne", "en", top_k=1, sound="published-api")
    attrs.evolve(wave, samples=wave.samples * 100).write(tmp_path / "loud.wav")
    wave.write(tmp_path / "quiet.wav")
    loud, quiet = (wav.read_audio(tmp_path / f"{name}.wav")[0] for name in ("loud", "quiet"))
    assert np.abs(loud).max() == pytest.approx(32767 / 32768)
    assert np.abs(quiet).max() == pytest.approx(np.abs(wave.samples).max() / 0.01, abs=1e-4)


def test_settings_of_references_are_checked(speaker):
    """The error names the setting and its range; settings of published weights are not those of a run's own."""
    for name, value in (("gpt_cond_len", 10_000), ("gpt_cond_chunk_len", 0), ("librosa_trim_db", -3)):
        with pytest.raises(VoiceError, match=f"{name} = {value}: expected "):
            speaker.voice(GOLDEN / "wavs" / "short.flac", **{name: value})
    with pytest.raises(VoiceError, match="loudness: there is no such setting of a voice; the settings are gpt_cond"):
        speaker.voice(GOLDEN / "wavs" / "short.flac", loudness=1)
