"""The order of batches, as a pure function of the seed and the epoch.

Utterances are shuffled within their shape, and batches across shapes. Both use only integers (SplitMix64 and a stable
sort), because numpy's own shuffles may change between releases. To resume, a batch number is enough:
`batches(epoch, start=n)`, or `run(start=n)` over all epochs.

An epoch has every utterance once. The last batch of a shape may have fewer utterances than rows: the remaining rows
are blank and masked, and the shape stays the same. With several workers each step gives every worker one batch of the
same shape, so that all take the same number of steps of the same cost; a worker's batch is entirely blank only if the
last utterances of a shape are fewer than the workers.
"""

import hashlib
from itertools import count
from typing import TYPE_CHECKING, Any, Iterator, Tuple

import attrs
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's increment
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_UTTERANCES, _BATCHES = 0, 1  # random streams of the two shuffles
CUTS = 2  # random stream of the cuts in the rows of a batch
_SHAPE_BITS = 16  # of a sort key; the other 48 are random


@attrs.frozen(eq=False)
class Batch:
    """The batch of one worker in one step."""

    shape: int  # index of the shape
    utterances: "Ints"  # [at most rows] int64: indices into the table of lengths
    rows: int  # of the shape; those past the utterances are blank


@attrs.frozen(eq=False)
class Epoch:
    """One shuffled epoch: `steps` are indices into the list of all batches, sorted by shape."""

    members: "Ints"  # [utterances] int64: sorted by shape, shuffled within each
    steps: "Ints"  # [batches] int64


@attrs.frozen(eq=False)
class BatchOrder:
    """The order of batches in all epochs of a run."""

    shape_of: "Ints"  # [utterances] int16: the shape of each; negative ones are left out
    batch_sizes: Tuple[int, ...]  # rows of each shape, for one worker
    seed: int
    workers: int = 1
    counts: Tuple[int, ...] = attrs.field(init=False)  # utterances of each shape

    @counts.default
    def _count(self) -> Tuple[int, ...]:
        counts = np.bincount(self.shape_of[self.shape_of >= 0], minlength=len(self.batch_sizes))
        return tuple(int(count) for count in counts)

    @property
    def batches_per_shape(self) -> Tuple[int, ...]:
        """Batches of each shape in an epoch, for each worker."""
        return tuple(-(-count // (rows * self.workers)) for count, rows in zip(self.counts, self.batch_sizes))

    @property
    def batches_per_epoch(self) -> int:
        """Batches of all shapes in an epoch, for each worker."""
        return sum(self.batches_per_shape)

    def epoch(self, number: int) -> Epoch:
        """The shuffled members of every shape, and the order of their batches."""
        keys = random_words(self.seed, number, _UTTERANCES, len(self.shape_of)) >> np.uint64(_SHAPE_BITS)
        shapes = self.shape_of.astype(np.uint16)  # negative shapes wrap to the end of the order
        keys |= shapes.astype(np.uint64) << np.uint64(64 - _SHAPE_BITS)
        members = np.argsort(keys, kind="stable")[: sum(self.counts)]
        steps = np.argsort(random_words(self.seed, number, _BATCHES, self.batches_per_epoch), kind="stable")
        return Epoch(members.astype(np.int64), steps.astype(np.int64))

    def batches(self, epoch: int, start: int = 0, worker: int = 0) -> Iterator[Batch]:
        """The worker's batches of an epoch, from batch `start` on."""
        shuffled = self.epoch(epoch)
        last_member = np.cumsum(self.counts)
        last_batch = np.cumsum(self.batches_per_shape)
        for step in shuffled.steps[start:]:
            shape = int(np.searchsorted(last_batch, step, side="right"))
            rows = self.batch_sizes[shape]
            within = int(step) - int(last_batch[shape]) + self.batches_per_shape[shape]
            first = int(last_member[shape]) - self.counts[shape] + within * rows * self.workers
            stop = min(first + rows * self.workers, int(last_member[shape]))
            yield Batch(shape, shuffled.members[first + worker : stop : self.workers], rows)

    def run(self, start: int = 0, worker: int = 0) -> Iterator[Batch]:
        """The worker's batches of all epochs, endlessly, from batch `start` of the run on."""
        epoch, within = divmod(start, self.batches_per_epoch)
        yield from self.batches(epoch, within, worker)
        for later in count(epoch + 1):
            yield from self.batches(later, 0, worker)

    def digest(self, epochs: int = 1) -> str:
        """The SHA-256 of the order of the first epochs."""
        sha = hashlib.sha256(np.array([self.workers, *self.batch_sizes, *self.counts], "<i8").tobytes())
        for number in range(epochs):
            shuffled = self.epoch(number)
            sha.update(shuffled.members.astype("<i8").tobytes())
            sha.update(shuffled.steps.astype("<i8").tobytes())
        return sha.hexdigest()


def random_words(seed: int, epoch: int, stream: int, size: int) -> "Ints":
    """`size` pseudo-random uint64 that depend only on (seed, epoch, stream).

    For the stream `CUTS` the number of a batch takes the place of the epoch.
    """
    base = _mix((_mix((_mix(seed + _GOLDEN) + epoch + _GOLDEN) & _WORD) + stream + _GOLDEN) & _WORD)
    words = np.arange(size, dtype=np.uint64)
    words *= np.uint64(_GOLDEN)
    words += np.uint64(base)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _mix(word: int) -> int:
    """SplitMix64's finaliser."""
    word = ((word ^ word >> 30) * _MIX_1) & _WORD
    word = ((word ^ word >> 27) * _MIX_2) & _WORD
    return word ^ word >> 31
