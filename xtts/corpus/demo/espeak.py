"""Speech from espeak-ng: a text and a voice come in, 16-bit samples go out.

The library and its data come with the package espeakng-loader. It keeps its state in globals, and some of that state
(the phase of a rolled r) outlives even its own reset, so each `Espeak` is a process of its own: the same sentences in
the same order are then always the same bytes, whatever else runs, and a crash in the library is an error here.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, BinaryIO, Dict, List, NamedTuple, Tuple, cast

from xtts.errors import XttsError

SAMPLE_RATE = 22050  # of everything espeak-ng says
LANGUAGE_FILES = {"en": "lang/gmw/en-US", "fa": "lang/ira/fa"}  # where espeak-ng's data describes a language

_INSTALL = "run: pip install 'xtts[demo]'"
_SYNCHRONOUS = 2  # espeak_Synth returns when all is said, and nothing is played
_DO_NOT_EXIT = 0x8000  # on an error espeak-ng would otherwise end the process
_UTF8 = 1
_RATE = 1  # the parameter's number
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class EspeakError(XttsError):
    """espeak-ng is not there, or refuses."""


class EspeakVoice(NamedTuple):
    """How somebody sounds, whatever the language."""

    name: str
    pitch: int  # Hz, where the voice rests
    reach: int  # Hz, how far it rises above that
    formants: int  # percent of espeak-ng's own formant frequencies: over 100 is a shorter vocal tract
    source: int  # which of espeak-ng's Klatt synthesizers, 1 to 6: the shape of the glottal pulse
    rate: int  # words a minute

    def description(self, language: str) -> str:
        """espeak-ng's description of a language, followed by what makes its speaker this one."""
        tract = [f"formant {formant} {self.formants} 100 100" for formant in range(1, 9)]
        return "\n".join(
            [language, f"pitch {self.pitch} {self.pitch + self.reach}", f"klatt {self.source}", *tract, ""]
        )


class Espeak:
    """espeak-ng in a process of its own, from `with` to the end of the block."""

    def __enter__(self) -> "Espeak":
        _load()  # says here, in this process, what is missing
        search = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
        self._complaints = TemporaryFile()  # not a pipe, which would block when nobody reads it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xtts.corpus.demo.espeak"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "PYTHONPATH": search},
        )
        return self

    def __exit__(self, *_error: Any) -> None:
        self._process.communicate()  # closes its input, which ends it
        self._complaints.close()

    def speak(self, text: str, language: str, voice: EspeakVoice) -> bytes:
        """`text` as 16-bit samples in the machine's byte order, at SAMPLE_RATE."""
        requests, answers = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        try:
            requests.write(json.dumps([text, language, list(voice)]).encode() + b"\n")
            requests.flush()
            refused, length = _HEADER.unpack(answers.read(_HEADER.size))
        except (OSError, struct.error):
            raise EspeakError(f"espeak-ng ended at {text!r} ({self._last_words()}); {_INSTALL} -U") from None
        content = answers.read(length)
        if refused:
            raise EspeakError(content.decode())
        return content

    def _last_words(self) -> str:
        self._process.wait()
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace").strip().rpartition("\n")[2] or "without a word"


_HEADER = struct.Struct("<?I")  # of an answer: whether it is a refusal, and how many bytes follow


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Speak what is asked for until nothing more is, in a process that does nothing else."""
    with TemporaryDirectory(prefix="xtts-voices-") as folder:
        library = _Library(Path(folder))
        for request in requests:
            text, language, voice = json.loads(request)
            try:
                refused, content = False, library.speak(text, language, EspeakVoice(*voice))
            except EspeakError as error:
                refused, content = True, str(error).encode()
            answers.write(_HEADER.pack(refused, len(content)) + content)
            answers.flush()


class _Library:
    """The C library, which hands its samples to a callback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # for the files that describe voices, which is how espeak-ng takes them
        self._files: Dict[Tuple[str, EspeakVoice], bytes] = {}
        self._said: List[bytes] = []
        self._callback = _Callback(self._hear)  # the library keeps a bare pointer to it
        self._c, self._data = _load()
        rate = self._c.espeak_Initialize(_SYNCHRONOUS, 0, os.fsencode(self._data), _DO_NOT_EXIT)
        if rate != SAMPLE_RATE:
            raise EspeakError(f"espeak-ng did not start with its data in {self._data}; {_INSTALL} --force-reinstall")
        self._c.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, language: str, voice: EspeakVoice) -> bytes:
        if self._c.espeak_SetVoiceByFile(self._voice_file(language, voice)):
            raise EspeakError(f"espeak-ng refused the voice {voice.name} for {language}; {_INSTALL} -U")
        self._c.espeak_SetParameter(_RATE, voice.rate, 0)
        self._said.clear()
        content = text.encode() + b"\0"
        if self._c.espeak_Synth(content, len(content), 0, 1, 0, _UTF8, None, None):
            raise EspeakError(f"espeak-ng could not say {text!r} in {language}; write another text")
        return b"".join(self._said)

    def _hear(self, samples: Any, count: int, _events: Any) -> int:
        if samples and count > 0:
            self._said.append(ctypes.string_at(samples, 2 * count))
        return 0  # go on

    def _voice_file(self, language: str, voice: EspeakVoice) -> bytes:
        key = (language, voice)
        if key not in self._files:
            described = (self._data / LANGUAGE_FILES[language]).read_text(encoding="utf-8")
            path = self._folder / str(len(self._files))
            path.write_text(voice.description(described), encoding="utf-8")
            self._files[key] = os.fsencode(path)
        return self._files[key]


def _load() -> Tuple[Any, Path]:
    """The C library, and the folder of its data."""
    try:
        import espeakng_loader
    except ImportError:
        raise EspeakError(f"the demo corpus is spoken by espeak-ng, which is not installed; {_INSTALL}") from None
    try:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = Path(espeakng_loader.get_data_path())
    except (OSError, RuntimeError) as error:
        raise EspeakError(f"espeak-ng does not load ({error}); {_INSTALL} --force-reinstall") from None
    number, text = ctypes.c_int, ctypes.c_char_p
    library.espeak_Initialize.argtypes = [number, number, text, number]
    library.espeak_SetVoiceByFile.argtypes = [text]
    library.espeak_SetParameter.argtypes = [number, number, number]
    library.espeak_Synth.argtypes = [text, ctypes.c_size_t, ctypes.c_uint, number, ctypes.c_uint, ctypes.c_uint]
    library.espeak_Synth.argtypes += [ctypes.c_void_p, ctypes.c_void_p]
    return library, data


if __name__ == "__main__":
    private = os.fdopen(os.dup(1), "wb")  # the library may print
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, private)
