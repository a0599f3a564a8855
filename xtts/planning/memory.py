"""Bytes on each device: a recipe, a size and its shapes come in; what a step needs, and what to write where it does not
fit, go out.

Weights, gradients, optimizer and buffer are counted. Activations are estimated from the tensors a step makes; the
transformer's are scaled by what a plain graph step was measured to keep.
"""

from typing import Callable, Dict, List, Optional, Sequence, Tuple

import attrs

from xtts.planning.shapes import Shape, code_count, codec_shape
from xtts.planning.sizes import FRAMES_PER_CODE, LATENTS, SIZES, ModelSize, ParameterCount, count_parameters
from xtts.recipe.schema import Recipe, Stage

MEGABYTE = 2**20
FLOAT = 4  # bytes
LARGEST_BUFFER, SMALLEST_BUFFER = 50, 4  # batches
OPTIMIZER_SLOTS = 3  # AdamW's two moments, and the running average of the weights

# Floats the backward pass keeps in one transformer block, for each token and each channel of width: the peak of a
# plain graph step of 4 layers of 256 on 6400 tokens was 53 with TensorFlow 2.4 and 54 with 2.21 (30 with XLA).
BLOCK_FLOATS = 54
ATTENTION_FLOATS = 24  # the attention half's part of them, by the tensors it makes: 7 of 16
COPIES = 2  # of attention scores and of logits, before and after the softmax; the same step kept 2.2


@attrs.frozen
class MemoryBudget:
    """What one device holds in the stage that needs most of it, in bytes."""

    stage: Stage
    weights: int
    gradients: int
    optimizer: int
    activations: int
    buffer: int
    limit: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffer

    @property
    def fits(self) -> bool:
        return self.total <= self.limit


Budgets = Dict[str, MemoryBudget]  # by device: "model" and "data"
_LIMITS = {"model": "model_gpu_memory_limit", "data": "data_gpu_memory_limit"}  # keys of [devices]


def memory_budgets(recipe: Recipe, size: ModelSize, text_tokens: int, shapes: Sequence[Shape]) -> Budgets:
    """The bytes of the device that trains and of the one that makes features."""
    counts = count_parameters(size, text_tokens, recipe.audio.n_mels)
    by_stage = {stage: shapes if stage == "gpt" else (codec_shape(recipe.codec),) for stage in recipe.run.stages}
    model = [_model_budget(recipe, size, text_tokens, counts, own, stage) for stage, own in by_stage.items()]
    data = [_data_budget(recipe, size, counts, own, stage) for stage, own in by_stage.items()]
    return {name: max(found, key=lambda budget: budget.total) for name, found in (("model", model), ("data", data))}


def memory_advice(recipe: Recipe, size: ModelSize, text_tokens: int, shapes: Sequence[Shape]) -> List[str]:
    """For each device whose limit is passed: the key to change, and what to write."""
    found = []
    for device, budget in memory_budgets(recipe, size, text_tokens, shapes).items():
        if not budget.fits:
            key = f"devices.{_LIMITS[device]}"
            need = (
                f"the {device} device needs {_megabytes(budget.total)} MB and {key} gives it {budget.limit // MEGABYTE}"
            )
            found.append(f"{need}; {_remedy(device, recipe, size, text_tokens, shapes)}")
    return found


def is_dual(recipe: Recipe) -> bool:
    """Whether the recipe asks for two devices, on which the memory limits are in force."""
    return recipe.devices.data_gpu is not None and recipe.devices.model_gpu is not None


def _remedy(device: str, recipe: Recipe, size: ModelSize, text_tokens: int, shapes: Sequence[Shape]) -> str:
    def fits(changed: Recipe, rows: int, other: ModelSize = size) -> bool:
        return memory_budgets(changed, other, text_tokens, _with_batch_size(shapes, rows))[device].fits

    def buffered(batches: int) -> Recipe:
        return attrs.evolve(recipe, devices=attrs.evolve(recipe.devices, buffer_size=batches))

    batch_size, buffer_size = recipe.train.batch_size, recipe.devices.buffer_size
    if isinstance(buffer_size, int):
        batches = _most(buffer_size, lambda batches: fits(buffered(batches), batch_size))
        if batches >= SMALLEST_BUFFER:
            return f"write devices.buffer_size = {batches}"
    rows = _most(batch_size, lambda rows: fits(recipe, rows))
    if rows:
        parts = -(-batch_size // rows)
        steps = parts * recipe.train.gradient_accumulation_steps
        return (
            f"write train.batch_size = {-(-batch_size // parts)},"
            f" and train.gradient_accumulation_steps = {steps} to learn from as many utterances a step"
        )
    least = memory_budgets(recipe, size, text_tokens, _with_batch_size(shapes, 1))[device]
    remedy = f"one utterance a step needs devices.{_LIMITS[device]} = {_megabytes(least.total)}"
    smaller = [name for name, other in SIZES.items() if other.gpt.width < size.gpt.width and fits(recipe, 1, other)]
    return f'{remedy}, or write model.size = "{smaller[-1]}"' if smaller else remedy


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `high` that fits; 0 when none does."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _with_batch_size(shapes: Sequence[Shape], batch_size: int) -> Tuple[Shape, ...]:
    longest = shapes[-1].joint_length
    return tuple(attrs.evolve(shape, batch_size=batch_size * longest // shape.joint_length) for shape in shapes)


def _model_budget(
    recipe: Recipe,
    size: ModelSize,
    text_tokens: int,
    counts: Dict[str, ParameterCount],
    shapes: Sequence[Shape],
    stage: Stage,
) -> MemoryBudget:
    count = counts[stage]
    is_half = recipe.train.precision != "float32"
    sums = 2 if recipe.train.gradient_accumulation_steps > 1 else 1  # a batch's gradients, and those added up so far
    if stage == "gpt":
        activations = max(gpt_activations(recipe, size, text_tokens, shape) for shape in shapes)
    else:
        activations = max(codec_activations(recipe, size, shape) for shape in shapes)
    budget = MemoryBudget(
        stage,
        weights=FLOAT * count.total + (FLOAT // 2 * count.weights if is_half else 0),
        gradients=FLOAT * count.weights * sums,
        optimizer=FLOAT * count.weights * OPTIMIZER_SLOTS,
        activations=activations // (2 if is_half else 1),
        buffer=0,
        limit=recipe.devices.model_gpu_memory_limit * MEGABYTE,
    )
    batch = max(batch_bytes(recipe, shape, stage) for shape in shapes)
    asked, room = recipe.devices.buffer_size, (budget.limit - budget.total) // batch
    batches = max(SMALLEST_BUFFER, min(LARGEST_BUFFER, room)) if isinstance(asked, str) else asked
    return attrs.evolve(budget, buffer=batches * batch)


def _data_budget(
    recipe: Recipe, size: ModelSize, counts: Dict[str, ParameterCount], shapes: Sequence[Shape], stage: Stage
) -> MemoryBudget:
    encoder: Optional[ModelSize] = size if stage == "gpt" else None  # which the codec's own stage does not need
    return MemoryBudget(
        stage,
        weights=FLOAT * counts["codec"].total if encoder else 0,
        gradients=0,
        optimizer=0,
        # A data device makes whole batches, with the rows of every replica.
        activations=recipe.devices.replicas * max(feature_bytes(recipe, encoder, shape) for shape in shapes),
        buffer=0,
        limit=recipe.devices.data_gpu_memory_limit * MEGABYTE,
    )


def gpt_activations(recipe: Recipe, size: ModelSize, text_tokens: int, shape: Shape) -> int:
    """Bytes that a training step of the transformer keeps for its backward pass, in float32."""
    gpt, joint, frames = size.gpt, shape.joint_length, _reference_frames(recipe, shape)
    blocks = gpt.layers * (BLOCK_FLOATS * gpt.width * joint + COPIES * gpt.heads * joint**2)
    reference = gpt.conditioning_blocks * (ATTENTION_FLOATS * gpt.width * frames + COPIES * gpt.heads * frames**2)
    keys, inner = frames + LATENTS, gpt.perceiver_heads * gpt.perceiver_head_width
    resampler = 2 * inner * keys + COPIES * gpt.perceiver_heads * LATENTS * keys + BLOCK_FLOATS * gpt.width * LATENTS
    text, codes = shape.text_length + 2, int(code_count(shape.mel_frames)) + 2
    logits = COPIES * (text_tokens * text + size.codec.audio_tokens * codes)
    return FLOAT * shape.batch_size * (blocks + reference + gpt.perceiver_layers * resampler + logits)


def codec_activations(recipe: Recipe, size: ModelSize, shape: Shape) -> int:
    """Bytes that a training step of the codec keeps for its backward pass, in float32."""
    codec, codes = size.codec, shape.mel_frames // FRAMES_PER_CODE
    hidden, wide = codec.hidden, 2 * codec.hidden
    encoder = 2 * (2 * codes * hidden + codes * wide)  # each convolution before and after its ReLU
    blocks = 2 * codec.blocks * 6 * codes * wide  # three convolutions, two ReLUs and a sum
    lookup = COPIES * codes * codec.codes + 4 * codes * codec.code_width
    decoder = 2 * codes * 3 * wide + 4 * codes * (wide + 2 * hidden)  # upsampled, convolved, rectified
    mels = 4 * shape.mel_frames * recipe.audio.n_mels  # given, made, their difference and its gradient
    return FLOAT * shape.batch_size * (encoder + blocks + lookup + decoder + mels)


def feature_bytes(recipe: Recipe, encoder: Optional[ModelSize], shape: Shape) -> int:
    """Bytes in use while one batch is made: waves, spectra, mels, and the codec's encoder where codes are wanted."""

    def spectra(frames: int, n_fft: int) -> int:
        return frames * (recipe.audio.hop_length + n_fft + 3 * (n_fft // 2 + 1) + 2 * recipe.audio.n_mels)

    floats = spectra(shape.mel_frames, recipe.audio.n_fft)
    if encoder:
        codes = shape.mel_frames // FRAMES_PER_CODE
        floats += spectra(_reference_frames(recipe, shape), 2 * recipe.audio.n_fft)
        floats += codes * (4 * 2 * encoder.codec.hidden + encoder.codec.codes)
    return FLOAT * shape.batch_size * floats


def batch_bytes(recipe: Recipe, shape: Shape, stage: Stage) -> int:
    """Bytes of one batch as it waits for the model: mels for the codec; text, codes and reference mels for the GPT."""
    n_mels = recipe.audio.n_mels
    if stage == "codec":
        row = shape.mel_frames * n_mels + 1
    else:
        row = shape.text_length + int(code_count(shape.mel_frames)) + _reference_frames(recipe, shape) * n_mels + 3
    return FLOAT * shape.batch_size * row


def _reference_frames(recipe: Recipe, shape: Shape) -> int:
    longest = int(recipe.data.reference_seconds * recipe.audio.sample_rate / recipe.audio.hop_length) + 1
    return min(longest, shape.mel_frames)


def _megabytes(amount: int) -> int:
    return -(-amount // MEGABYTE)
