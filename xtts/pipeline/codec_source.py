"""Batches of the codec: cuts of one length."""

from typing import Dict, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frame_count
from xtts.pipeline.feature_store import FeatureStore
from xtts.pipeline.features import Features, samples_for
from xtts.pipeline.recordings import Cut, Cuts, Lost, Recordings, read_padded
from xtts.pipeline.sources import Arrays, HostBatch, _elsewhere, _first, _in_order, _placed
from xtts.planning.batch_order import CUTS, Batch, random_words
from xtts.planning.dataset import Split
from xtts.planning.shapes import codec_shape
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe


class CodecSource:
    """Cuts of one length: mel [B, segment, n_mels] and lengths [B] in frames, int32."""

    def __init__(
        self,
        recipe: Recipe,
        part: Split,
        features: Features,
        store: Optional[FeatureStore],
        is_random: bool,
        share: Optional[range] = None,  # of the replicas; None: all
    ) -> None:
        self._shape, self._share = codec_shape(recipe.codec), share
        self._segment = self._shape.mel_frames
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._features, self._store, self._is_random = features, store, is_random
        self._seed, self._spec = recipe.run.seed, MelSpec.of(recipe.audio)

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        if self._store is None:
            waves, samples, lost = read_padded(self.recordings, self.cuts(batches, number)["waves"])
            return self._rows(batches, {"waves": waves, "samples": samples}, samples, lost)
        wanted = self._wanted(batches, number)
        arrays = self._cut_mels(wanted, self._count(batches))
        bad = self._store.unusable
        lost = {row: (self.name(at), bad[at]) for row, (at, _) in wanted.items() if at in bad}
        return self._rows(batches, arrays, None, lost)

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        of = {row: self._cut(position, draw) for row, (position, draw) in self._wanted(batches, number).items()}
        return {"waves": Cuts(self._count(batches), samples_for(self._segment, self._spec), of)}

    def delivered(self, batches: Sequence[Batch], number: int, made: Arrays) -> HostBatch:
        return self._rows(batches, dict(made), self.cuts(batches, number)["waves"].lengths, {})

    def finish(self, rows: HostBatch) -> Arrays:
        arrays = dict(rows.arrays)
        if "waves" in arrays:
            arrays["mel"] = self._features.mel(arrays.pop("waves"), arrays.pop("samples"))
        return arrays

    def name(self, position: int) -> str:
        return self.recordings.utterances[position].id

    def _wanted(self, batches: Sequence[Batch], number: int) -> Dict[int, Tuple[int, int]]:
        """Row to (utterance, a draw)."""
        every = sum(batch.rows for batch in batches)
        draws = random_words(self._seed, number, CUTS, every) if self._is_random else np.zeros(every, np.uint64)
        placed = _placed(batches, batches[0].rows, self._share)
        return {row: (position, int(draws[place])) for row, (position, place) in placed.items()}

    def _count(self, batches: Sequence[Batch]) -> int:
        """Rows that are read here."""
        return batches[0].rows * len(self._share or batches)

    def _cut(self, position: int, draw: int) -> Cut:
        samples = int(self.recordings.lengths.samples[position])
        start = self._spec.hop_length * _first(draw, int(frame_count(samples, self._spec)), self._segment)
        return Cut(position, start, min(samples - start, samples_for(self._segment, self._spec)))

    def _rows(
        self, batches: Sequence[Batch], arrays: Arrays, samples: Optional[np.ndarray], lost: Mapping[int, Lost]
    ) -> HostBatch:
        if samples is not None:
            arrays["lengths"] = np.where(samples > 0, frame_count(samples, self._spec), 0).astype(np.int32)
        sound = arrays["lengths"].astype(np.int64)
        codes = -(-sound // FRAMES_PER_CODE)
        counts = np.array([sound.sum(), codes.sum()], np.float64)
        size = attrs.evolve(self._shape, batch_size=batches[0].rows)
        others = _elsewhere(batches, self._share)
        spoken = int(sound.sum()) + int(np.minimum(self.recordings.lengths.frames[others], self._segment).sum())
        return HostBatch(0, size, arrays, counts, spoken, _in_order(lost))

    def _cut_mels(self, wanted: Mapping[int, Tuple[int, int]], rows: int) -> Arrays:
        assert self._store is not None
        mels = np.zeros((rows, self._segment, self._spec.n_mels), np.float32)
        lengths = np.zeros(rows, np.int32)
        for row, (position, draw) in wanted.items():
            if position in self._store.unusable:
                continue
            mel = self._store[position]
            start = _first(draw, len(mel), self._segment)
            cut = mel[start : start + self._segment]
            mels[row, : len(cut)], lengths[row] = cut, len(cut)
        return {"mel": mels, "lengths": lengths}
