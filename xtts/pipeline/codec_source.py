"""Batches of the codec: segments of a fixed length, cut from recordings."""

from typing import Dict, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frame_count
from xtts.pipeline.feature_store import FeatureStore
from xtts.pipeline.features import Features, samples_for
from xtts.pipeline.recordings import Cut, Cuts, Lost, Recordings, read_padded
from xtts.pipeline.sources import Arrays, HostBatch, cut_start, place_rows, read_elsewhere, sorted_lost
from xtts.planning.batch_order import CUTS, Batch, random_words
from xtts.planning.dataset import Split
from xtts.planning.shapes import codec_shape
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe


class CodecSource:
    """Segments of one length: mel [B, segment, n_mels] float32 and lengths [B] in frames, int32."""

    def __init__(
        self,
        recipe: Recipe,
        part: Split,
        features: Features,
        store: Optional[FeatureStore],
        is_random: bool,
        share: Optional[range] = None,  # of the replicas that this process reads; None: all
    ) -> None:
        self._shape = codec_shape(recipe.codec)
        self._share = share
        self._segment = self._shape.mel_frames  # frames
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._features = features
        self._store = store
        self._is_random = is_random
        self._seed = recipe.run.seed
        self._spec = MelSpec.of(recipe.audio)

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        if self._store is None:
            waves, samples, lost = read_padded(self.recordings, self.cuts(batches, number)["waves"])
            return self._host_batch(batches, {"waves": waves, "samples": samples}, samples, lost)
        draws = self._draws(batches, number)
        arrays = self._cut_mels(draws, self._row_count(batches))
        unusable = self._store.unusable
        lost = {row: (self.name(at), unusable[at]) for row, (at, _) in draws.items() if at in unusable}
        return self._host_batch(batches, arrays, None, lost)

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        by_row = {row: self._cut(position, draw) for row, (position, draw) in self._draws(batches, number).items()}
        return {"waves": Cuts(self._row_count(batches), samples_for(self._segment, self._spec), by_row)}

    def delivered(self, batches: Sequence[Batch], number: int, features: Arrays) -> HostBatch:
        return self._host_batch(batches, dict(features), self.cuts(batches, number)["waves"].lengths, {})

    def finish(self, batch: HostBatch) -> Arrays:
        arrays = dict(batch.arrays)
        if "waves" in arrays:
            arrays["mel"] = self._features.mel(arrays.pop("waves"), arrays.pop("samples"))
        return arrays

    def name(self, position: int) -> str:
        return self.recordings.utterances[position].id

    def _draws(self, batches: Sequence[Batch], number: int) -> Dict[int, Tuple[int, int]]:
        """Row to (utterance, random word), by which the cut is chosen."""
        every = sum(batch.rows for batch in batches)
        draws = random_words(self._seed, number, CUTS, every) if self._is_random else np.zeros(every, np.uint64)
        rows = place_rows(batches, batches[0].rows, self._share)
        return {row: (position, int(draws[place])) for row, (position, place) in rows.items()}

    def _row_count(self, batches: Sequence[Batch]) -> int:
        """Rows that this process reads."""
        return batches[0].rows * len(self._share or batches)

    def _cut(self, position: int, draw: int) -> Cut:
        samples = int(self.recordings.lengths.samples[position])
        start = self._spec.hop_length * cut_start(draw, int(frame_count(samples, self._spec)), self._segment)
        return Cut(position, start, min(samples - start, samples_for(self._segment, self._spec)))

    def _host_batch(
        self, batches: Sequence[Batch], arrays: Arrays, samples: Optional[np.ndarray], lost: Mapping[int, Lost]
    ) -> HostBatch:
        if samples is not None:
            arrays["lengths"] = np.where(samples > 0, frame_count(samples, self._spec), 0).astype(np.int32)
        frames = arrays["lengths"].astype(np.int64)
        codes = -(-frames // FRAMES_PER_CODE)
        counts = np.array([frames.sum(), codes.sum()], np.float64)
        size = attrs.evolve(self._shape, batch_size=batches[0].rows)
        others = read_elsewhere(batches, self._share)
        total = int(frames.sum()) + int(np.minimum(self.recordings.lengths.frames[others], self._segment).sum())
        return HostBatch(0, size, arrays, counts, total, sorted_lost(lost))

    def _cut_mels(self, draws: Mapping[int, Tuple[int, int]], rows: int) -> Arrays:
        assert self._store is not None
        mels = np.zeros((rows, self._segment, self._spec.n_mels), np.float32)
        lengths = np.zeros(rows, np.int32)
        for row, (position, draw) in draws.items():
            if position in self._store.unusable:
                continue
            mel = self._store[position]
            start = cut_start(draw, len(mel), self._segment)
            cut = mel[start : start + self._segment]
            mels[row, : len(cut)], lengths[row] = cut, len(cut)
        return {"mel": mels, "lengths": lengths}
