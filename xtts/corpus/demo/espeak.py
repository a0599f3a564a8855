"""Speech synthesis with espeak-ng, in a process of its own.

The library and its data come with the package espeakng-loader. It keeps global state, and some of it (the phase of a
rolled r) survives even a reset. In a process of its own the same sentences in the same order always give the same
bytes, and a crash of the library is only an error.
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

SAMPLE_RATE = 22050  # Hz, of espeak-ng
LANGUAGE_FILES = {"en": "lang/gmw/en-US", "fa": "lang/ira/fa"}  # voice files in espeak-ng's data

_INSTALL = "run: pip install 'xtts[demo]'"
_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: espeak_Synth returns when done, and nothing is played
_DO_NOT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT: otherwise an error ends the process
_UTF8 = 1
_RATE = 1  # espeakRATE
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class EspeakError(XttsError):
    """espeak-ng is missing, or failed."""


class EspeakVoice(NamedTuple):
    """A voice, in any language."""

    name: str
    pitch: int  # Hz, the base of its pitch range
    reach: int  # Hz, the width of its pitch range
    formants: int  # formant frequencies, in percent of espeak-ng's own; over 100 is a shorter vocal tract
    source: int  # number of espeak-ng's Klatt synthesizer, 1 to 6: the shape of the glottal pulse
    rate: int  # words a minute

    def description(self, language: str) -> str:
        """The text of an espeak-ng voice file: that of the language, followed by the settings of this voice."""
        tract = [f"formant {formant} {self.formants} 100 100" for formant in range(1, 9)]
        return "\n".join(
            [language, f"pitch {self.pitch} {self.pitch + self.reach}", f"klatt {self.source}", *tract, ""]
        )


class Espeak:
    """espeak-ng in a process of its own, as a context manager."""

    def __enter__(self) -> "Espeak":
        _load()  # raises here, in this process, if something is missing
        search = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
        self._stderr = TemporaryFile()  # not a pipe, which blocks when it is full
        self.process = subprocess.Popen(
            [sys.executable, "-m", "xtts.corpus.demo.espeak"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": search},
        )
        return self

    def __exit__(self, *_error: Any) -> None:
        self.process.communicate()  # closing its input ends it
        self._stderr.close()

    def speak(self, text: str, language: str, voice: EspeakVoice) -> bytes:
        """Synthesize `text`: 16-bit samples in native byte order, at SAMPLE_RATE."""
        requests, replies = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        try:
            requests.write(json.dumps([text, language, list(voice)]).encode() + b"\n")
            requests.flush()
            is_error, length = _HEADER.unpack(replies.read(_HEADER.size))
        except (OSError, struct.error):
            raise EspeakError(f"espeak-ng crashed at {text!r} ({self._last_words()}); {_INSTALL} -U") from None
        content = replies.read(length)
        if is_error:
            raise EspeakError(content.decode())
        return content

    def _last_words(self) -> str:
        self.process.wait()
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip().rpartition("\n")[2] or "no message"


_HEADER = struct.Struct("<?I")  # of a reply: whether it is an error, and the number of bytes that follow


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until the input is closed; the body of the process."""
    with TemporaryDirectory(prefix="xtts-voices-") as folder:
        library = _Library(Path(folder))
        for request in requests:
            text, language, voice = json.loads(request)
            try:
                is_error, content = False, library.speak(text, language, EspeakVoice(*voice))
            except EspeakError as error:
                is_error, content = True, str(error).encode()
            replies.write(_HEADER.pack(is_error, len(content)) + content)
            replies.flush()


class _Library:
    """The C library, which passes its samples to a callback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # for voice files: these parameters can only be set in files
        self._files: Dict[Tuple[str, EspeakVoice], bytes] = {}
        self._chunks: List[bytes] = []
        self._callback = _Callback(self._on_samples)  # referenced here because the library keeps only a pointer
        self._c, self._data = _load()
        rate = self._c.espeak_Initialize(_SYNCHRONOUS, 0, os.fsencode(self._data), _DO_NOT_EXIT)
        if rate != SAMPLE_RATE:
            raise EspeakError(f"espeak-ng did not start with its data in {self._data}; {_INSTALL} --force-reinstall")
        self._c.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, language: str, voice: EspeakVoice) -> bytes:
        if self._c.espeak_SetVoiceByFile(self._voice_file(language, voice)):
            raise EspeakError(f"espeak-ng refused the voice {voice.name} for {language}; {_INSTALL} -U")
        self._c.espeak_SetParameter(_RATE, voice.rate, 0)
        self._chunks.clear()
        content = text.encode() + b"\0"
        if self._c.espeak_Synth(content, len(content), 0, 1, 0, _UTF8, None, None):
            raise EspeakError(f"espeak-ng could not say {text!r} in {language}; write another text")
        return b"".join(self._chunks)

    def _on_samples(self, samples: Any, count: int, _events: Any) -> int:
        if samples and count > 0:
            self._chunks.append(ctypes.string_at(samples, 2 * count))
        return 0  # continue the synthesis

    def _voice_file(self, language: str, voice: EspeakVoice) -> bytes:
        key = (language, voice)
        if key not in self._files:
            language_file = (self._data / LANGUAGE_FILES[language]).read_text(encoding="utf-8")
            path = self._folder / str(len(self._files))
            path.write_text(voice.description(language_file), encoding="utf-8")
            self._files[key] = os.fsencode(path)
        return self._files[key]


def _load() -> Tuple[Any, Path]:
    """Load the C library; returns it and the folder of its data."""
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
    replies_out = os.fdopen(os.dup(1), "wb")  # stdout itself goes to stderr: the library may print to it
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, replies_out)
