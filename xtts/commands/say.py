"""The verb say: what was typed comes in; wave files, a voice's file and an account of what was said go out."""

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

from xtts.audio import wav
from xtts.errors import UsageError, XttsError
from xtts.inference import voices

if TYPE_CHECKING:
    from xtts.inference.synthesizer import SpeechStream

SETTINGS = ("temperature", "top_k", "top_p", "repetition_penalty", "speed", "seed")
STANDARD = "-"  # input or output


class SayError(UsageError):
    """What was typed cannot be done."""


def say(arguments: argparse.Namespace) -> int:
    """Say what was asked for; what a user can mend is told before the model is loaded, where that is possible."""
    texts = _texts(arguments)
    outputs = _outputs(arguments, len(texts))
    if not Path(arguments.folder).is_dir():
        raise SayError(f"{arguments.folder}: there is no such folder; name one that a run or an import has made")

    from xtts.inference import synthesizer  # TensorFlow starts here

    speaker = synthesizer.Synthesizer.load(arguments.folder, _aside)
    voice = speaker.voice(arguments.speaker or arguments.voice)
    if arguments.save_voice:
        voices.write_voice(arguments.save_voice, voice)
        _aside(f"{arguments.save_voice}: the voice; say more in it with --voice {arguments.save_voice}")
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    streams, account = [], []
    for number, text in texts:  # each is looked at before the first is said
        try:
            streams.append(speaker.stream(text, voice, arguments.language, **settings))
        except XttsError as error:
            raise type(error)(f"{arguments.lines}:{number}: {error}" if arguments.lines else str(error)) from None
    for stream, out in zip(streams, outputs):
        account.append({"file": str(out), "voice": voice.name, **_written(stream, out, arguments.stream)})
        if not arguments.json:
            _tell(_line(account[-1]), out)
    if arguments.json and account:
        _tell(json.dumps(account if arguments.lines else account[0], ensure_ascii=False), outputs[0])
    return 0


def _written(stream: "SpeechStream", out: Path, as_it_grows: bool) -> Dict[str, Any]:
    """Write what a stream says, as it is said or when it is whole; what it was goes out."""
    if not as_it_grows and str(out) != STANDARD:
        wave = stream.whole()
        wave.write(out)
        return wave.as_json()
    with _opened(out) as file:
        growing, first = wav.StreamingWav(file, stream.sample_rate), None
        started = time.monotonic()
        try:
            for chunk in stream:
                first = time.monotonic() - started if first is None else first
                growing.add(chunk)
        finally:
            growing.end()
    return {"first_sound_seconds": round(first or 0.0, 3), **stream.wave.as_json()}


@contextlib.contextmanager
def _opened(out: Path) -> Iterator[BinaryIO]:
    if str(out) == STANDARD:
        yield sys.stdout.buffer
        return
    try:
        file = out.open("wb")
    except OSError as error:
        raise SayError(f"-o {out}: {error.strerror}; name a file that can be written") from None
    with file:
        yield file


def _tell(line: str, out: Path) -> None:
    """A line of the account; not among the sound."""
    print(line, file=sys.stderr if str(out) == STANDARD else sys.stdout)


def _texts(arguments: argparse.Namespace) -> List[Tuple[int, str]]:
    """What is to be said, each with the number of its line."""
    if arguments.speaker and arguments.voice:
        raise SayError("--speaker and --voice both name a voice; leave one of them out")
    if arguments.lines:
        if arguments.text is not None:
            raise SayError("the text and --lines both say what to speak; leave one of them out")
        lines = _read(Path(arguments.lines)).splitlines()
        texts = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
        if not texts:
            raise SayError(f"{arguments.lines}: there is no line to say in it; write one text a line")
        return texts
    if arguments.text is None:
        if arguments.save_voice:
            return []
        raise SayError('there is no text; write it behind the run, as in: xtts say RUN "Good morning." -o out.wav')
    text = arguments.text
    if text == STANDARD:
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError:
            raise SayError("what came on standard input is not UTF-8; convert it first, with iconv perhaps") from None
    if not text.strip():
        raise SayError("the text is empty; write a sentence")
    return [(1, text)]


def _outputs(arguments: argparse.Namespace, count: int) -> List[Path]:
    """A file for each text, in a folder that is there."""
    if not count:
        return []
    if arguments.out is None:
        raise SayError("there is no place for the sound; name one with -o out.wav")
    if arguments.out == STANDARD:
        if arguments.lines:
            raise SayError("-o -: --lines makes a wave a line, which standard output cannot hold; name a folder")
        return [Path(STANDARD)]
    out = Path(arguments.out)
    folder = out.absolute().parent
    if not folder.is_dir():
        raise SayError(f"-o {out}: there is no folder {out.parent}; make it, or name another")
    if not arguments.lines:
        if out.is_dir():
            raise SayError(f"-o {out}: this is a folder; name a file in it, such as {out / 'out.wav'}")
        return [out]
    if out.exists() and not out.is_dir():
        raise SayError(f"-o {out}: this is a file, and --lines makes a wave a line; name a folder")
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise SayError(f"-o {out}: {error.strerror}; name a folder that can be written") from None
    width = max(4, len(str(count)))
    return [out / f"{number:0{width}d}.wav" for number in range(1, count + 1)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SayError(f"--lines {path}: {error.strerror}; name a text file") from None
    except UnicodeDecodeError:
        raise SayError(f"--lines {path}: this is not UTF-8; save it as UTF-8 text") from None


def _line(told: Dict[str, Any]) -> str:
    """What was said, for people."""
    count = len(told["sentences"])
    sentences = f"{count} sentence{'s' if count != 1 else ''}"
    return (
        f"{told['file']}: {told['seconds']:.1f} s, {sentences} in {told['language']}, voice {told['voice']},"
        f" {told['real_time_factor']:.2f} s of work a second"
    )


def _aside(line: Optional[str]) -> None:
    print(line, file=sys.stderr)
