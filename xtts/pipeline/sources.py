"""Batch sources: from the utterances of a step to the arrays that the model takes.

`read` runs on the host: it opens recordings, or looks up stored features, and may be called from many threads. `finish`
runs on the data device, where live features are computed. Which cut of which recording is taken is a function of (seed,
batch number, place in the step), so a batch is the same in whatever order batches are made, and for any number of
replicas. Of several processes each reads the rows of its own share of the replicas. An utterance that can no longer be
read leaves its row blank and is named in `HostBatch.lost`.

Letters in shapes: B rows (of all replicas of this process), T text tokens, C codes, M mel frames, S samples.
"""

import time
from typing import Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple

import attrs
import numpy as np

from xtts.pipeline.recordings import Cuts, Lost, Recordings
from xtts.planning.batch_order import Batch, BatchOrder
from xtts.planning.shapes import Shape

Arrays = Dict[str, Any]  # NumPy arrays from `read`; `finish` adds tensors


@attrs.frozen(eq=False)
class HostBatch:
    """A batch as read on the host; the rows of this process's replicas follow one another."""

    shape: int  # index into the stage's shapes
    size: Shape  # the padded size: that shape, or a smaller one with dynamic shapes
    arrays: Arrays  # each [B, ...]
    counts: np.ndarray  # float64 [parts of the loss]: how many elements of these rows each part is a mean over
    frames: int  # mel frames without padding, of all replicas
    lost: Tuple[Lost, ...] = ()  # the utterances of blank rows


class BatchSource(Protocol):
    """The interface of the sources that a prefetcher draws batches from."""

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        """Read batch `number` of the run on the host; `batches` has one for each replica.

        Arrays are [B, ...]: either padded waves [B, S] float32 with their lengths [B] int32, from which `finish`
        computes features, or stored features.
        """

    def finish(self, batch: HostBatch) -> Arrays:
        """Compute missing features on the data device; returns the arrays that the model takes.

        The codec's are mel [B, M, n_mels] and lengths [B]; the GPT's text [B, T], text_lengths [B], codes [B, C],
        code_lengths [B] and reference [B, M, n_mels].
        """

    def name(self, position: int) -> str:
        """The id of an utterance, for messages."""


class RemoteBatchSource(BatchSource, Protocol):
    """A source whose recordings can be read, and features computed, by remote workers."""

    recordings: Recordings

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        """The samples that batch `number` needs, by wave name ("waves", "reference_waves"), each for a [B, S] array."""

    def delivered(self, batches: Sequence[Batch], number: int, features: Arrays) -> HostBatch:
        """What `read` returns, with features [B, ...] that workers computed from everything in `cuts`."""


def warm_up(source: BatchSource, order: BatchOrder, dynamic_shapes: bool = False) -> None:
    """Finish a blank batch of every shape, so that the data device's functions are traced before step 0.

    With dynamic shapes one batch is enough, of the longest shape.
    """
    for shape in range(len(order.batch_sizes))[-1 if dynamic_shapes else 0 :]:
        source.finish(_blank(source, order, shape))


def seconds_per_batch(source: BatchSource, order: BatchOrder, dynamic_shapes: bool = False) -> float:
    """The seconds that the data device takes for a batch, a mean over blank ones; call `warm_up` first."""
    shapes = range(len(order.batch_sizes))[-1 if dynamic_shapes else 0 :]
    blanks = [_blank(source, order, shape) for shape in shapes]
    began = time.monotonic()
    for blank in blanks:
        source.finish(blank)
    return (time.monotonic() - began) / len(blanks)


def _blank(source: BatchSource, order: BatchOrder, shape: int) -> HostBatch:
    return source.read([Batch(shape, np.zeros(0, np.int64), order.batch_sizes[shape])] * order.workers, 0)


def cut_start(draw: int, count: int, wanted: int) -> int:
    """The start of a random cut of `wanted` of `count` frames, the same for live and cached features."""
    return draw % (count - wanted + 1) if count > wanted else 0


def place_rows(batches: Sequence[Batch], rows: int, share: Optional[range]) -> Dict[int, Tuple[int, int]]:
    """Row to (utterance, place in the step), with `rows` rows for each replica of this process's share."""
    own = share or range(len(batches))
    return {
        (replica - own.start) * rows + row: (int(position), row * len(batches) + replica)
        for replica in own
        for row, position in enumerate(batches[replica].utterances)
    }


def read_elsewhere(batches: Sequence[Batch], share: Optional[range]) -> np.ndarray:
    """The utterances of a step that other processes read, [n]."""
    others = [batch.utterances for place, batch in enumerate(batches) if share and place not in share]
    return np.concatenate([np.zeros(0, np.int64), *others])


def sorted_lost(lost: Mapping[int, Lost]) -> Tuple[Lost, ...]:
    """Lost utterances in the order of their rows."""
    return tuple(lost[row] for row in sorted(lost))
