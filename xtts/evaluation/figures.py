"""What was found of how a run speaks: judgements of single waves come in; figures, a table for people and JSON go out.

Three things stand side by side: the recordings, which are as good as it can get; the recordings through the codec and
Griffin-Lim, which is as good as any GPT on this codec can get; and what the model says.
"""

from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import attrs

from xtts.formatting import count_of

RECORDING, CODEC, SAID = "recordings", "codec", "said"
HEADS = {RECORDING: "recordings", CODEC: "through the codec", SAID: "said by the model"}
WIDTH = 18  # characters of a column

Row = Callable[["Figures"], str]


@attrs.frozen
class Heard:
    """One wave, judged."""

    seconds: float
    distortion: Optional[float] = None  # from the recording, dB
    heard: Mapping[str, str] = attrs.field(factory=dict)  # by each recogniser
    edits: Mapping[str, int] = attrs.field(factory=dict)  # from that to what was to be said, in words
    similarity: Optional[float] = None  # to other recordings of the speaker, -1 to 1
    nearest: Optional[str] = None  # the speaker whose recordings it is most like
    is_cut: bool = False  # the model did not stop by itself


@attrs.frozen
class Judged:
    """An utterance that was held out: the recording, and the same text said again."""

    id: str
    text: str
    language: str
    speaker: str
    reference: str  # the id of the recording whose voice it is said in
    letters: int  # that are spoken: letters and digits of the text as it is said
    words: int  # that recognisers listen for; 0 in a language they do not know
    waves: Mapping[str, Heard]  # by the names of the three things


@attrs.frozen
class Figures:
    """Of one of the three things, over all utterances."""

    utterances: int
    distortion: Optional[float]  # mean, dB
    letters_per_second: Optional[float]
    pace: Optional[float]  # of speech, against the recordings'
    words: int
    error_rates: Mapping[str, float]  # by each recogniser: edits for every word
    similarity: Optional[float]
    own_voice: Optional[int]  # utterances nearest to their own speaker
    confusion: Mapping[str, Mapping[str, int]]  # speaker to nearest speaker to utterances
    cut: int  # sentences that did not end
    silent: int  # and of which nothing was said

    def as_json(self) -> Dict[str, Any]:
        found = attrs.asdict(self)
        found["words_understood"] = {name: _understood(rate) for name, rate in self.error_rates.items()}
        return found


@attrs.frozen
class Evaluation:
    """All that was found of a run."""

    folder: str
    steps: Mapping[str, int]  # that each stage has taken
    is_held_out: bool  # False where nothing was held out, and this was trained on
    read_before: int  # utterances whose texts were trained on, in other recordings
    losses: Mapping[str, Mapping[str, float]]  # of each stage: the whole, and its parts
    codec: Mapping[str, float]  # of mels through the codec
    voiceprint: str  # how voices were compared
    utterances: Sequence[Judged]
    unknown_words: Sequence[str] = ()  # that a recogniser has no pronunciation for

    def figures(self) -> Dict[str, Figures]:
        """The figures of each thing that there is."""
        names = [name for name in HEADS if any(name in one.waves for one in self.utterances)]
        return {name: summarise(self.utterances, name) for name in names}

    def as_json(self) -> Dict[str, Any]:
        found = attrs.asdict(self)
        found["figures"] = {name: one.as_json() for name, one in self.figures().items()}
        return found

    def text(self) -> str:
        """A page for people."""
        what = "held out" if self.is_held_out else "trained on, as nothing was held out"
        if self.read_before:
            what += f", {self.read_before:,} of them with a text that was trained on in another recording"
        steps = ", ".join(f"{stage} after {count:,} steps" for stage, count in self.steps.items())
        lines = [f"{self.folder}: {count_of(len(self.utterances), 'utterance')} {what}; {steps}", ""]
        for stage, losses in self.losses.items():
            parts = ", ".join(f"{name} {value:.3f}" for name, value in losses.items() if name != "loss")
            lines.append(f"{stage + ' loss':<28}{losses['loss']:>{WIDTH}.3f}   {parts}")
        if self.codec:
            lines.append(f"{'codec, mel error':<28}{self.codec['mel_error']:>{WIDTH - 3}.2f} dB")
            lines.append(f"{'codec, mel-cepstral':<28}{self.codec['distortion']:>{WIDTH - 3}.2f} dB")
            lines.append(f"{'codec, codes in use':<28}{self.codec['codes_used']:>{WIDTH}.0%}")
        return "\n".join([*lines, "", *_table(self.figures(), self.voiceprint), *self._notes()]) + "\n"

    def _notes(self) -> List[str]:
        if not self.unknown_words:
            return []
        few = ", ".join(self.unknown_words[:8]) + (", …" if len(self.unknown_words) > 8 else "")
        return ["", f"sphinx has no pronunciation for {count_of(len(self.unknown_words), 'word')}: {few}"]


def summarise(utterances: Sequence[Judged], name: str) -> Figures:
    """The figures of one thing."""
    pairs = [(one, one.waves[name]) for one in utterances if name in one.waves]
    sounding = [(one, wave) for one, wave in pairs if wave.seconds > 0]
    letters, seconds = sum(one.letters for one, _ in sounding), sum(wave.seconds for _, wave in sounding)
    recorded = sum(one.waves[RECORDING].seconds for one, _ in sounding if RECORDING in one.waves)
    words = sum(one.words for one, _ in pairs)
    judges = sorted({judge for _, wave in pairs for judge in wave.edits})
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
        error_rates={judge: sum(wave.edits.get(judge, 0) for _, wave in pairs) / words for judge in judges if words},
        similarity=_mean([wave.similarity for _, wave in pairs]),
        own_voice=sum(wave.nearest == one.speaker for one, wave in voiced) if voiced else None,
        confusion=confusion,
        cut=sum(wave.is_cut for _, wave in pairs),
        silent=len(pairs) - len(sounding),
    )


def _table(found: Mapping[str, Figures], voiceprint: str) -> List[str]:
    rows: Dict[str, Row] = {}
    for judge in sorted({judge for one in found.values() for judge in one.error_rates}):
        rows[f"words understood, {judge}"] = lambda one, judge=judge: _share(  # type: ignore[misc]
            _understood(one.error_rates[judge]) if judge in one.error_rates else None
        )
        rows[f"word error rate, {judge}"] = lambda one, judge=judge: _share(  # type: ignore[misc]
            one.error_rates.get(judge)
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
    head = " " * margin + "".join(f"{HEADS[name]:>{WIDTH}}" for name in found)
    shown = [[row(one) for one in found.values()] for row in rows.values()]
    return [head] + [
        f"{label:<{margin}}" + "".join(f"{cell:>{WIDTH}}" for cell in cells)
        for label, cells in zip(rows, shown)
        if set(cells) != {"–"}
    ]


def _understood(rate: float) -> float:
    """The share of words that were understood; more may be wrong than were to be said."""
    return max(0.0, 1.0 - rate)


def _mean(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _share(value: Optional[float]) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: Optional[float], digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
