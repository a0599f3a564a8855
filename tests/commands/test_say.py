"""xtts say: command lines, the files they write, standard output and standard error."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from speakers import make_run, reference

from xtts.commands import main
from xtts.inference import synthesizer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder with two speaker voices."""
    folder = make_run(tmp_path_factory.mktemp("say") / "run", stop=0.0)
    for name, pitch in (("nora", 210.0), ("adam", 110.0)):
        reference(folder / "voices" / f"{name}.wav", pitch=pitch)
    return folder


@pytest.fixture(scope="module")
def speaker(run):
    """The run's model, loaded once for all tests but one."""
    return synthesizer.Synthesizer.load(run)


@pytest.fixture
def say(run, speaker, tmp_path, monkeypatch, capsys):
    """`say("text", "-o", "x.wav")` runs in a temporary folder and gives status, output and errors."""

    def load(_folder, note):
        speaker._note = note
        return speaker

    monkeypatch.setattr("xtts.inference.synthesizer.Synthesizer.load", load)
    monkeypatch.chdir(tmp_path)

    def run_say(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            status = main.main(["say", str(run), *map(str, arguments)])
        except SystemExit as error:
            status = error.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return run_say


def test_a_text_is_synthesized_to_a_file(say, run, tmp_path):
    """The file is written, and a line describes it."""
    status, out, err = say("Good morning.", "--speaker", run / "voices" / "nora.wav", "-o", "x.wav", "--seed", "2")
    assert (status, err) == (0, "")
    assert out.startswith("x.wav: ")
    assert "1 sentence in en, voice nora" in out
    assert soundfile.info(str(tmp_path / "x.wav")).frames > 0


def test_json_describes_the_sentences(say, tmp_path):
    """Text from standard input gives JSON with each sentence's codes, seconds and whether it was cut off."""
    status, out, _ = say("-", "-o", "x.wav", "--voice", "nora", "--json", stdin="سلام. حال شما؟\n")
    told = json.loads(out)
    assert status == 0
    assert told["language"] == "fa"
    assert told["voice"] == "nora"
    assert [one["text"] for one in told["sentences"]] == ["سلام.", "حال شما؟"]
    assert all(one["codes"] and one["cut"] is False for one in told["sentences"])
    assert told["seconds"] == pytest.approx(soundfile.info(str(tmp_path / "x.wav")).duration, abs=0.001)
    assert told["real_time_factor"] > 0


def test_a_file_of_lines_is_synthesized_to_a_folder(say, tmp_path):
    """Each line gives a WAV, blank lines are skipped, and an unusable line is reported before any synthesis."""
    (tmp_path / "lines.txt").write_text("good morning\n\ngood night\n", encoding="utf-8")
    status, out, _ = say("--lines", "lines.txt", "-o", "out", "--voice", "adam", "--json")
    assert status == 0
    assert [Path(told["file"]).name for told in json.loads(out)] == ["0001.wav", "0002.wav"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0001.wav", "0002.wav"]
    (tmp_path / "bad.txt").write_text("good morning\nпривет\n", encoding="utf-8")
    status, _, err = say("--lines", "bad.txt", "-o", "bad", "--voice", "adam")
    assert status == 1
    assert "bad.txt:2: the model does not know most of the text's characters" in err
    assert not list((tmp_path / "bad").iterdir())


def test_a_saved_voice_can_be_used_later(say, run, tmp_path):
    """--save-voice without a text writes a file that --voice accepts."""
    references = ["--speaker", run / "voices" / "nora.wav", "--speaker", run / "voices" / "adam.wav"]
    status, _, err = say(*references, "--save-voice", "both.safetensors")
    assert status == 0
    assert "speak in it with --voice both.safetensors" in err
    status, out, _ = say("hello", "--voice", "both.safetensors", "-o", "x.wav")
    assert status == 0
    assert "voice nora" in out


def test_streaming_writes_the_same_audio_as_it_is_generated(say, tmp_path):
    """The codes are the same as without --stream, and the time to first audio is reported."""
    told = []
    for more in ([], ["--stream"]):
        status, out, _ = say("hello there, how are you?", "-o", "x.wav", "--voice", "adam", "--json", *more)
        assert status == 0
        told.append(json.loads(out))
    assert told[0]["sentences"] == told[1]["sentences"]
    assert told[1]["first_sound_seconds"] > 0
    assert soundfile.info(str(tmp_path / "x.wav")).duration == pytest.approx(told[1]["seconds"], abs=0.001)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "-o", "x.wav"], "the text is empty"),
        (["-", "-o", "x.wav"], "the text is empty"),
        (["-o", "x.wav"], "there is no text"),
        (["hello"], "there is no file to write; name one with -o out.wav"),
        (["hello", "-o", "nowhere/x.wav"], "there is no folder nowhere; make it"),
        (["hello", "-o", "."], "this is a folder"),
        (["hello", "-o", "x.wav", "--speaker", "a.wav", "--voice", "b"], "both name a voice"),
        (["hello", "--lines", "a.txt", "-o", "x"], "both say what to speak"),
        (["--lines", "none.txt", "-o", "x"], "No such file or directory; name a text file"),
        (["--lines", "a.txt", "-o", "-"], "name a folder|No such file"),
        (["hello", "-o", "x.wav", "--speed", "fast"], "invalid float value"),
    ],
)
def test_usage_errors_are_reported_before_the_model_is_loaded(say, arguments, words, monkeypatch):
    """The status is 2 with a message, and no model is loaded."""
    monkeypatch.setattr("xtts.inference.synthesizer.Synthesizer.load", lambda *_: pytest.fail("the model was loaded"))
    status, out, err = say(*arguments)
    assert (status, out) == (2, "")
    assert any(word in err for word in words.split("|"))


def test_a_missing_folder_is_reported_before_tensorflow_starts(monkeypatch, capsys):
    """A run folder that does not exist is refused without importing TensorFlow."""
    monkeypatch.setattr("xtts.inference.synthesizer.Synthesizer.load", lambda *_: pytest.fail("the model was loaded"))
    assert main.main(["say", "runs/nowhere", "hello", "-o", "x.wav"]) == 2
    assert (
        "runs/nowhere: there is no such folder; name one that xtts run or xtts import has made"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hello", "--speaker", "none.wav", "-o", "x.wav"], "none.wav: there is no such file; correct the path"),
        (["hello", "--voice", "sara", "-o", "x.wav"], "has no voice 'sara'; it has adam, nora"),
        (["hello", "--language", "xx", "-o", "x.wav"], "has no language 'xx'; known: en, fa"),
        (["hello", "--top-p", "3", "-o", "x.wav"], "top_p = 3 is out of range"),
        (["a" * 500, "-o", "x.wav"], "write it with spaces"),
    ],
)
def test_failures_are_reported_without_writing_a_file(say, tmp_path, arguments, words):
    """The status is 1 with a message, and no file is written."""
    status, out, err = say(*arguments)
    assert (status, out) == (1, "")
    assert words in err
    assert not (tmp_path / "x.wav").exists()


def test_audio_is_streamed_to_standard_output(run, tmp_path):
    """A subprocess streams a WAV to standard output and prints nothing else there."""
    done = subprocess.run(
        [sys.executable, "-m", "xtts", "say", str(run), "hello there", "--voice", "adam", "--stream", "-o", "-"],
        cwd=str(ROOT),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"1 sentence in en, voice adam" in done.stderr
    wave, rate = soundfile.read(io.BytesIO(done.stdout))
    assert rate == 22050
    assert len(wave) > 0
