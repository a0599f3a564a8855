"""Computes the features of a whole split once, into feature stores."""

from pathlib import Path
from typing import Any, Dict, List, Tuple

import attrs
import numpy as np

from xtts.audio.mel import MelSpec
from xtts.pipeline.feature_store import FeatureStore, Progress, Rows
from xtts.pipeline.features import Features, samples_for
from xtts.pipeline.recordings import Cut, Cuts, Recordings, read_padded
from xtts.planning.dataset import Split
from xtts.planning.shapes import ShapePlan
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe


class FeatureBuilder:
    """Fills feature stores on the data device, in the shapes that the run has traced anyway."""

    def __init__(self, recipe: Recipe, part: Split, layout: ShapePlan, features: Features) -> None:
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._layout = layout
        self._features = features
        self._spec = MelSpec.of(recipe.audio)
        self._folder = Path(recipe.run.folder) / "features"
        self._recipe = recipe

    def mels(self, about: str, progress: Progress) -> FeatureStore:
        """The codec's mels, float16 [frames, n_mels]; `about` describes what else they depend on."""
        return self._store("mel", self.recordings.lengths.frames, (self._spec.n_mels,), np.float16, about, progress)

    def references(self, about: str, progress: Progress) -> FeatureStore:
        """Mels for the conditioning encoder, float16 [frames, n_mels]."""
        rows = self.recordings.lengths.frames
        return self._store("reference_mel", rows, (self._spec.n_mels,), np.float16, about, progress)

    def codes(self, about: str, progress: Progress) -> FeatureStore:
        """The codec's codes, int16 [frames / 4]."""
        rows = -(-self.recordings.lengths.frames // FRAMES_PER_CODE)
        return self._store("codes", rows, (), np.int16, about, progress)

    def _store(
        self, kind: str, rows: np.ndarray, shape: Tuple[int, ...], dtype: Any, about: str, progress: Progress
    ) -> FeatureStore:
        description = f"{kind} {attrs.astuple(self._recipe.audio)} {about}"
        store = FeatureStore(self._folder / kind, self.recordings.utterances, rows, shape, dtype, description)
        store.fill(lambda positions: self._compute(kind, rows, positions), progress)
        return store

    def _compute(self, kind: str, rows: np.ndarray, positions: List[int]) -> Dict[int, Rows]:
        computed: Dict[int, Rows] = dict.fromkeys(positions, "it fits in no shape")
        for number, shape in enumerate(self._layout.shapes):
            own = [position for position in positions if self._layout.shape_of[position] == number]
            for first in range(0, len(own), shape.batch_size):
                some = own[first : first + shape.batch_size]
                samples = self.recordings.lengths.samples
                whole = {row: Cut(position, 0, int(samples[position])) for row, position in enumerate(some)}
                # With dynamic shapes blank rows would cost as much as others.
                row_count = len(some) if self._features.dynamic_shapes else shape.batch_size
                cuts = Cuts(row_count, samples_for(shape.mel_frames, self._spec), whole)
                waves, lengths, lost = read_padded(self.recordings, cuts)
                found = getattr(self._features, kind)(waves, lengths).numpy()
                for row, position in enumerate(some):
                    computed[position] = lost[row][1] if row in lost else found[row, : rows[position]]
        return computed
