"""Batches of one stage: the utterances of a step come in; arrays of a shape of the stage go out.

`read` is the host's part: it opens recordings, or looks features up that were stored, and can be called from many
threads. `finish` is the data device's part: what is live is computed there. Which cut of which recording is taken is a
function of (seed, number of the batch, place in the step), so that a batch is the same whenever, in whatever order, and
over however many replicas, it is made. Of several processes each reads the rows of its own share of the replicas.
An utterance that can no longer be read leaves its row blank, and is named.
"""

import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frames
from xtts.pipeline.feature_store import Made, Progress, Store
from xtts.pipeline.features import Features, reference_shape, reference_spec, samples_for
from xtts.pipeline.recordings import Cut, Cuts, Lost, Recordings, padded
from xtts.planning.batch_order import CUTS, Batch, Order, words
from xtts.planning.dataset import Part
from xtts.planning.shapes import STOPS, Layout, Shape, codec_shape, longest
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe
from xtts.text.tokenizer import Tokenizer

Arrays = Dict[str, Any]  # of NumPy, or TensorFlow's once it is finished


@attrs.frozen(eq=False)
class Rows:
    """A batch that was read; those of several replicas, of this process's own, lie one after the other."""

    shape: int  # its place among the stage's shapes
    size: Shape  # what it was brought to: that shape, or where lengths are free a smaller one
    arrays: Arrays
    counts: np.ndarray  # float64: how many numbers each part of the loss is a mean of, of the rows that are here
    frames: int  # of sound, without padding, of all replicas
    lost: Tuple[Lost, ...] = ()  # by which rows are blank


class Source(Protocol):
    """What a feed draws from."""

    def read(self, batches: Sequence[Batch], number: int) -> Rows:
        """The host's part of one step's work, for each replica a batch."""

    def finish(self, rows: Rows) -> Arrays:
        """The data device's part."""

    def name(self, position: int) -> str:
        """The id of an utterance, for people."""


class Divided(Source, Protocol):
    """A source whose sound others can read, and make features of."""

    recordings: Recordings

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        """What has to be heard for a step, under the names of the arrays it becomes."""

    def delivered(self, batches: Sequence[Batch], number: int, made: Arrays) -> Rows:
        """What `read` would give, with features that others have made, of all that `cuts` asked for."""


def try_shapes(source: Source, order: Order, is_free: bool = False) -> None:
    """Make a blank batch of every shape: what the data device computes is traced, and tried, before step 0.

    Where lengths are free one is enough, and the longest is made.
    """
    for shape in range(len(order.batch_sizes))[-1 if is_free else 0 :]:
        source.finish(_blank(source, order, shape))


def seconds_a_batch(source: Source, order: Order, is_free: bool = False) -> float:
    """How long the data device takes for a batch, of those it was tried with before."""
    shapes = range(len(order.batch_sizes))[-1 if is_free else 0 :]
    blanks = [_blank(source, order, shape) for shape in shapes]
    began = time.monotonic()
    for blank in blanks:
        source.finish(blank)
    return (time.monotonic() - began) / len(blanks)


def _blank(source: Source, order: Order, shape: int) -> Rows:
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


class CodecSource:
    """Cuts of one length: mel [B, segment, n_mels] and lengths [B] in frames, int32."""

    def __init__(
        self,
        recipe: Recipe,
        part: Part,
        features: Features,
        store: Optional[Store],
        is_random: bool,
        share: Optional[range] = None,  # of the replicas; None: all
    ) -> None:
        self._shape, self._share = codec_shape(recipe.codec), share
        self._segment = self._shape.mel_frames
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._features, self._store, self._is_random = features, store, is_random
        self._seed, self._spec = recipe.run.seed, MelSpec.of(recipe.audio)

    def read(self, batches: Sequence[Batch], number: int) -> Rows:
        if self._store is None:
            waves, samples, lost = padded(self.recordings, self.cuts(batches, number)["waves"])
            return self._rows(batches, {"waves": waves, "samples": samples}, samples, lost)
        wanted = self._wanted(batches, number)
        arrays = self._cut_mels(wanted, self._count(batches))
        bad = self._store.unusable
        lost = {row: (self.name(at), bad[at]) for row, (at, _) in wanted.items() if at in bad}
        return self._rows(batches, arrays, None, lost)

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        of = {row: self._cut(position, draw) for row, (position, draw) in self._wanted(batches, number).items()}
        return {"waves": Cuts(self._count(batches), samples_for(self._segment, self._spec), of)}

    def delivered(self, batches: Sequence[Batch], number: int, made: Arrays) -> Rows:
        return self._rows(batches, dict(made), self.cuts(batches, number)["waves"].lengths, {})

    def finish(self, rows: Rows) -> Arrays:
        arrays = dict(rows.arrays)
        if "waves" in arrays:
            arrays["mel"] = self._features.mel(arrays.pop("waves"), arrays.pop("samples"))
        return arrays

    def name(self, position: int) -> str:
        return self.recordings.utterances[position].id

    def _wanted(self, batches: Sequence[Batch], number: int) -> Dict[int, Tuple[int, int]]:
        """Row to (utterance, a draw)."""
        every = sum(batch.rows for batch in batches)
        draws = words(self._seed, number, CUTS, every) if self._is_random else np.zeros(every, np.uint64)
        placed = _placed(batches, batches[0].rows, self._share)
        return {row: (position, int(draws[place])) for row, (position, place) in placed.items()}

    def _count(self, batches: Sequence[Batch]) -> int:
        """Rows that are read here."""
        return batches[0].rows * len(self._share or batches)

    def _cut(self, position: int, draw: int) -> Cut:
        samples = int(self.recordings.lengths.samples[position])
        start = self._spec.hop_length * _first(draw, int(frames(samples, self._spec)), self._segment)
        return Cut(position, start, min(samples - start, samples_for(self._segment, self._spec)))

    def _rows(
        self, batches: Sequence[Batch], arrays: Arrays, samples: Optional[np.ndarray], lost: Mapping[int, Lost]
    ) -> Rows:
        if samples is not None:
            arrays["lengths"] = np.where(samples > 0, frames(samples, self._spec), 0).astype(np.int32)
        sound = arrays["lengths"].astype(np.int64)
        codes = -(-sound // FRAMES_PER_CODE)
        counts = np.array([sound.sum(), codes.sum()], np.float64)
        size = attrs.evolve(self._shape, batch_size=batches[0].rows)
        others = _elsewhere(batches, self._share)
        spoken = int(sound.sum()) + int(np.minimum(self.recordings.lengths.frames[others], self._segment).sum())
        return Rows(0, size, arrays, counts, spoken, _in_order(lost))

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


class GptStores(NamedTuple):
    """What the GPT's batches are looked up in when features are cached."""

    codes: Store
    references: Store


class GptSource:
    """Text, codes and a reference voice.

    text [B, T], text_lengths [B], codes [B, C], code_lengths [B], all int32; reference [B, M, n_mels].
    The voice is that of another recording of the same speaker where there is one: what is said in it must not help.
    With free lengths a batch is as long as its longest member, and blank rows only give each replica as many.
    """

    def __init__(
        self,
        recipe: Recipe,
        part: Part,
        tokenizer: Tokenizer,
        shapes: Sequence[Shape],
        features: Features,
        stores: Optional[GptStores],
        is_random: bool,
        is_free: bool = False,
        share: Optional[range] = None,  # of the replicas; None: all
    ) -> None:
        self._is_free, self._share = is_free, share
        self.recordings, self._tokenizer, self._shapes = Recordings(part, recipe.audio.sample_rate), tokenizer, shapes
        self._features, self._stores, self._is_random = features, stores, is_random
        self._seed, self._spec = recipe.run.seed, MelSpec.of(recipe.audio)
        self._reference, self._recipe = reference_spec(recipe.audio), recipe
        speakers: Dict[str, List[int]] = {}
        for position, utterance in enumerate(part.corpus.utterances):
            speakers.setdefault(utterance.speaker, []).append(position)
        self._fellows = [  # of an utterance: the recordings of its speaker, where it names one
            speakers[one.speaker] if one.speaker else [position] for position, one in enumerate(part.corpus.utterances)
        ]

    def read(self, batches: Sequence[Batch], number: int) -> Rows:
        shape = self._brought_to(batches)
        if self._stores is None:
            arrays, lost = self._read_live(self.cuts(batches, number))
        else:
            rows = self._count(batches, shape)
            arrays, lost = self._look_up(*self._placed(batches, number, shape), rows, shape)
        return self._rows(batches, shape, arrays, lost)

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        shape = self._brought_to(batches)
        reference, _ = self._reference_shape(shape)
        placed, voices = self._placed(batches, number, shape)
        rows, lengths = self._count(batches, shape), self.recordings.lengths
        whole = {row: Cut(position, 0, int(lengths.samples[position])) for row, position in placed.items()}
        heard = {row: self._cut(voice, reference, draw) for row, (voice, draw) in voices.items()}
        samples = samples_for(shape.mel_frames, self._spec)
        return {"waves": Cuts(rows, samples, whole), "reference_waves": Cuts(rows, reference, heard)}

    def delivered(self, batches: Sequence[Batch], number: int, made: Arrays) -> Rows:
        return self._rows(batches, self._brought_to(batches), dict(made), {})

    def finish(self, rows: Rows) -> Arrays:
        arrays = dict(rows.arrays)
        if "waves" in arrays:
            arrays["codes"] = self._features.codes(arrays.pop("waves"), arrays.pop("samples"))
            arrays["reference"] = self._features.reference_mel(
                arrays.pop("reference_waves"), arrays.pop("reference_samples")
            )
        return arrays

    def name(self, position: int) -> str:
        return self.recordings.utterances[position].id

    def _brought_to(self, batches: Sequence[Batch]) -> Shape:
        """What a step's batches are brought to; where lengths are free, a blank one to the largest of its pool."""
        shape = attrs.evolve(self._shapes[batches[0].shape], batch_size=batches[0].rows)
        members = np.concatenate([batch.utterances for batch in batches])
        if not self._is_free or not len(members):
            return shape
        lengths = self.recordings.lengths
        return longest(lengths.text[members], lengths.frames[members], max(len(batch.utterances) for batch in batches))

    def _reference_shape(self, shape: Shape) -> Tuple[int, int]:
        return reference_shape(self._recipe.audio, self._recipe.data.reference_seconds, shape.mel_frames)

    def _placed(
        self, batches: Sequence[Batch], number: int, shape: Shape
    ) -> Tuple[Dict[int, int], Dict[int, Tuple[int, int]]]:
        """Which utterance is in which row, and with which voice: another's, and a draw."""
        found = _placed(batches, shape.batch_size, self._share)
        every = sum(len(batch.utterances) if self._is_free else batch.rows for batch in batches)
        draws = words(self._seed, number, CUTS, 2 * every) if self._is_random else np.zeros(2 * every, np.uint64)
        voices = {row: (self._voice(at, int(draws[p])), int(draws[every + p])) for row, (at, p) in found.items()}
        return {row: at for row, (at, _) in found.items()}, voices

    def _count(self, batches: Sequence[Batch], shape: Shape) -> int:
        """Rows that are read here."""
        return shape.batch_size * len(self._share or batches)

    def _rows(self, batches: Sequence[Batch], shape: Shape, arrays: Arrays, lost: Mapping[int, Lost]) -> Rows:
        found = _placed(batches, shape.batch_size, self._share)
        placed = {row: at for row, (at, _) in found.items()}
        arrays.update(self._texts(placed, lost, self._count(batches, shape), shape))
        text, codes = (arrays[name].astype(np.int64) for name in ("text_lengths", "code_lengths"))
        spoken = int((codes > 0).sum())
        counts = np.array([text.sum() + spoken, codes.sum() + (STOPS + 1) * spoken], np.float64)
        own = np.array([at for row, at in placed.items() if row not in lost], np.int64)
        every_one = np.concatenate([own, _elsewhere(batches, self._share)])
        sound = int(self.recordings.lengths.frames[every_one].sum(dtype=np.int64))
        return Rows(batches[0].shape, shape, arrays, counts, sound, _in_order(lost))

    def _voice(self, position: int, draw: int) -> int:
        """Whose voice is heard: a fellow of the utterance, itself when it has none."""
        fellows = self._fellows[position]
        if len(fellows) == 1:
            return position
        chosen = fellows[draw % (len(fellows) - 1)]
        return chosen if chosen != position else fellows[-1]

    def _texts(self, placed: Mapping[int, int], lost: Mapping[int, Lost], rows: int, shape: Shape) -> Arrays:
        text = np.zeros((rows, shape.text_length), np.int32)
        text_lengths, code_lengths = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        for row, position in placed.items():
            if row in lost:
                continue
            utterance = self.recordings.utterances[position]
            ids = self._tokenizer.encode(utterance.text, utterance.language)
            text[row, : len(ids)], text_lengths[row] = ids, len(ids)
            code_lengths[row] = -(-int(self.recordings.lengths.frames[position]) // FRAMES_PER_CODE)
        return {"text": text, "text_lengths": text_lengths, "code_lengths": code_lengths}

    def _read_live(self, cuts: Mapping[str, Cuts]) -> Tuple[Arrays, Dict[int, Lost]]:
        waves, lengths, lost = padded(self.recordings, cuts["waves"])
        voice_waves, voice_lengths, voiceless = padded(self.recordings, cuts["reference_waves"])
        lost = {**voiceless, **lost}
        arrays = {
            "waves": waves,
            "samples": lengths,
            "reference_waves": voice_waves,
            "reference_samples": voice_lengths,
        }
        for array in arrays.values():
            array[list(lost)] = 0  # what there is of a row that lacks the other half
        return arrays, lost

    def _look_up(
        self, placed: Mapping[int, int], voices: Mapping[int, Tuple[int, int]], rows: int, shape: Shape
    ) -> Tuple[Arrays, Dict[int, Lost]]:
        assert self._stores is not None
        _, frames = self._reference_shape(shape)
        codes = np.zeros((rows, shape.mel_frames // FRAMES_PER_CODE), np.int32)
        reference = np.zeros((rows, frames, self._spec.n_mels), np.float32)
        lost: Dict[int, Lost] = {}
        for row, position in placed.items():
            voice, draw = voices[row]
            for needed, store in ((position, self._stores.codes), (voice, self._stores.references)):
                if needed in store.unusable:
                    lost.setdefault(row, (self.name(needed), store.unusable[needed]))
            if row in lost:
                continue
            found = self._stores.codes[position]
            codes[row, : len(found)] = found
            reference[row] = self._cut_mel(self._stores.references[voice], frames, draw)
        return {"codes": codes, "reference": reference}, lost

    def _cut(self, position: int, samples: int, draw: int) -> Cut:
        """As much of a voice as is heard; what is too short is repeated."""
        whole = int(self.recordings.lengths.samples[position])
        count, most = int(frames(whole, self._reference)), int(frames(samples, self._reference))
        if count < most:
            return Cut(position, 0, samples)
        start = self._spec.hop_length * _first(draw, count, most)
        return Cut(position, start, min(samples, whole - start))

    def _cut_mel(self, mel: np.ndarray, count: int, draw: int) -> np.ndarray:
        """The same of its mel."""
        if len(mel) < count:
            return np.resize(mel, (count, self._spec.n_mels))
        start = _first(draw, len(mel), count)
        return mel[start : start + count]


def _in_order(lost: Mapping[int, Lost]) -> Tuple[Lost, ...]:
    return tuple(lost[row] for row in sorted(lost))


class Filling:
    """Fills stores: the recordings of a part go through the data device in the shapes that the run has anyway."""

    def __init__(self, recipe: Recipe, part: Part, layout: Layout, features: Features) -> None:
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._layout, self._features, self._spec = layout, features, MelSpec.of(recipe.audio)
        self._folder = Path(recipe.run.folder) / "features"
        self._recipe = recipe

    def mels(self, about: str, progress: Progress) -> Store:
        return self._filled("mel", self.recordings.lengths.frames, (self._spec.n_mels,), np.float16, about, progress)

    def references(self, about: str, progress: Progress) -> Store:
        rows = self.recordings.lengths.frames
        return self._filled("reference_mel", rows, (self._spec.n_mels,), np.float16, about, progress)

    def codes(self, about: str, progress: Progress) -> Store:
        rows = -(-self.recordings.lengths.frames // FRAMES_PER_CODE)
        return self._filled("codes", rows, (), np.int16, about, progress)

    def _filled(
        self, kind: str, rows: np.ndarray, shape: Tuple[int, ...], dtype: Any, about: str, progress: Progress
    ) -> Store:
        described = f"{kind} {attrs.astuple(self._recipe.audio)} {about}"
        store = Store(self._folder / kind, self.recordings.utterances, rows, shape, dtype, described)
        store.fill(lambda positions: self._made(kind, rows, positions), progress)
        return store

    def _made(self, kind: str, rows: np.ndarray, positions: List[int]) -> Dict[int, Made]:
        made: Dict[int, Made] = dict.fromkeys(positions, "it fits in no shape")
        for number, shape in enumerate(self._layout.shapes):
            own = [position for position in positions if self._layout.shape_of[position] == number]
            for first in range(0, len(own), shape.batch_size):
                some = own[first : first + shape.batch_size]
                whole = self.recordings.lengths.samples
                wanted = {row: Cut(position, 0, int(whole[position])) for row, position in enumerate(some)}
                count = len(some) if self._features.is_free else shape.batch_size  # blank rows cost as much as others
                cuts = Cuts(count, samples_for(shape.mel_frames, self._spec), wanted)
                waves, lengths, lost = padded(self.recordings, cuts)
                found = getattr(self._features, kind)(waves, lengths).numpy()
                for row, position in enumerate(some):
                    made[position] = lost[row][1] if row in lost else found[row, : rows[position]]
        return made
