"""Static shapes: text lengths and mel frames of a corpus come in; the shapes it is brought to, and which utterance goes
where, go out.

The transformer sees one sequence an utterance, text and codes side by side, so a step costs what its joint length
costs. `planned` cuts the histogram of joint lengths where the work is least: an exact optimum, in whole numbers, the
same on every machine. `fixed` has one shape, `relaxed` none: its batches are as long as their longest member.
"""

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

import attrs
import numpy as np

from xtts.errors import XttsError
from xtts.planning.sizes import FRAMES_PER_CODE, LATENTS, StepCost
from xtts.recipe.schema import CodecSection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]

TEXT_MARKS = 2  # [START] text [STOP]
CODE_MARKS = 2  # [start] codes [stop]
STOPS = 3  # codes past the end of a recording, set to stop
MOST_SHAPES = 16  # what "auto" chooses from
POOLS = 32  # how finely a relaxed run sorts by length
POOL_BATCHES = 4  # a pool holds at least as many batches, or the same utterances would always meet
SET_ASIDE = -1  # the shape of an utterance that fits in none
_BLOCK = 256  # rows of the dynamic programme worked on at once, so that it fits in the processor's cache


class ShapeError(XttsError):
    """Lengths from which no shapes can be made."""


@attrs.frozen
class Shape:
    """The static sizes of one batch."""

    text_length: int  # tokens, without [START] and [STOP]
    mel_frames: int  # a multiple of four: whole codes
    joint_length: int  # latents, text, codes and all marks
    batch_size: int  # rows

    @property
    def tokens(self) -> int:
        """What a step computes, in tokens."""
        return self.batch_size * self.joint_length


@attrs.frozen(eq=False)
class ShapePlan:
    """A corpus brought to shapes: every utterance is in exactly one, or set aside."""

    shapes: Tuple[Shape, ...]  # from the shortest to the longest
    shape_of: "Ints"  # [utterances] int16: a place in `shapes`, or SET_ASIDE
    counts: Tuple[int, ...]  # utterances in each shape

    @property
    def batches(self) -> Tuple[int, ...]:
        """Batches of each shape in an epoch; the last may hold blank rows."""
        return tuple(-(-count // shape.batch_size) for count, shape in zip(self.counts, self.shapes))


class TraceCost(NamedTuple):
    """What "auto" weighs: the seconds each further shape costs at the start against those it saves in the run."""

    trace_seconds: float  # to trace and optimise the step for one shape
    run_seconds: float  # that the whole run would take if nothing were padded


def code_count(mel_frames: Any) -> Any:
    """Codes of recordings, with the stops at their end."""
    return -(-mel_frames // FRAMES_PER_CODE) + STOPS


def joint_length(text_lengths: Any, mel_frames: Any) -> Any:
    """[32 latents] [START] text [STOP] [start] codes [stop], in tokens."""
    return LATENTS + text_lengths + TEXT_MARKS + code_count(mel_frames) + CODE_MARKS


def codec_shape(codec: CodecSection) -> Shape:
    """The one shape of the codec's cuts, whose length is in whole codes."""
    frames = _whole_codes(codec.segment_frames)
    return Shape(text_length=0, mel_frames=frames, joint_length=frames, batch_size=codec.batch_size)


def plan_shapes(
    text_lengths: "Ints",
    mel_frames: "Ints",
    cost: StepCost,
    batch_size: int,
    count: Optional[int],
    weighing: TraceCost,
    workers: int = 1,
) -> ShapePlan:
    """The `count` shapes with the least work; with None, as many as `weighing` finds worth their traces."""
    joint = joint_length(text_lengths, mel_frames)
    lengths, counts = length_histogram(joint)
    rows = workers * batch_sizes(lengths, batch_size)
    choices = boundaries(lengths, counts, cost, count or MOST_SHAPES, rows)
    if count is None:
        seconds = {
            number: number * weighing.trace_seconds
            + weighing.run_seconds * work_ratio(lengths, counts, bounds, cost, rows)
            for number, bounds in choices.items()
        }
        count = min(seconds, key=lambda number: seconds[number])
    return _layout(text_lengths, mel_frames, joint, choices[min(count, max(choices))], batch_size)


def fixed_shapes(
    text_lengths: "Ints", mel_frames: "Ints", max_text_length: int, max_mel_frames: int, batch_size: int
) -> ShapePlan:
    """One shape for all that fits in it; the rest is set aside."""
    fits = (text_lengths <= max_text_length) & (mel_frames <= max_mel_frames)
    joint = int(joint_length(max_text_length, max_mel_frames))
    shape = Shape(max_text_length, _whole_codes(max_mel_frames), joint, batch_size)
    return ShapePlan((shape,), np.where(fits, 0, SET_ASIDE).astype(np.int16), (int(fits.sum()),))


def relaxed_shapes(text_lengths: "Ints", mel_frames: "Ints", cost: StepCost, batch_size: int) -> ShapePlan:
    """Pools of like lengths, from which batches are drawn; each shape is the largest that its pool can ask for."""
    joint = joint_length(text_lengths, mel_frames)
    lengths, counts = length_histogram(joint)
    full_batches = int((lengths * counts).sum()) // (batch_size * int(lengths[-1]))
    pools = max(1, min(POOLS, full_batches // POOL_BATCHES))
    choices = boundaries(lengths, counts, cost, pools)
    return _layout(text_lengths, mel_frames, joint, choices[max(choices)], batch_size)


def longest_shape(text_lengths: "Ints", mel_frames: "Ints", rows: int) -> Shape:
    """The least shape with so many rows that holds some utterances: a batch of free lengths is brought to it."""
    joint = joint_length(text_lengths, mel_frames)
    return Shape(int(text_lengths.max()), _whole_codes(int(mel_frames.max())), int(joint.max()), rows)


def length_histogram(lengths: "Ints") -> Tuple["Ints", "Ints"]:
    """The distinct lengths, rising, and how many there are of each (int64)."""
    if not len(lengths):
        raise ShapeError("no utterance is left to plan shapes for; name a corpus with usable recordings")
    counts = np.bincount(lengths)
    distinct = np.flatnonzero(counts)
    return distinct.astype(np.int64), counts[distinct].astype(np.int64)


def boundaries(
    lengths: "Ints", counts: "Ints", cost: StepCost, most: int, rows: Optional["Ints"] = None
) -> Dict[int, "Ints"]:
    """For each number of shapes up to `most`: the joint lengths of the shapes with the least work.

    The work is that of every utterance padded to its shape; with `rows`, the batch size that each length would have as
    a shape, the blank rows of last batches are work too. `least[j]` is the least work of the j + 1 shortest lengths in
    k shapes: one more shape, after the i-th length and up to the j-th, is tried for all i and j at once.
    """
    work = cost.reduced().of(lengths)
    members = np.cumsum(counts)  # up to each length
    size = len(lengths)
    least = _filled(members, rows) * work  # with one shape
    starts: List[Ints] = [np.zeros(size, np.int64)]  # for each k and j: where the last shape begins
    for shapes in range(2, min(most, size) + 1):
        best, begin = least.copy(), starts[-1].copy()  # of j < k - 1, too few lengths for one more shape: never read
        for low in range(shapes - 1, size, _BLOCK):
            ends = np.arange(low, min(low + _BLOCK, size))
            before = np.arange(shapes - 2, ends[-1])  # the last length of the shapes before
            batch = None if rows is None else rows[ends, None]
            total = least[before] + _filled(members[ends, None] - members[before], batch) * work[ends, None]
            total[before >= ends[:, None]] = np.iinfo(np.int64).max
            chosen = total.argmin(axis=1)
            best[ends] = total[np.arange(len(ends)), chosen]
            begin[ends] = before[chosen] + 1
        least = best
        starts.append(begin)
    return {number: lengths[_ends(starts[:number], size)] for number in range(1, len(starts) + 1)}


def work_ratio(lengths: "Ints", counts: "Ints", bounds: "Ints", cost: StepCost, rows: Optional["Ints"] = None) -> float:
    """Work done over real work, when each length is brought to the first of `bounds` that holds it.

    Padding alone counts; with `rows`, as in `boundaries`, blank rows do too.
    """
    cost = cost.reduced()
    members = np.zeros(len(bounds), np.int64)
    np.add.at(members, np.searchsorted(bounds, lengths), counts)
    batch = None if rows is None else rows[np.searchsorted(lengths, bounds)]
    return int((cost.of(bounds) * _filled(members, batch)).sum()) / int((cost.of(lengths) * counts).sum())


def batch_sizes(bounds: "Ints", batch_size: int) -> "Ints":
    """Rows of each shape: as many tokens as `batch_size` utterances of the longest have, and never more."""
    return np.asarray(batch_size * bounds[-1] // bounds)


def _filled(members: "Ints", rows: Optional["Ints"]) -> "Ints":
    """As many rows as the members' batches have, blank ones too."""
    return members if rows is None else -(-members // rows) * rows


def _ends(starts: List["Ints"], size: int) -> List[int]:
    """The place of the last length of each shape, read back from the last shape to the first."""
    ends = []
    stop = size
    for begin in reversed(starts):
        ends.append(stop - 1)
        stop = int(begin[stop - 1])
    return ends[::-1]


def _layout(text_lengths: "Ints", mel_frames: "Ints", joint: "Ints", bounds: "Ints", batch_size: int) -> ShapePlan:
    table = np.searchsorted(bounds, np.arange(int(bounds[-1]) + 1)).astype(np.int16)
    shape_of = table[joint]
    counts = np.bincount(shape_of, minlength=len(bounds))
    grouped = np.argsort(shape_of, kind="stable")
    first = np.cumsum(counts) - counts
    text = np.maximum.reduceat(text_lengths[grouped], first)
    mel = np.maximum.reduceat(mel_frames[grouped], first)
    shapes = tuple(
        Shape(int(text[place]), _whole_codes(int(mel[place])), int(bound), int(rows))
        for place, (bound, rows) in enumerate(zip(bounds, batch_sizes(bounds, batch_size)))
    )
    return ShapePlan(shapes, shape_of, tuple(int(count) for count in counts))


def _whole_codes(mel_frames: int) -> int:
    return -(-mel_frames // FRAMES_PER_CODE) * FRAMES_PER_CODE
