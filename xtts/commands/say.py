"""`xtts say`: speak a text with a trained or imported model."""

import contextlib
import json
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from xtts.commands.command import (
    Command,
    add_json_flag,
    add_run_folder,
    add_verbose_flag,
    print_stderr,
    require_folder,
)
from xtts.errors import UsageError, XttsError
from xtts.formatting import count_of

if TYPE_CHECKING:
    from xtts.inference.synthesizer import SpeechStream

STANDARD = "-"  # standard input or output
NumberedText = Tuple[int, str]  # the number of a line, and the text in it


class SayError(UsageError):
    """A mistake in what was typed."""


def add_flags(parser: ArgumentParser) -> None:
    """RUN, TEXT, and in which voice, how and where to."""
    add_run_folder(parser, or_import=True)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="text to speak; -: read it from standard input")
    parser.add_argument(
        "-o", "--out", metavar="OUT.wav", help="file to write; with --lines, a folder; -: standard output"
    )
    parser.add_argument("--lines", metavar="FILE", help="speak each line of a text file, into a file of its own")
    parser.add_argument(
        "--speaker", metavar="REF.wav", action="append", help="recording of the voice; give it again for more"
    )
    parser.add_argument("--voice", metavar="NAME", help="a voice kept in RUN, or a file written by --save-voice")
    parser.add_argument("--save-voice", metavar="FILE", help="save the voice, as .safetensors")
    parser.add_argument("--language", metavar="CODE", help="language of the text, such as fa (guessed from its script)")
    parser.add_argument("--seed", type=int, help="seed of the sampling (0)")
    parser.add_argument(
        "--temperature",
        type=float,
        help="lower is steadier, higher is livelier (0.75 or as in the published config; 0.4 for a run's own)",
    )
    parser.add_argument("--top-k", type=int, help="sample from the K likeliest codes (50)")
    parser.add_argument("--top-p", type=float, help="sample from the codes that make up this probability (0.85)")
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        help="penalty on repeated codes (as in the published config, such as 5; 1: none)",
    )
    parser.add_argument(
        "--num-beams", type=int, metavar="N", help="beam search over N readings instead of sampling (1)"
    )
    parser.add_argument("--length-penalty", type=float, help="of beam search: above 0 favours longer readings (1)")
    parser.add_argument("--speed", type=float, help="1.5 is half as fast again, at the same pitch (1)")
    parser.add_argument("--stream", action="store_true", help="write samples as they are generated")
    add_json_flag(parser)
    add_verbose_flag(parser)
    sound = parser.add_argument_group("sound")
    sound.add_argument(
        "--sound",
        metavar="NAME",
        help="published, published-api or xtts (published for published weights, xtts for a run's own)",
    )
    sound.add_argument("--fade", type=float, metavar="SECONDS", help="fade at the edges of a sentence (0, or 0.005)")
    sound.add_argument(
        "--pause", type=float, metavar="SECONDS", help="silence between sentences (0, or by punctuation)"
    )
    sound.add_argument(
        "--chunk", type=int, metavar="CODES", help="codes in a chunk of a stream (20, or 16 and then 32)"
    )
    sound.add_argument(
        "--overlap",
        type=int,
        metavar="SAMPLES",
        help="crossfade the chunks of a stream, as the public one does with 1024",
    )
    references = parser.add_argument_group("references")
    references.add_argument(
        "--sound-norm-refs", action="store_true", default=None, help="bring each recording of the voice to one level"
    )
    references.add_argument(
        "--librosa-trim-db",
        type=float,
        metavar="DB",
        help="trim what is this much below the loudest moment; needs librosa",
    )
    references.add_argument("--max-ref-len", type=int, metavar="SECONDS", help="use this much of each recording (30)")
    references.add_argument(
        "--gpt-cond-len", type=int, metavar="SECONDS", help="use this much of all together for the latents (30)"
    )
    references.add_argument(
        "--gpt-cond-chunk-len", type=int, metavar="SECONDS", help="length of the pieces that are averaged (4)"
    )


def say(
    *,
    folder: str,
    text: Optional[str],
    out: Optional[str],
    lines: Optional[str],
    speaker: Optional[Sequence[str]],
    voice: Optional[str],
    save_voice: Optional[str],
    language: Optional[str],
    seed: Optional[int],
    temperature: Optional[float],
    top_k: Optional[int],
    top_p: Optional[float],
    repetition_penalty: Optional[float],
    num_beams: Optional[int],
    length_penalty: Optional[float],
    speed: Optional[float],
    stream: bool,
    sound: Optional[str],
    fade: Optional[float],
    pause: Optional[float],
    chunk: Optional[int],
    overlap: Optional[int],
    sound_norm_refs: Optional[bool],
    librosa_trim_db: Optional[float],
    max_ref_len: Optional[int],
    gpt_cond_len: Optional[int],
    gpt_cond_chunk_len: Optional[int],
    as_json: bool,
    verbose: bool,
) -> int:
    """Speak. As far as possible, mistakes are reported before the model is loaded."""
    sampling: Dict[str, Any] = {
        "seed": seed,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "speed": speed,
    }
    sampling.update(repetition_penalty=repetition_penalty, num_beams=num_beams, length_penalty=length_penalty)
    sounding: Dict[str, Any] = {"sound": sound, "fade": fade, "pause": pause, "chunk": chunk, "overlap": overlap}
    references: Dict[str, Any] = {
        "max_ref_len": max_ref_len,
        "gpt_cond_len": gpt_cond_len,
        "gpt_cond_chunk_len": gpt_cond_chunk_len,
    }
    references.update(sound_norm_refs=sound_norm_refs, librosa_trim_db=librosa_trim_db)
    if speaker and voice:
        raise SayError("--speaker and --voice both name a voice; leave one of them out")
    texts = _read_texts(text, lines, is_needed=save_voice is None)
    outputs = _output_paths(out, len(texts), is_folder=lines is not None)
    require_folder(folder, "xtts run or xtts import")

    from xtts.commands.start_tensorflow import start_tensorflow

    start_tensorflow(verbose)

    from xtts.inference import synthesizer, voices

    model = synthesizer.Synthesizer.load(folder, print_stderr)
    chosen = model.voice(speaker or voice, **references)
    if save_voice is not None:
        voices.write_voice(save_voice, chosen)
        print_stderr(f"{save_voice}: the voice is saved; speak in it with --voice {save_voice}")
    streams = []
    for number, one in texts:  # every text is checked before the first is spoken
        try:
            streams.append(model.stream(one, chosen, language, **sampling, **sounding))
        except XttsError as error:
            raise type(error)(f"{lines}:{number}: {error}" if lines else str(error)) from None
    results = []
    for spoken, path in zip(streams, outputs):
        results.append({"file": str(path), "voice": chosen.name, **_write(spoken, path, stream)})
        if not as_json:
            _print_beside_sound(_summary(results[-1]), path)
    if as_json and results:
        _print_beside_sound(json.dumps(results if lines else results[0], ensure_ascii=False), outputs[0])
    return 0


def _read_texts(text: Optional[str], lines: Optional[str], is_needed: bool) -> List[NumberedText]:
    if lines is not None:
        if text is not None:
            raise SayError("the text and --lines both say what to speak; leave one of them out")
        content = _read_file(Path(lines)).splitlines()
        texts = [(number, line.strip()) for number, line in enumerate(content, 1) if line.strip()]
        if not texts:
            raise SayError(f"--lines {lines}: the file is empty; write one text a line")
        return texts
    if text is None:
        if not is_needed:
            return []
        raise SayError('there is no text; write it behind the run, as in: xtts say RUN "Good morning." -o out.wav')
    if text == STANDARD:
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError:
            raise SayError("standard input is not UTF-8; convert it first, with iconv for example") from None
    if not text.strip():
        raise SayError("the text is empty; write a sentence")
    return [(1, text)]


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SayError(f"--lines {path}: {error.strerror}; name a text file") from None
    except UnicodeDecodeError:
        raise SayError(f"--lines {path}: this is not UTF-8; save it as UTF-8 text") from None


def _output_paths(out: Optional[str], count: int, is_folder: bool) -> List[Path]:
    """A file for each text, in a folder that exists."""
    if not count:
        return []
    if out is None:
        raise SayError("there is no file to write; name one with -o out.wav")
    if out == STANDARD:
        if is_folder:
            raise SayError("-o -: --lines writes a file for each line; name a folder")
        return [Path(STANDARD)]
    path = Path(out)
    if not path.absolute().parent.is_dir():
        raise SayError(f"-o {path}: there is no folder {path.parent}; make it, or name another")
    if not is_folder:
        if path.is_dir():
            raise SayError(f"-o {path}: this is a folder; name a file in it, such as {path / 'out.wav'}")
        return [path]
    if path.exists() and not path.is_dir():
        raise SayError(f"-o {path}: this is a file, and --lines writes a file for each line; name a folder")
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise SayError(f"-o {path}: {error.strerror}; name a folder that can be written") from None
    width = max(4, len(str(count)))
    return [path / f"{number:0{width}d}.wav" for number in range(1, count + 1)]


def _write(stream: "SpeechStream", out: Path, as_generated: bool) -> Dict[str, Any]:
    """Write the audio of a stream, as it is generated or when it is complete; returns a description of it."""
    if not as_generated and str(out) != STANDARD:
        wave = stream.whole()
        wave.write(out)
        return wave.as_json()

    from xtts.audio.wav import StreamingWav

    with _opened(out) as file:
        growing, first = StreamingWav(file, stream.sample_rate), None
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


def _print_beside_sound(line: str, out: Path) -> None:
    print(line, file=sys.stderr if str(out) == STANDARD else sys.stdout)


def _summary(result: Dict[str, Any]) -> str:
    return (
        f"{result['file']}: {result['seconds']:.1f} s, {count_of(len(result['sentences']), 'sentence')} in"
        f" {result['language']}, voice {result['voice']}, real-time factor {result['real_time_factor']:.2f}"
    )


COMMAND = Command("say", "Speak a text in the voice of a recording, with a trained or imported model.", add_flags, say)
