"""The results of an evaluation: scores of single waves, their summary, and both as a table and as JSON.

Three kinds of waves are compared: the recordings, which are the upper bound; the recordings through the codec and
Griffin-Lim, which are the upper bound for any GPT with this codec; and generated speech.
"""

from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import attrs

from xtts.formatting import count_of

RECORDING, CODEC, SAID = "recordings", "codec", "said"
HEADINGS = {RECORDING: "recordings", CODEC: "through the codec", SAID: "said by the model"}
COLUMN_WIDTH = 18  # characters

Row = Callable[["Figures"], str]


@attrs.frozen
class WaveScores:
    """The scores of one wave."""

    seconds: float
    distortion: Optional[float] = None  # mel-cepstral distortion against the recording, dB
    heard: Mapping[str, str] = attrs.field(factory=dict)  # the transcript of each recogniser
    edits: Mapping[str, int] = attrs.field(factory=dict)  # word edits from the text to each transcript
    similarity: Optional[float] = None  # cosine similarity to other recordings of the speaker
    nearest: Optional[str] = None  # the speaker with the most similar recordings
    is_cut: bool = False  # the model did not generate a stop token


@attrs.frozen
class UtteranceScores:
    """The scores of a held-out utterance: of its recording, and of its text as spoken by the model."""

    id: str
    text: str
    language: str
    speaker: str
    reference: str  # id of the recording that the voice is cloned from
    letters: int  # letters and digits of the normalised text
    words: int  # of the reference transcript; 0 in a language that recognisers do not know
    waves: Mapping[str, WaveScores]  # by kind: RECORDING, CODEC, SAID


@attrs.frozen
class Figures:
    """The summary of one kind of waves over all utterances."""

    utterances: int
    distortion: Optional[float]  # mean, dB
    letters_per_second: Optional[float]
    pace: Optional[float]  # speaking rate, relative to the recordings
    words: int
    error_rates: Mapping[str, float]  # word error rate of each recogniser
    similarity: Optional[float]
    own_voice: Optional[int]  # utterances most similar to their own speaker
    confusion: Mapping[str, Mapping[str, int]]  # speaker to nearest speaker to utterances
    cut: int  # sentences without a stop token
    silent: int  # sentences for which no audio was generated

    def as_json(self) -> Dict[str, Any]:
        found = attrs.asdict(self)
        found["words_understood"] = {name: _understood(rate) for name, rate in self.error_rates.items()}
        return found


@attrs.frozen
class Evaluation:
    """All results of evaluating a run."""

    folder: str
    steps: Mapping[str, int]  # optimizer steps of each stage
    is_held_out: bool  # False when nothing was held out, and training data is evaluated
    read_before: int  # utterances whose texts were trained on in other recordings
    losses: Mapping[str, Mapping[str, float]]  # of each stage: the total and its terms
    codec: Mapping[str, float]  # codec reconstruction metrics
    voiceprint: str  # name of the speaker encoder; the key in evaluation.json
    utterances: Sequence[UtteranceScores]
    unknown_words: Sequence[str] = ()  # words that a recogniser has no pronunciation for

    def figures(self) -> Dict[str, Figures]:
        """The summary of each kind of waves that was evaluated."""
        names = [name for name in HEADINGS if any(name in one.waves for one in self.utterances)]
        return {name: summarise(self.utterances, name) for name in names}

    def as_json(self) -> Dict[str, Any]:
        found = attrs.asdict(self)
        found["figures"] = {name: one.as_json() for name, one in self.figures().items()}
        return found

    def text(self) -> str:
        """The results as a page of text."""
        what = "held out" if self.is_held_out else "trained on, as nothing was held out"
        if self.read_before:
            what += f", {self.read_before:,} of them with a text that was trained on in another recording"
        steps = ", ".join(f"{stage} after {count:,} steps" for stage, count in self.steps.items())
        lines = [f"{self.folder}: {count_of(len(self.utterances), 'utterance')} {what}; {steps}", ""]
        for stage, losses in self.losses.items():
            parts = ", ".join(f"{name} {value:.3f}" for name, value in losses.items() if name != "loss")
            lines.append(f"{stage + ' loss':<28}{losses['loss']:>{COLUMN_WIDTH}.3f}   {parts}")
        if self.codec:
            lines.append(f"{'codec, mel error':<28}{self.codec['mel_error']:>{COLUMN_WIDTH - 3}.2f} dB")
            lines.append(f"{'codec, mel-cepstral':<28}{self.codec['distortion']:>{COLUMN_WIDTH - 3}.2f} dB")
            lines.append(f"{'codec, codes in use':<28}{self.codec['codes_used']:>{COLUMN_WIDTH}.0%}")
        return "\n".join([*lines, "", *_table(self.figures(), self.voiceprint), *self._notes()]) + "\n"

    def _notes(self) -> List[str]:
        if not self.unknown_words:
            return []
        few = ", ".join(self.unknown_words[:8]) + (", …" if len(self.unknown_words) > 8 else "")
        return ["", f"sphinx has no pronunciation for {count_of(len(self.unknown_words), 'word')}: {few}"]


def summarise(utterances: Sequence[UtteranceScores], name: str) -> Figures:
    """The summary of one kind of waves."""
    pairs = [(one, one.waves[name]) for one in utterances if name in one.waves]
    sounding = [(one, wave) for one, wave in pairs if wave.seconds > 0]
    letters, seconds = sum(one.letters for one, _ in sounding), sum(wave.seconds for _, wave in sounding)
    recorded = sum(one.waves[RECORDING].seconds for one, _ in sounding if RECORDING in one.waves)
    words = sum(one.words for one, _ in pairs)
    recognisers = sorted({recogniser for _, wave in pairs for recogniser in wave.edits})
    voiced = [(one, wave) for one, wave in pairs if wave.nearest is not None]
    confusion: Dict[str, Dict[str, int]] = {}
    for (own, nearest), count in sorted(Counter((one.speaker, str(wave.nearest)) for one, wave in voiced).items()):
        confusion.setdefault(own, {})[nearest] = count
    return Figures(
        utterances=len(pairs),
        distortion=_mean([wave.distortion for _, wave in pairs]),
        letters_per_second=letters / seconds if seconds else None,
        pace=recorded / seconds if seconds else None,
        words=words,
        error_rates={
            recogniser: sum(wave.edits.get(recogniser, 0) for _, wave in pairs) / words
            for recogniser in recognisers
            if words
        },
        similarity=_mean([wave.similarity for _, wave in pairs]),
        own_voice=sum(wave.nearest == one.speaker for one, wave in voiced) if voiced else None,
        confusion=confusion,
        cut=sum(wave.is_cut for _, wave in pairs),
        silent=len(pairs) - len(sounding),
    )


def _table(found: Mapping[str, Figures], voiceprint: str) -> List[str]:
    rows: Dict[str, Row] = {}
    for recogniser in sorted({recogniser for one in found.values() for recogniser in one.error_rates}):
        rows[f"words understood, {recogniser}"] = lambda one, recogniser=recogniser: _share(  # type: ignore[misc]
            _understood(one.error_rates[recogniser]) if recogniser in one.error_rates else None
        )
        rows[f"word error rate, {recogniser}"] = lambda one, recogniser=recogniser: _share(  # type: ignore[misc]
            one.error_rates.get(recogniser)
        )
    rows["mel-cepstral distortion, dB"] = lambda one: _number(one.distortion, 2)
    rows["letters a second"] = lambda one: _number(one.letters_per_second, 1)
    rows["pace of the recordings"] = lambda one: _share(one.pace)
    rows[f"likeness of voice, {voiceprint}"] = lambda one: _number(one.similarity, 3)
    rows["nearest to own speaker"] = lambda one: (
        "–"
        if one.own_voice is None
        else f"{one.own_voice} of {sum(sum(row.values()) for row in one.confusion.values())}"
    )
    rows["did not end"] = lambda one: str(one.cut)
    rows["silent"] = lambda one: str(one.silent)
    margin = max(map(len, rows)) + 2
    head = " " * margin + "".join(f"{HEADINGS[name]:>{COLUMN_WIDTH}}" for name in found)
    shown = [[row(one) for one in found.values()] for row in rows.values()]
    return [head] + [
        f"{label:<{margin}}" + "".join(f"{cell:>{COLUMN_WIDTH}}" for cell in cells)
        for label, cells in zip(rows, shown)
        if set(cells) != {"–"}
    ]


def _understood(rate: float) -> float:
    """1 - word error rate, at least 0: there may be more errors than words."""
    return max(0.0, 1.0 - rate)


def _mean(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _share(value: Optional[float]) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: Optional[float], digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
