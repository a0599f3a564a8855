"""The interface of a training stage: `Stage` describes it, `TrainableModel` is the model that it trains.

A `Stage` is stateless and needs no TensorFlow until `build` is called, so that planning and the command line can query
steps, shapes and bytes. `build` returns the `StageSetup` that the training loop runs.
"""

import abc
import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

import numpy as np

from xtts.planning.shapes import Shape
from xtts.planning.sizes import ModelSize
from xtts.recipe.schema import Recipe
from xtts.weights.layout import PREFIXES

if TYPE_CHECKING:
    from xtts.model.layers import Weight
    from xtts.planning.dataset import Dataset
    from xtts.planning.plan import Plan
    from xtts.training.context import StageSetup, TrainingContext

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Batch = Dict[str, Tensor]
Tensors = Mapping[str, np.ndarray]

MODEL, AVERAGE = "model.", "average."  # prefixes in a checkpoint: of weights, and of their running average


class Stage(abc.ABC):
    """The description of a training stage: a stateless class with one instance, in `STAGES`."""

    name: ClassVar[str]  # in run.stages and journals, and the name of the checkpoint folder
    section: ClassVar[str] = "train"  # of the recipe; settings that are unset there are read from [train]
    needs: ClassVar[Tuple[str, ...]] = ()  # earlier stages whose frozen weights it uses on the data devices
    has_planned_shapes: ClassVar[bool] = True  # False: its batches have one shape, independent of the corpus
    completes_model: ClassVar[bool] = False  # whether the model can speak after it: the folder `model` is written

    # For planning; these need no TensorFlow.

    def steps(self, recipe: Recipe) -> int:
        """The number of optimizer steps."""
        return int(self._setting(recipe, "steps"))

    def learning_rate(self, recipe: Recipe) -> float:
        """The peak learning rate."""
        return float(self._setting(recipe, "learning_rate"))

    def shapes(self, recipe: Recipe, planned: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes of its batches; `planned` are the shapes planned for whole utterances."""
        return planned

    def has_dynamic_shapes(self, recipe: Recipe) -> bool:
        """Whether a batch is as long as its longest row: then shapes are upper bounds, and there is a single trace."""
        return False

    def traces(self, recipe: Recipe, planned: Sequence[Shape]) -> int:
        """The number of traces of its training step."""
        return 1 if self.has_dynamic_shapes(recipe) else len(self.shapes(recipe, planned))

    @abc.abstractmethod
    def activations(self, recipe: Recipe, size: ModelSize, text_tokens: int, shape: Shape) -> int:
        """Bytes that a training step keeps for its backward pass, in float32."""

    @abc.abstractmethod
    def feature_bytes(self, recipe: Recipe, size: ModelSize, shape: Shape) -> int:
        """Bytes in use on a data device while it computes one batch."""

    @abc.abstractmethod
    def batch_bytes(self, recipe: Recipe, shape: Shape) -> int:
        """Bytes of one batch in the buffer."""

    # For the fingerprint: whether a finished stage must be trained again.

    def facts(self, dataset: "Dataset", plan: "Plan") -> Dict[str, str]:
        """Digests of what its weights depend on besides settings, recordings and the number of replicas, by name."""
        return {}

    # For training.

    @abc.abstractmethod
    def build(self, context: "TrainingContext", needed: Mapping[str, Tensors]) -> "StageSetup":
        """The stage's set-up, not warmed up yet; `needed` has the weights of each stage in `needs`."""

    @property
    def prefix(self) -> str:
        """The prefix of its weights in a published checkpoint."""
        return PREFIXES[self.name]

    def published_weights(self, checkpoint: Tensors) -> Dict[str, np.ndarray]:
        """A checkpoint's weights under their published names; their running average if there is one."""
        return {
            self.prefix + name[len(kind) :]: tensor
            for kind in (MODEL, AVERAGE)  # in this order: the average replaces the weights
            for name, tensor in checkpoint.items()
            if name.startswith(kind)
        }

    def own_weights(self, tensors: Optional[Tensors]) -> Dict[str, np.ndarray]:
        """This stage's tensors among published ones."""
        return {name: tensor for name, tensor in (tensors or {}).items() if name.startswith(self.prefix)}

    def _setting(self, recipe: Recipe, name: str) -> Any:
        own = getattr(getattr(recipe, self.section), name, None)
        return getattr(recipe.train, name) if own is None else own


class StageLosses(NamedTuple):
    """The losses of one batch; float32."""

    means: Tensor  # [parts]
    counts: Tensor  # [parts]: how many elements each is a mean over
    extra: Any  # tensors for `statistics`


class StepPiece(NamedTuple):
    """The index of a batch within its step, which has a piece for each replica and accumulated batch."""

    number: Tensor
    of: int


class TrainableModel(Protocol):
    """A model with its losses, independent of devices, steps and files.

    A loss is a mean over a whole step, however many replicas and accumulated batches the step is divided into: the sum
    of the pieces' means, each weighted by its share, `means * counts / totals`.
    """

    name: str
    parts: Tuple[str, ...]  # of the loss
    weights: Tuple[float, ...]  # of each part in the total loss
    shapes: Tuple[Shape, ...]  # of its batches
    dynamic_shapes: bool  # shapes are upper bounds: one function takes any number of rows and any lengths
    model: Any

    def inputs(self, shape: Shape, replicas: int) -> Dict[str, Any]:
        """The specs of a batch's tensors, by name."""

    def losses(self, batch: Batch, shape: Optional[Shape], seed: Tensor, training: bool) -> StageLosses:
        """The losses of one replica's batch; shape None: lengths are dynamic. `seed`: two integers, new each batch."""

    def statistics(self, extra: Any, seed: Tensor, piece: StepPiece) -> List[Tensor]:
        """Statistics for updating weights without gradients, float32; summed over a step. `seed` is the step's."""

    def statistics_shapes(self, pieces: int) -> List[Tuple[int, ...]]:
        """The shapes of these statistics, for a step of this many pieces."""

    def follow(self, sums: List[Tensor], is_good: Tensor) -> None:
        """Update these weights from a whole step's statistics, unless the step is skipped."""


def trainable_weights(stage: TrainableModel) -> Dict[str, "Weight"]:
    """The trainable weights, by their published names."""
    return {name: weight for name, weight in stage.model.weights().items() if weight.variable.trainable}


def tensor_digest(tensors: Tensors) -> str:
    """A digest of names and values."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensors[name]).tobytes())
    return sha.hexdigest()
