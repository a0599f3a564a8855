"""The verb say: what was typed comes in; wave files, a voice's file and an account of what was said go out."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from xtts import XttsError, voices

SETTINGS = ("temperature", "top_k", "top_p", "repetition_penalty", "speed", "seed")
STANDARD = "-"  # input or output


class SayError(XttsError):
    """What was typed cannot be done."""

    status = 2


def say(arguments: argparse.Namespace) -> int:
    """Say what was asked for; what a user can mend is told before the model is loaded, where that is possible."""
    texts = _texts(arguments)
    outputs = _outputs(arguments, len(texts))

    from xtts import speak  # TensorFlow starts here

    speaker = speak.load(arguments.folder, _aside)
    voice = speaker.voice(arguments.speaker or arguments.voice)
    if arguments.save_voice:
        voices.write(arguments.save_voice, voice)
        _aside(f"{arguments.save_voice}: the voice; say more in it with --voice {arguments.save_voice}")
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    account = []
    for (number, text), out in zip(texts, outputs):
        try:
            wave = speaker.say(text, voice, arguments.language, **settings)
        except XttsError as error:
            raise type(error)(f"{arguments.lines}:{number}: {error}" if arguments.lines else str(error)) from None
        wave.write(out)
        account.append({"file": str(out), "voice": voice.name, **wave.as_json()})
        if not arguments.json:
            print(_line(account[-1]))
    if arguments.json:
        print(json.dumps(account if arguments.lines else account[:1][0] if account else {}, ensure_ascii=False))
    return 0


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
