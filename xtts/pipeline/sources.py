"""Batches of one stage: the utterances of a step come in; arrays of a shape of the stage go out.

`read` is the host's part: it opens recordings, or looks features up that were stored, and can be called from many
threads. `finish` is the data device's part: what is live is computed there. Which cut of which recording is taken is a
function of (seed, number of the batch, place in the step), so that a batch is the same whenever, in whatever order, and
over however many replicas, it is made. Of several processes each reads the rows of its own share of the replicas.
An utterance that can no longer be read leaves its row blank, and is named.
"""

import time
from typing import Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple

import attrs
import numpy as np

from xtts.pipeline.recordings import Cuts, Lost, Recordings
from xtts.planning.batch_order import Batch, BatchOrder
from xtts.planning.shapes import Shape

Arrays = Dict[str, Any]  # of NumPy, or TensorFlow's once it is finished


@attrs.frozen(eq=False)
class HostBatch:
    """A batch that was read; those of several replicas, of this process's own, lie one after the other."""

    shape: int  # its place among the stage's shapes
    size: Shape  # what it was brought to: that shape, or where lengths are free a smaller one
    arrays: Arrays
    counts: np.ndarray  # float64: how many numbers each part of the loss is a mean of, of the rows that are here
    frames: int  # of sound, without padding, of all replicas
    lost: Tuple[Lost, ...] = ()  # by which rows are blank


class BatchSource(Protocol):
    """What a feed draws from."""

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        """The host's part of one step's work, for each replica a batch."""

    def finish(self, rows: HostBatch) -> Arrays:
        """The data device's part."""

    def name(self, position: int) -> str:
        """The id of an utterance, for people."""


class RemoteBatchSource(BatchSource, Protocol):
    """A source whose sound others can read, and make features of."""

    recordings: Recordings

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        """What has to be heard for a step, under the names of the arrays it becomes."""

    def delivered(self, batches: Sequence[Batch], number: int, made: Arrays) -> HostBatch:
        """What `read` would give, with features that others have made, of all that `cuts` asked for."""


def warm_up(source: BatchSource, order: BatchOrder, dynamic_shapes: bool = False) -> None:
    """Make a blank batch of every shape: what the data device computes is traced, and tried, before step 0.

    Where lengths are free one is enough, and the longest is made.
    """
    for shape in range(len(order.batch_sizes))[-1 if dynamic_shapes else 0 :]:
        source.finish(_blank(source, order, shape))


def seconds_per_batch(source: BatchSource, order: BatchOrder, dynamic_shapes: bool = False) -> float:
    """How long the data device takes for a batch, of those it was tried with before."""
    shapes = range(len(order.batch_sizes))[-1 if dynamic_shapes else 0 :]
    blanks = [_blank(source, order, shape) for shape in shapes]
    began = time.monotonic()
    for blank in blanks:
        source.finish(blank)
    return (time.monotonic() - began) / len(blanks)


def _blank(source: BatchSource, order: BatchOrder, shape: int) -> HostBatch:
    return source.read([Batch(shape, np.zeros(0, np.int64), order.batch_sizes[shape])] * order.workers, 0)


def _first(draw: int, count: int, wanted: int) -> int:
    """Where a cut of `wanted` frames begins, of so many; live and cached features are cut at the same place."""
    return draw % (count - wanted + 1) if count > wanted else 0


def _placed(batches: Sequence[Batch], rows: int, share: Optional[range]) -> Dict[int, Tuple[int, int]]:
    """Which utterance is in which row, of so many a replica, and its place in the step; of a share of the replicas."""
    own = share or range(len(batches))
    return {
        (replica - own.start) * rows + row: (int(position), row * len(batches) + replica)
        for replica in own
        for row, position in enumerate(batches[replica].utterances)
    }


def _elsewhere(batches: Sequence[Batch], share: Optional[range]) -> np.ndarray:
    """The utterances of a step that other processes read."""
    others = [batch.utterances for place, batch in enumerate(batches) if share and place not in share]
    return np.concatenate([np.zeros(0, np.int64), *others])


def _in_order(lost: Mapping[int, Lost]) -> Tuple[Lost, ...]:
    return tuple(lost[row] for row in sorted(lost))
