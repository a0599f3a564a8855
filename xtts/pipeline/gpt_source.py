"""Batches of the GPT: text, codes and a reference voice."""

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frame_count
from xtts.pipeline.feature_store import FeatureStore
from xtts.pipeline.features import Features, reference_size, reference_spec, samples_for
from xtts.pipeline.recordings import Cut, Cuts, Lost, Recordings, read_padded
from xtts.pipeline.references import RandomReferences, Stretch, count_masked, pad_mel
from xtts.pipeline.sources import Arrays, HostBatch, cut_start, place_rows, read_elsewhere, sorted_lost
from xtts.planning.batch_order import CUTS, Batch, random_words
from xtts.planning.dataset import Split
from xtts.planning.shapes import STOPS, Shape, max_shape
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe.schema import Recipe
from xtts.text.tokenizer import Tokenizer


class Voice(NamedTuple):
    """What the reference of a row is cut from."""

    position: int  # of the utterance
    draw: int  # random word for the cut


class GptStores(NamedTuple):
    """The stored features of the GPT's batches, when features are cached."""

    codes: FeatureStore
    references: FeatureStore


class GptSource:
    """Text, codes and a reference voice.

    text [B, T], text_lengths [B], codes [B, C], code_lengths [B], all int32; reference [B, M, n_mels] float32.
    The reference is another recording of the same speaker if there is one, so that it does not leak the target's words;
    or, as XTTS-v2 was trained, a stretch of the utterance itself. Then masked_codes [B, 2] int32 says which codes have
    no loss: those of that stretch.
    With dynamic shapes a batch is as long as its longest member, and blank rows only even out the replicas.
    """

    def __init__(
        self,
        recipe: Recipe,
        part: Split,
        tokenizer: Tokenizer,
        shapes: Sequence[Shape],
        features: Features,
        stores: Optional[GptStores],
        is_random: bool,
        dynamic_shapes: bool = False,
        share: Optional[range] = None,  # of the replicas that this process reads; None: all
    ) -> None:
        self._dynamic_shapes = dynamic_shapes
        self._share = share
        self.recordings = Recordings(part, recipe.audio.sample_rate)
        self._tokenizer = tokenizer
        self._shapes = shapes
        self._features = features
        self._stores = stores
        self._is_random = is_random
        self._seed = recipe.run.seed
        self._spec = MelSpec.of(recipe.audio)
        self._reference = reference_spec(recipe.audio)
        self._references = RandomReferences.of(recipe)
        self._recipe = recipe
        speakers: Dict[str, List[int]] = {}
        for position, utterance in enumerate(part.corpus.utterances):
            speakers.setdefault(utterance.speaker, []).append(position)
        self._same_speaker = [  # by utterance: all recordings of its speaker; only itself where none is named
            speakers[one.speaker] if one.speaker else [position] for position, one in enumerate(part.corpus.utterances)
        ]

    def read(self, batches: Sequence[Batch], number: int) -> HostBatch:
        shape = self._padded_shape(batches)
        if self._stores is None:
            arrays, lost = self._read_live(self.cuts(batches, number))
        else:
            rows = self._row_count(batches, shape)
            arrays, lost = self._look_up(*self._place(batches, number, shape), rows, shape)
        return self._host_batch(batches, number, shape, arrays, lost)

    def cuts(self, batches: Sequence[Batch], number: int) -> Dict[str, Cuts]:
        shape = self._padded_shape(batches)
        reference, _ = reference_size(self._recipe, shape.mel_frames)
        placed, voices = self._place(batches, number, shape)
        rows, lengths = self._row_count(batches, shape), self.recordings.lengths
        spoken = {row: Cut(position, 0, int(lengths.samples[position])) for row, position in placed.items()}
        references = {row: self._cut(voice, reference) for row, voice in voices.items()}
        samples = samples_for(shape.mel_frames, self._spec)
        return {"waves": Cuts(rows, samples, spoken), "reference_waves": Cuts(rows, reference, references)}

    def delivered(self, batches: Sequence[Batch], number: int, features: Arrays) -> HostBatch:
        return self._host_batch(batches, number, self._padded_shape(batches), dict(features), {})

    def finish(self, batch: HostBatch) -> Arrays:
        arrays = dict(batch.arrays)
        if "waves" in arrays:
            arrays["codes"] = self._features.codes(arrays.pop("waves"), arrays.pop("samples"))
            reference_mel = self._features.padded_reference_mel if self._references else self._features.reference_mel
            arrays["reference"] = reference_mel(arrays.pop("reference_waves"), arrays.pop("reference_samples"))
        return arrays

    def name(self, position: int) -> str:
        return self.recordings.utterances[position].id

    def _padded_shape(self, batches: Sequence[Batch]) -> Shape:
        """The shape that a step's batches are padded to; with dynamic shapes that of the longest member."""
        shape = attrs.evolve(self._shapes[batches[0].shape], batch_size=batches[0].rows)
        members = np.concatenate([batch.utterances for batch in batches])
        if not self._dynamic_shapes or not len(members):
            return shape
        lengths = self.recordings.lengths
        return max_shape(
            lengths.text[members], lengths.frames[members], max(len(batch.utterances) for batch in batches)
        )

    def _place(self, batches: Sequence[Batch], number: int, shape: Shape) -> Tuple[Dict[int, int], Dict[int, Voice]]:
        """Row to utterance, and row to what its reference is cut from."""
        found = place_rows(batches, shape.batch_size, self._share)
        every = sum(len(batch.utterances) if self._dynamic_shapes else batch.rows for batch in batches)
        draws = random_words(self._seed, number, CUTS, 2 * every) if self._is_random else np.zeros(2 * every, np.uint64)
        voices = {row: Voice(self._voice(at, int(draws[p])), int(draws[every + p])) for row, (at, p) in found.items()}
        return {row: at for row, (at, _) in found.items()}, voices

    def _row_count(self, batches: Sequence[Batch], shape: Shape) -> int:
        """Rows that this process reads."""
        return shape.batch_size * len(self._share or batches)

    def _host_batch(
        self, batches: Sequence[Batch], number: int, shape: Shape, arrays: Arrays, lost: Mapping[int, Lost]
    ) -> HostBatch:
        placed, voices = self._place(batches, number, shape)
        arrays.update(self._texts(placed, lost, self._row_count(batches, shape), shape))
        text, codes = (arrays[name].astype(np.int64) for name in ("text_lengths", "code_lengths"))
        sentences, masked = int((codes > 0).sum()), 0
        if self._references and self._references.masks:
            arrays["masked_codes"] = self._masked_codes(placed, voices, lost, shape, len(codes))
            masked = count_masked(arrays["masked_codes"], codes)
        counts = np.array([text.sum() + sentences, codes.sum() + (STOPS + 1) * sentences - masked], np.float64)
        own = np.array([at for row, at in placed.items() if row not in lost], np.int64)
        members = np.concatenate([own, read_elsewhere(batches, self._share)])
        frames = int(self.recordings.lengths.frames[members].sum(dtype=np.int64))
        return HostBatch(batches[0].shape, shape, arrays, counts, frames, sorted_lost(lost))

    def _voice(self, position: int, draw: int) -> int:
        """The utterance whose recording is the reference: another of the speaker, or itself when there is no other."""
        recordings = self._same_speaker[position]
        if len(recordings) == 1 or self._recipe.data.reference_from == "utterance":
            return position
        chosen = recordings[draw % (len(recordings) - 1)]
        return chosen if chosen != position else recordings[-1]

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
        waves, lengths, lost = read_padded(self.recordings, cuts["waves"])
        reference_waves, reference_lengths, lost_references = read_padded(self.recordings, cuts["reference_waves"])
        lost = {**lost_references, **lost}
        arrays = {
            "waves": waves,
            "samples": lengths,
            "reference_waves": reference_waves,
            "reference_samples": reference_lengths,
        }
        for array in arrays.values():
            array[list(lost)] = 0  # a row needs both its text and its reference
        return arrays, lost

    def _look_up(
        self, placed: Mapping[int, int], voices: Mapping[int, Voice], rows: int, shape: Shape
    ) -> Tuple[Arrays, Dict[int, Lost]]:
        assert self._stores is not None
        _, frames = reference_size(self._recipe, shape.mel_frames)
        codes = np.zeros((rows, shape.mel_frames // FRAMES_PER_CODE), np.int32)
        reference = np.zeros((rows, frames, self._spec.n_mels), np.float32)
        lost: Dict[int, Lost] = {}
        for row, position in placed.items():
            voice = voices[row]
            for needed, store in ((position, self._stores.codes), (voice.position, self._stores.references)):
                if needed in store.unusable:
                    lost.setdefault(row, (self.name(needed), store.unusable[needed]))
            if row in lost:
                continue
            found = self._stores.codes[position]
            codes[row, : len(found)] = found
            reference[row] = self._cut_mel(self._stores.references[voice.position], frames, voice)
        return {"codes": codes, "reference": reference}, lost

    def _masked_codes(
        self, placed: Mapping[int, int], voices: Mapping[int, Voice], lost: Mapping[int, Lost], shape: Shape, rows: int
    ) -> np.ndarray:
        """The codes of each row that have no loss, as they lie in its own reference: first and last + 1, [B, 2] int32.

        Validation has a loss for all of them, as published, so that it measures the same whatever is masked.
        """
        assert self._references is not None
        masked = np.zeros((rows, 2), np.int32)
        for row, voice in voices.items():
            if self._is_random and row not in lost and voice.position == placed[row]:
                is_last = row + 1 not in placed or (row + 1) % shape.batch_size == 0
                masked[row] = self._references.masked_codes(self._stretch(voice), is_last)
        return masked

    def _stretch(self, voice: Voice) -> Stretch:
        """The stretch of a recording that is the reference, where lengths are random."""
        assert self._references is not None
        whole = int(self.recordings.lengths.samples[voice.position])
        return self._references.stretch(whole, self._spec.hop_length, voice.draw if self._is_random else None)

    def _cut(self, voice: Voice, samples: int) -> Cut:
        """The cut of a reference recording; one that is too short is repeated, unless lengths are random."""
        position, draw = voice
        whole, hop = int(self.recordings.lengths.samples[position]), self._spec.hop_length
        if self._references:
            start, hops = self._stretch(voice)
            return Cut(position, start * hop, min(hops * hop, whole))
        count, most = int(frame_count(whole, self._reference)), int(frame_count(samples, self._reference))
        if count < most:
            return Cut(position, 0, samples)
        start = hop * cut_start(draw, count, most)
        return Cut(position, start, min(samples, whole - start))

    def _cut_mel(self, mel: np.ndarray, count: int, voice: Voice) -> np.ndarray:
        """The same cut of its stored mel."""
        if self._references:
            return pad_mel(mel, self._stretch(voice), count, self._features.mel_norms)
        if len(mel) < count:
            return np.resize(mel, (count, self._spec.n_mels))
        start = cut_start(voice.draw, len(mel), count)
        return mel[start : start + count]
