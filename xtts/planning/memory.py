"""Memory estimates: bytes on each device in a training step, and what to change in the recipe if they exceed the limit.

Weights, gradients, optimizer and buffer are counted. Activations are estimated from the tensors of a step; the
transformer's are scaled to a measurement of a plain graph step. What depends on the stage is defined by the stages
themselves (`PlannedStage`), in `xtts.training.stages`.
"""

from typing import Callable, Dict, List, Protocol, Sequence

import attrs

from xtts.planning.shapes import Shape
from xtts.planning.sizes import SIZES, ModelSize, ParameterCount, count_parameters
from xtts.recipe.schema import AudioSection, Recipe

MEGABYTE = 2**20
FLOAT = 4  # bytes
LARGEST_BUFFER, SMALLEST_BUFFER = 50, 4  # batches
OPTIMIZER_SLOTS = 3  # AdamW's two moments, and the running average of the weights

# Floats kept for the backward pass in one transformer block, for each token and each channel of width: the peak of a
# plain graph step of 4 layers of 256 on 6400 tokens was 53 with TensorFlow 2.4 and 54 with 2.21 (30 with XLA).
BLOCK_FLOATS = 54
ATTENTION_FLOATS = 24  # those of the attention half, which makes 7 of the block's 16 tensors
COPIES = 2  # of attention scores and of logits, before and after the softmax; the same step kept 2.2

_LIMITS = {"model": "model_gpu_memory_limit", "data": "data_gpu_memory_limit"}  # keys of [devices]


class PlannedStage(Protocol):
    """What planning needs to know about a training stage."""

    @property
    def name(self) -> str:
        """The name in run.stages, and of the part of the model that it trains."""

    @property
    def section(self) -> str:
        """The section of the recipe that its settings are in."""

    @property
    def needs(self) -> Sequence[str]:
        """Earlier stages whose weights are on the data devices."""

    def shapes(self, recipe: Recipe, planned: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes of its batches; `planned` are the shapes planned for whole utterances."""

    def activations(self, recipe: Recipe, size: ModelSize, text_tokens: int, shape: Shape) -> int:
        """Bytes that a training step keeps for its backward pass, in float32."""

    def feature_bytes(self, recipe: Recipe, size: ModelSize, shape: Shape) -> int:
        """Bytes in use on a data device while it computes one batch."""

    def batch_bytes(self, recipe: Recipe, shape: Shape) -> int:
        """Bytes of one batch in the buffer."""


@attrs.frozen
class MemoryBudget:
    """Memory use of one device in bytes, in the stage that needs the most."""

    stage: str
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


@attrs.frozen(kw_only=True)
class MemoryEstimate:
    """The memory of a recipe's stages in some shapes."""

    recipe: Recipe
    size: ModelSize
    text_tokens: int
    shapes: Sequence[Shape]  # planned for whole utterances
    stages: Sequence[PlannedStage]
    replicas: int = 1

    def budgets(self) -> Dict[str, MemoryBudget]:
        """The budget of the devices that train ("model") and of those that compute features ("data")."""
        if not self.stages:
            return {}
        counts = count_parameters(self.size, self.text_tokens, self.recipe.audio.n_mels)
        found = {
            "model": [self._model_budget(stage, counts) for stage in self.stages],
            "data": [self._data_budget(stage, counts) for stage in self.stages],
        }
        return {device: max(budgets, key=lambda budget: budget.total) for device, budgets in found.items()}

    def advice(self) -> List[str]:
        """For each device whose limit is exceeded, the key to change and the value to write."""
        found = []
        for device, budget in self.budgets().items():
            if not budget.fits:
                key = f"devices.{_LIMITS[device]}"
                need = f"the {device} device needs {_megabytes(budget.total)} MB and {key} gives it"
                found.append(f"{need} {budget.limit // MEGABYTE}; {self._remedy(device)}")
        return found

    def _remedy(self, device: str) -> str:
        def fits(changed: MemoryEstimate) -> bool:
            return changed.budgets()[device].fits

        train, buffer_size = self.recipe.train, self.recipe.devices.buffer_size
        if isinstance(buffer_size, int):
            batches = _largest_that_fits(buffer_size, lambda batches: fits(self._with_buffer_size(batches)))
            if batches >= SMALLEST_BUFFER:
                return f"write devices.buffer_size = {batches}"
        rows = _largest_that_fits(train.batch_size, lambda rows: fits(self._with_batch_size(rows)))
        if rows:
            parts = -(-train.batch_size // rows)
            return (
                f"write train.batch_size = {-(-train.batch_size // parts)}, and train.gradient_accumulation_steps ="
                f" {parts * train.gradient_accumulation_steps} to learn from as many utterances a step"
            )
        least = self._with_batch_size(1)
        need = _megabytes(least.budgets()[device].total)
        remedy = f"one utterance a step needs devices.{_LIMITS[device]} = {need}"
        smaller = [
            name
            for name, other in SIZES.items()
            if other.gpt.width < self.size.gpt.width and fits(attrs.evolve(least, size=other))
        ]
        return f'{remedy}, or write model.size = "{smaller[-1]}"' if smaller else remedy

    def _with_buffer_size(self, batches: int) -> "MemoryEstimate":
        devices = attrs.evolve(self.recipe.devices, buffer_size=batches)
        return attrs.evolve(self, recipe=attrs.evolve(self.recipe, devices=devices))

    def _with_batch_size(self, batch_size: int) -> "MemoryEstimate":
        longest = self.shapes[-1].joint_length
        return attrs.evolve(
            self,
            shapes=tuple(
                attrs.evolve(shape, batch_size=batch_size * longest // shape.joint_length) for shape in self.shapes
            ),
        )

    def _model_budget(self, stage: PlannedStage, counts: Dict[str, ParameterCount]) -> MemoryBudget:
        recipe, shapes = self.recipe, stage.shapes(self.recipe, self.shapes)
        count = counts[stage.name]
        is_half = recipe.train.precision != "float32"
        sums = 2 if recipe.train.gradient_accumulation_steps > 1 else 1  # gradients of one batch, and the accumulated
        activations = max(stage.activations(recipe, self.size, self.text_tokens, shape) for shape in shapes)
        budget = MemoryBudget(
            stage.name,
            weights=FLOAT * count.total + (FLOAT // 2 * count.weights if is_half else 0),
            gradients=FLOAT * count.weights * sums,
            optimizer=FLOAT * count.weights * OPTIMIZER_SLOTS,
            activations=activations // (2 if is_half else 1),
            buffer=0,
            limit=recipe.devices.model_gpu_memory_limit * MEGABYTE,
        )
        batch = max(stage.batch_bytes(recipe, shape) for shape in shapes)
        asked, room = recipe.devices.buffer_size, (budget.limit - budget.total) // batch
        batches = max(SMALLEST_BUFFER, min(LARGEST_BUFFER, room)) if isinstance(asked, str) else asked
        return attrs.evolve(budget, buffer=batches * batch)

    def _data_budget(self, stage: PlannedStage, counts: Dict[str, ParameterCount]) -> MemoryBudget:
        shapes = stage.shapes(self.recipe, self.shapes)
        batch = max(stage.feature_bytes(self.recipe, self.size, shape) for shape in shapes)
        return MemoryBudget(
            stage.name,
            weights=FLOAT * sum(counts[part].total for part in stage.needs),
            gradients=0,
            optimizer=0,
            activations=self.replicas * batch,  # a data device computes whole batches, with the rows of every replica
            buffer=0,
            limit=self.recipe.devices.data_gpu_memory_limit * MEGABYTE,
        )


def is_dual(recipe: Recipe) -> bool:
    """Whether the recipe names both a data and a model GPU, to which the memory limits apply."""
    return recipe.devices.data_gpu is not None and recipe.devices.model_gpu is not None


def mel_floats(audio: AudioSection, frames: int, n_fft: int) -> int:
    """Floats in use while the mel of one recording is computed: wave, windows, spectrum and mel."""
    return frames * (audio.hop_length + n_fft + 3 * (n_fft // 2 + 1) + 2 * audio.n_mels)


def _largest_that_fits(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `high` that fits; 0 when none does."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _megabytes(amount: int) -> int:
    return -(-amount // MEGABYTE)
