"""The GPT stage: trains the transformer to predict the codec's codes from a reference voice and a text."""

from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from xtts.files import json_digest
from xtts.pipeline.references import RandomReferences
from xtts.planning.batch_order import BatchOrder
from xtts.planning.dataset import Dataset, Split
from xtts.planning.memory import ATTENTION_FLOATS, BLOCK_FLOATS, COPIES, FLOAT, mel_floats
from xtts.planning.plan import Plan
from xtts.planning.shapes import Shape, ShapePlan, code_count, joint_length
from xtts.planning.sizes import FRAMES_PER_CODE, LATENTS, SIZES, ModelSize
from xtts.progress import ProgressBar
from xtts.recipe.schema import Recipe
from xtts.text.tokenizer import Tokenizer
from xtts.training.stages.gpt_samples import GptSamples
from xtts.training.stages.samples import SampleWriter
from xtts.training.stages.stage import Batch, Stage, StageLosses, StepPiece, Tensor, Tensors, tensor_digest
from xtts.weights import assignment, model_folder
from xtts.weights.layout import PREFIXES

if TYPE_CHECKING:
    from xtts.model.codec import Codec
    from xtts.model.gpt import Tokens
    from xtts.pipeline.features import Features
    from xtts.pipeline.gpt_source import GptSource, GptStores
    from xtts.training.context import StageSetup, TrainingContext


class GptStage(Stage):
    """Training of the GPT."""

    name: ClassVar[str] = "gpt"
    needs: ClassVar[Tuple[str, ...]] = ("codec",)
    completes_model: ClassVar[bool] = True

    def has_dynamic_shapes(self, recipe: Recipe) -> bool:
        return recipe.data.shapes == "relaxed"

    def activations(self, recipe: Recipe, size: ModelSize, text_tokens: int, shape: Shape) -> int:
        gpt, joint, frames = size.gpt, shape.joint_length, _reference_frames(recipe, shape)
        blocks = gpt.layers * (BLOCK_FLOATS * gpt.width * joint + COPIES * gpt.heads * joint**2)
        reference = gpt.conditioning_blocks * (ATTENTION_FLOATS * gpt.width * frames + COPIES * gpt.heads * frames**2)
        keys, inner = frames + LATENTS, gpt.perceiver_heads * gpt.perceiver_head_width
        resampler = (
            2 * inner * keys + COPIES * gpt.perceiver_heads * LATENTS * keys + BLOCK_FLOATS * gpt.width * LATENTS
        )
        text, codes = shape.text_length + 2, int(code_count(shape.mel_frames)) + 2
        logits = COPIES * (text_tokens * text + size.codec.audio_tokens * codes)
        return FLOAT * shape.batch_size * (blocks + reference + gpt.perceiver_layers * resampler + logits)

    def feature_bytes(self, recipe: Recipe, size: ModelSize, shape: Shape) -> int:
        """Mels, the codec's encoder, and the mels of reference voices."""
        floats = mel_floats(recipe.audio, shape.mel_frames, recipe.audio.n_fft)
        floats += mel_floats(recipe.audio, _reference_frames(recipe, shape), 2 * recipe.audio.n_fft)
        codes = shape.mel_frames // FRAMES_PER_CODE
        floats += codes * (4 * 2 * size.codec.hidden + size.codec.codes)
        return FLOAT * shape.batch_size * floats

    def batch_bytes(self, recipe: Recipe, shape: Shape) -> int:
        """Text, codes and the mels of reference voices."""
        row = shape.text_length + int(code_count(shape.mel_frames)) + 3
        return FLOAT * shape.batch_size * (row + _reference_frames(recipe, shape) * recipe.audio.n_mels)

    def facts(self, dataset: Dataset, plan: Plan) -> Dict[str, str]:
        spoken = [[one.text, one.speaker, one.language] for one in dataset.train.corpus.utterances]
        return {
            "the texts": json_digest(spoken),
            "the tokenizer": dataset.tokenizer.digest(),
            "the order of batches": plan.order.digest(),
        }

    def build(self, context: "TrainingContext", needed: Mapping[str, Tensors]) -> "StageSetup":
        from xtts.training.context import MAX_HELD_OUT, HeldOut, StageSetup, held_out_shapes, make_optimizer

        recipe, layout, replicas = context.recipe, context.plan.layout, context.placement.replicas
        codecs = _frozen_codecs(context, needed["codec"])
        with context.strategy.scope():
            trained = self._model(context)
            optimizer = make_optimizer(context, self, trained, recipe.train.ema_decay)
        features = context.features(codecs)

        held = context.held_out
        held_layout = held_out_shapes(recipe, held, replicas)
        held_shape = held_layout.shapes[0]
        samples = None
        if context.collectives.is_chief:
            writer = SampleWriter.of(context, self.name)
            samples = GptSamples.prepare(context, writer, features[0], trained.model, codecs[0])
        stores = self._stores(context, needed, context.dataset.train, layout, features[0])
        held_stores = self._stores(context, needed, held, held_layout, features[0])
        return StageSetup(
            context=context,
            stage=self,
            trained=trained,
            optimizer=optimizer,
            order=context.plan.order,
            sources=[
                self._source(context, context.dataset.train, layout, own, stores, is_random=True)
                for own in features[: 1 if stores else None]
            ],
            remote_features=_remote_features(context, codecs[0]),
            held_out=HeldOut(
                shape=held_shape,
                order=BatchOrder(
                    held_layout.shape_of[:MAX_HELD_OUT], (held_shape.batch_size,), recipe.run.seed, replicas
                ),
                source=self._source(context, held, held_layout, features[0], held_stores, is_random=False),
            ),
            samples=samples,
            feature_functions=[function for own in features for function in own.functions],
        )

    def _stores(
        self,
        context: "TrainingContext",
        needed: Mapping[str, Tensors],
        split: Split,
        layout: ShapePlan,
        features: "Features",
    ) -> "Optional[GptStores]":
        """Cached codes and reference mels, computed where they are missing; None if features are computed live."""
        from xtts.pipeline.feature_builder import FeatureBuilder
        from xtts.pipeline.gpt_source import GptStores

        if not context.is_cached:
            return None
        builder = FeatureBuilder(context.recipe, split, layout, features)
        about = json_digest(context.stats.tolist())
        with context.collectives.chief_first(), ProgressBar("making codes") as bar:
            codes = builder.codes(f"{about} {tensor_digest(needed['codec'])}", bar)
        with context.collectives.chief_first(), ProgressBar("making reference mels") as bar:
            return GptStores(codes, builder.references(about, bar))

    def _source(
        self,
        context: "TrainingContext",
        split: Split,
        layout: ShapePlan,
        features: "Features",
        stores: "Optional[GptStores]",
        is_random: bool,
    ) -> "GptSource":
        """Batches for training (`is_random`), or for validation: of one static shape, and always the same."""
        from xtts.pipeline.gpt_source import GptSource

        return GptSource(
            context.recipe,
            split,
            context.dataset.tokenizer,
            layout.shapes,
            features,
            stores,
            is_random,
            is_random and self.has_dynamic_shapes(context.recipe),
            context.placement.share,
        )

    def _model(self, context: "TrainingContext") -> "TrainableGpt":
        """The GPT with random weights, or with the published ones that the recipe starts from."""
        recipe, tokenizer, shapes = context.recipe, context.dataset.tokenizer, context.plan.layout.shapes
        use_stop_token = model_folder.is_published(recipe.model.weights)
        if context.published is None:
            return TrainableGpt(recipe, tokenizer, shapes, None, use_stop_token, context.plan.tokens_per_code)
        text_tokens = len(context.published[assignment.TEXT_ROWS[0]])
        trained = TrainableGpt(recipe, tokenizer, shapes, text_tokens, use_stop_token, is_loaded=True)
        own = assignment.extend_vocabulary(  # adds rows for tokens that only this run's vocabulary has
            self.own_weights(context.published), trained.model.tokens.text, np.random.default_rng(recipe.run.seed)
        )
        assignment.load_weights(trained.model, own, self.prefix)
        return trained


class TrainableGpt:
    """The GPT with its losses."""

    name = GptStage.name
    parts: Tuple[str, ...] = ("text", "codes")

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        shapes: Tuple[Shape, ...],
        text_tokens: Optional[int] = None,
        use_stop_token: bool = False,
        tokens_per_code: Optional[float] = None,
        is_loaded: bool = False,  # the caller will load the weights, so none are drawn
    ) -> None:
        import tensorflow as tf

        from xtts.model.gpt import TEXT_LOSS_WEIGHT, Gpt

        self._recipe = recipe
        self._dtype = tf.as_dtype(recipe.train.precision)
        self.weights: Tuple[float, ...] = (TEXT_LOSS_WEIGHT, 1.0)
        self.shapes = shapes
        self.dynamic_shapes = recipe.data.shapes == "relaxed"
        self.model = Gpt(
            SIZES[recipe.model.size].gpt,
            gpt_tokens(recipe, tokenizer, text_tokens, use_stop_token),
            None if is_loaded else np.random.default_rng([recipe.run.seed, 1]),
            recipe.audio.n_mels,
            tokens_per_code,
        )

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        import tensorflow as tf

        from xtts.pipeline.features import reference_size

        audio, rows = self._recipe.audio, shape.batch_size * replicas
        _, frames = reference_size(self._recipe, shape.mel_frames)
        specs = {
            "text": tf.TensorSpec([rows, shape.text_length], tf.int32),
            "text_lengths": tf.TensorSpec([rows], tf.int32),
            "codes": tf.TensorSpec([rows, shape.mel_frames // FRAMES_PER_CODE], tf.int32),
            "code_lengths": tf.TensorSpec([rows], tf.int32),
            "reference": tf.TensorSpec([rows, frames, audio.n_mels], tf.float32),
        }
        references = RandomReferences.of(self._recipe)
        if references and references.masks:
            specs["masked_codes"] = tf.TensorSpec([rows, 2], tf.int32)
        return specs

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        import tensorflow as tf

        found, _ = self.model.losses(
            batch["text"],
            batch["text_lengths"],
            batch["codes"],
            batch["code_lengths"],
            tf.cast(batch["reference"], self._dtype),
            joint_length=shape.joint_length if shape else _longest(batch),
            dropout=self._recipe.train.dropout if training else 0.0,
            seed=seed,
            masked_codes=batch.get("masked_codes"),
        )
        return StageLosses(tf.stack([found.text, found.codes]), tf.stack([found.text_tokens, found.code_tokens]), ())

    def statistics(self, extra: Any, seed: Tensor, piece: StepPiece) -> List[Tensor]:
        return []

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        return []

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        """Do nothing: every weight has a gradient."""


def gpt_tokens(
    recipe: Recipe, tokenizer: Tokenizer, text_tokens: Optional[int] = None, use_stop_token: bool = False
) -> "Tokens":
    """The GPT's vocabulary sizes and special tokens; published weights may have more text tokens than the tokenizer."""
    from xtts.model.gpt import Tokens

    codec = SIZES[recipe.model.size].codec
    return Tokens(
        text=max(text_tokens or 0, tokenizer.size),
        audio=codec.audio_tokens,
        text_start=tokenizer.start,
        text_stop=tokenizer.stop,
        audio_start=codec.codes,
        audio_stop=codec.codes + 1,
        use_stop_token=use_stop_token,
    )


def _frozen_codecs(context: "TrainingContext", tensors: Tensors) -> List["Codec"]:
    """A copy of the trained codec on each data device."""
    import tensorflow as tf

    from xtts.model.codec import Codec

    recipe, codecs = context.recipe, []
    for device in context.placement.data_devices:
        with tf.device(device):
            codec = Codec(SIZES[recipe.model.size].codec, recipe.audio.n_mels, None)
            assignment.load_weights(codec, tensors, PREFIXES["codec"])
        codecs.append(codec)
    return codecs


def _remote_features(context: "TrainingContext", codec: "Codec") -> Any:
    """The feature functions for workers of a tf.data service."""
    if context.service is None:
        return {}
    from xtts.model.layers import variables_to_constants
    from xtts.model.mel import transform_for
    from xtts.pipeline.features import feature_functions

    made = feature_functions(context.recipe.audio, context.stats, variables_to_constants(codec), transform_for("CPU"))
    reference_mel = made["padded_reference_mel" if RandomReferences.of(context.recipe) else "reference_mel"]
    return {"codes": ("waves", made["codes"]), "reference": ("reference_waves", reference_mel)}


def _longest(batch: Batch) -> Tensor:
    """The joint length of the longest row, at least that of the padded text without codes: all rows may be blank."""
    import tensorflow as tf

    from xtts.model.layers import shape_list

    rows = joint_length(batch["text_lengths"], FRAMES_PER_CODE * batch["code_lengths"])
    return tf.maximum(tf.reduce_max(rows), joint_length(shape_list(batch["text"])[1], 0))


def _reference_frames(recipe: Recipe, shape: Shape) -> int:
    """Frames of a reference mel, by the same arithmetic as in planning."""
    longest = int(recipe.data.reference_seconds * recipe.audio.sample_rate / recipe.audio.hop_length) + 1
    return min(longest, shape.mel_frames) if recipe.data.reference_min_seconds is None else longest
