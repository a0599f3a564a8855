"""Plan static shapes from the lengths of a corpus, and assign each utterance to one.

The transformer processes text and codes of an utterance as one sequence, so the cost of a step depends on the joint
length. `plan_shapes` partitions the histogram of joint lengths so that the work is minimal: an exact optimum in
integers, the same on every machine. `fixed_shapes` has one shape; with `relaxed_shapes` batches are as long as their
longest member.
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

TEXT_SPECIAL_TOKENS = 2  # [START] text [STOP]
CODE_SPECIAL_TOKENS = 2  # [start] codes [stop]
STOPS = 3  # codes past the end of a recording, set to stop
MAX_SHAPES = 16  # that "auto" considers
POOLS = 32  # pools of similar lengths in a relaxed run, at most
POOL_BATCHES = 4  # batches in a pool, at least; with fewer the same utterances would always share a batch
SET_ASIDE = -1  # the shape of an utterance that does not fit any
BLOCK = 256  # rows of the dynamic programming table computed together, so that they fit in the processor's cache


class ShapeError(XttsError):
    """Why shapes cannot be planned from these lengths."""


@attrs.frozen
class Shape:
    """The static sizes of one batch."""

    text_length: int  # tokens, without [START] and [STOP]
    mel_frames: int  # a multiple of four: whole codes
    joint_length: int  # latents, text, codes and all special tokens
    batch_size: int  # rows

    @property
    def tokens(self) -> int:
        """Tokens in a batch of this shape."""
        return self.batch_size * self.joint_length


@attrs.frozen(eq=False)
class ShapePlan:
    """The shapes of a corpus: every utterance is in exactly one, or set aside."""

    shapes: Tuple[Shape, ...]  # in ascending order of length
    shape_of: "Ints"  # [utterances] int16: index into `shapes`, or SET_ASIDE
    counts: Tuple[int, ...]  # utterances in each shape

    @property
    def batches(self) -> Tuple[int, ...]:
        """Batches of each shape in an epoch; the last may hold blank rows."""
        return tuple(-(-count // shape.batch_size) for count, shape in zip(self.counts, self.shapes))


class TraceCost(NamedTuple):
    """The trade-off of "auto": seconds that each shape costs at the start, against those that it saves in the run."""

    trace_seconds: float  # to trace and optimise a step for one shape
    run_seconds: float  # of the whole run without any padding


def code_count(mel_frames: Any) -> Any:
    """The number of codes of recordings, including the stop codes."""
    return -(-mel_frames // FRAMES_PER_CODE) + STOPS


def joint_length(text_lengths: Any, mel_frames: Any) -> Any:
    """The tokens of [32 latents] [START] text [STOP] [start] codes [stop]."""
    return LATENTS + text_lengths + TEXT_SPECIAL_TOKENS + code_count(mel_frames) + CODE_SPECIAL_TOKENS


def codec_shape(codec: CodecSection) -> Shape:
    """The shape of the codec's segments, whose length is rounded up to whole codes."""
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
    """The `count` shapes with the least work; with None, the number with the shortest run time by `weighing`."""
    joint = joint_length(text_lengths, mel_frames)
    lengths, counts = length_histogram(joint)
    rows = workers * batch_sizes(lengths, batch_size)
    choices = boundaries(lengths, counts, cost, count or MAX_SHAPES, rows)
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
    """One shape; utterances that do not fit are set aside."""
    fits = (text_lengths <= max_text_length) & (mel_frames <= max_mel_frames)
    joint = int(joint_length(max_text_length, max_mel_frames))
    shape = Shape(max_text_length, _whole_codes(max_mel_frames), joint, batch_size)
    return ShapePlan((shape,), np.where(fits, 0, SET_ASIDE).astype(np.int16), (int(fits.sum()),))


def relaxed_shapes(text_lengths: "Ints", mel_frames: "Ints", cost: StepCost, batch_size: int) -> ShapePlan:
    """Pools of similar lengths, from which batches are drawn; each shape is the largest possible in its pool."""
    joint = joint_length(text_lengths, mel_frames)
    lengths, counts = length_histogram(joint)
    full_batches = int((lengths * counts).sum()) // (batch_size * int(lengths[-1]))
    pools = max(1, min(POOLS, full_batches // POOL_BATCHES))
    choices = boundaries(lengths, counts, cost, pools)
    return _layout(text_lengths, mel_frames, joint, choices[max(choices)], batch_size)


def max_shape(text_lengths: "Ints", mel_frames: "Ints", rows: int) -> Shape:
    """The smallest shape with `rows` rows that holds these utterances, for a batch of a relaxed run."""
    joint = joint_length(text_lengths, mel_frames)
    return Shape(int(text_lengths.max()), _whole_codes(int(mel_frames.max())), int(joint.max()), rows)


def length_histogram(lengths: "Ints") -> Tuple["Ints", "Ints"]:
    """The distinct lengths in ascending order, and their counts (int64)."""
    if not len(lengths):
        raise ShapeError("no utterances are left to plan shapes for; name a corpus with usable recordings")
    counts = np.bincount(lengths)
    distinct = np.flatnonzero(counts)
    return distinct.astype(np.int64), counts[distinct].astype(np.int64)


def boundaries(
    lengths: "Ints", counts: "Ints", cost: StepCost, most: int, rows: Optional["Ints"] = None
) -> Dict[int, "Ints"]:
    """For each number of shapes up to `most`, the joint lengths of the shapes with the least work.

    The work is that of every utterance padded to its shape; with `rows`, the batch size that each length would have as
    a shape, it includes the blank rows of last batches. `least[j]` is the least work of the j + 1 shortest lengths in
    k shapes; adding a shape from after the i-th length up to the j-th is tried for all i and j together.
    """
    work = cost.reduced().of(lengths)
    members = np.cumsum(counts)  # up to each length
    size = len(lengths)
    least = _rows_with_blanks(members, rows) * work  # with one shape
    starts: List[Ints] = [np.zeros(size, np.int64)]  # for each k and j, where the last shape begins
    for shapes in range(2, min(most, size) + 1):
        best, begin = least.copy(), starts[-1].copy()  # those of j < k - 1, which has too few lengths, are never read
        for low in range(shapes - 1, size, BLOCK):
            ends = np.arange(low, min(low + BLOCK, size))
            before = np.arange(shapes - 2, ends[-1])  # the last length of the previous shape
            batch = None if rows is None else rows[ends, None]
            total = least[before] + _rows_with_blanks(members[ends, None] - members[before], batch) * work[ends, None]
            total[before >= ends[:, None]] = np.iinfo(np.int64).max
            chosen = total.argmin(axis=1)
            best[ends] = total[np.arange(len(ends)), chosen]
            begin[ends] = before[chosen] + 1
        least = best
        starts.append(begin)
    return {number: lengths[_ends(starts[:number], size)] for number in range(1, len(starts) + 1)}


def work_ratio(lengths: "Ints", counts: "Ints", bounds: "Ints", cost: StepCost, rows: Optional["Ints"] = None) -> float:
    """The work with padding divided by the work without, when each length is padded to the next of `bounds`.

    With `rows`, as in `boundaries`, blank rows are included.
    """
    cost = cost.reduced()
    members = np.zeros(len(bounds), np.int64)
    np.add.at(members, np.searchsorted(bounds, lengths), counts)
    batch = None if rows is None else rows[np.searchsorted(lengths, bounds)]
    return int((cost.of(bounds) * _rows_with_blanks(members, batch)).sum()) / int((cost.of(lengths) * counts).sum())


def batch_sizes(bounds: "Ints", batch_size: int) -> "Ints":
    """Rows of each shape, so that no batch has more tokens than `batch_size` rows of the longest."""
    return np.asarray(batch_size * bounds[-1] // bounds)


def _rows_with_blanks(members: "Ints", rows: Optional["Ints"]) -> "Ints":
    """The rows of all batches of these members, including blank ones."""
    return members if rows is None else -(-members // rows) * rows


def _ends(starts: List["Ints"], size: int) -> List[int]:
    """The index of the last length of each shape, backtracked from the last shape."""
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
