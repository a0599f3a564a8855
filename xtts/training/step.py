"""Training steps as compiled functions: one for each static shape, or a single one where lengths are dynamic.

Every function is traced, and run once on a batch of zeros, before step 0: TensorFlow optimises its graph, and XLA
compiles it, at the first run and not when tracing. The loop calls concrete functions only, so none can be retraced.

Inputs are plain tensors of this process's whole batch; each replica takes its own rows inside the function, so a step
has the same interface with any strategy. `totals` are those of all processes.
"""

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from xtts import compat
from xtts.model.layers import shape_list
from xtts.pipeline.prefetcher import StepBatches
from xtts.planning.shapes import Shape
from xtts.recipe.schema import Recipe
from xtts.training.optimizer import AdamW
from xtts.training.placement import Placement
from xtts.training.stages.stage import StepPiece, TrainableModel, trainable_weights

Tensor = Any  # tf.Tensor; TensorFlow brings no types

LOSS_SCALE = {"float16": 1024.0}  # static loss scale by precision: keeps small gradients from underflowing
_SEED_STRIDE = 7919  # between the seeds of two replicas


class StepResult(NamedTuple):
    """The result of one optimizer step, on the host."""

    loss: float
    parts: Dict[str, float]
    gradient_norm: float
    learning_rate: float
    is_finite: bool  # False: the step was skipped


class TrainingSteps:
    """The compiled training steps of one stage, and its validation."""

    def __init__(
        self,
        stage: TrainableModel,
        optimizer: AdamW,
        *,
        strategy: Any,
        placement: Placement,
        recipe: Recipe,
        jit_compile: bool = False,
        validation_shape: Optional[Shape] = None,
    ) -> None:
        self._stage = stage
        self._optimizer = optimizer
        self._strategy = strategy
        self._placement = placement
        self._recipe = recipe
        self._accumulated = recipe.train.gradient_accumulation_steps
        self._variables = [weight.variable for weight in trainable_weights(stage).values()]
        self._scale = LOSS_SCALE.get(recipe.train.precision, 1.0)
        self._is_mirrored = placement.is_mirrored
        self._share = placement.share
        self._jit = jit_compile
        self._pieces = self._accumulated * placement.replicas
        self._accumulators: List[Any] = []  # sums of gradients, followed by those of the stage's statistics
        if self._accumulated > 1:
            shapes = [*(v.shape for v in self._variables), *stage.statistics_shapes(self._pieces)]
            with strategy.scope():
                self._accumulators = [tf.Variable(np.zeros(shape, np.float32), trainable=False) for shape in shapes]
        self._names = list(stage.inputs(stage.shapes[0], len(self._share)))  # the same for every shape
        self._concrete: Dict[Any, Any] = {}
        self._trial_specs: Dict[Any, List[Any]] = {}  # input specs of the trial run on zeros, for each function
        batch = self._move if self._accumulated == 1 else self._add
        if stage.dynamic_shapes:
            self._by_shape = [self._compiled(batch, stage.shapes[-1], dynamic_shapes=True)]
        else:
            self._by_shape = [self._compiled(batch, shape) for shape in stage.shapes]
        self._apply = self._compiled(self._apply_sums, None) if self._accumulated > 1 else None
        self._validate = self._compiled(self._measure, validation_shape) if validation_shape else None

    @property
    def functions(self) -> List[compat.Compiled]:
        """Every compiled function, to count traces."""
        return [one for one in (*self._by_shape, self._apply, self._validate) if one is not None]

    def trace(self, progress: Callable[[int, int], None]) -> Dict[str, float]:
        """Trace every function and run it once on zeros; returns the seconds each took, by name."""
        seconds: Dict[str, float] = {}
        for done, function in enumerate(self.functions):
            began = time.monotonic()
            concrete = function.get_concrete_function()
            self._concrete[function] = concrete
            zeros = [np.zeros(spec.shape, spec.dtype.as_numpy_dtype) for spec in self._trial_specs[function]]
            self._call(function, zeros)
            seconds[function.name] = time.monotonic() - began
            progress(done + 1, len(self.functions))
        return seconds

    def __call__(self, work: StepBatches) -> StepResult:
        """Take one optimizer step."""
        step = np.int32(work.step)
        found: List[Any] = []
        for number, (shape, batch) in enumerate(zip(work.shapes, work.batches)):
            function = self._by_shape[0 if self._stage.dynamic_shapes else shape]
            count = np.int32(work.step * self._accumulated + number)
            values = [batch[name] for name in self._names]
            found.append(self._call(function, [*values, np.maximum(work.totals, 1), step, count, True]))
        if self._apply is not None:
            parts = _sum([one[0].numpy() for one in found], np.float32)
            moved = self._call(self._apply, [np.float32(self._weighted_sum(parts)), step, True])
        else:
            parts, moved = found[0][0].numpy(), found[0][1:]
        norm, is_finite, rate = (one.numpy() for one in moved)
        named = {name: float(part) for name, part in zip(self._stage.parts, parts)}
        return StepResult(float(self._weighted_sum(parts)), named, float(norm), float(rate), bool(is_finite))

    def validate(self, batches: Sequence[Tuple[Dict[str, Any], np.ndarray]]) -> Dict[str, float]:
        """The mean of each part of the loss over batches of the validation shape, with the current weights."""
        assert self._validate is not None
        total = np.maximum(np.sum([counts for _, counts in batches], axis=0), 1).astype(np.float32)
        batched = [[arrays[name] for name in self._names] for arrays, _ in batches]
        parts = [self._call(self._validate, [*values, total]) for values in batched]
        means = _sum([part[0].numpy() for part in parts], np.float64)
        return {"loss": float(self._weighted_sum(means)), **{n: float(v) for n, v in zip(self._stage.parts, means)}}

    def _weighted_sum(self, parts: Any) -> Any:
        return sum(weight * part for weight, part in zip(self._stage.weights, parts))

    def _call(self, function: compat.Compiled, values: List[Any]) -> Any:
        specs = function.input_signature
        with tf.device(self._placement.model_devices[0]):
            # Copied to this device: for inputs on another one TensorFlow would instantiate the function again.
            tensors = [tf.identity(tf.cast(value, spec.dtype)) for value, spec in zip(values, specs)]
            return self._concrete[function](*tensors)

    def _compiled(
        self, body: Callable[..., Any], shape: Optional[Shape], dynamic_shapes: bool = False
    ) -> compat.Compiled:
        """`body` on every replica, as one function of plain tensors; if dynamic, `shape` is for the trial only."""
        replicas = len(self._share)
        inputs = self._stage.inputs(shape, replicas) if shape else {}
        names, scalars = list(inputs), _SCALARS[body.__name__](len(self._stage.parts))
        signature = [*(_dynamic_spec(spec) if dynamic_shapes else spec for spec in inputs.values()), *scalars]
        static = None if dynamic_shapes else shape

        def function(*values: Tensor) -> Any:
            def on_replica() -> Any:
                context = tf.distribute.get_replica_context()
                replica = self._local_replica(context)
                mine = {name: _rows(value, replica, replicas) for name, value in zip(names, values)}
                return body(mine, static, context, *values[len(names) :])

            found = self._strategy.run(on_replica)
            # Everything is summed over replicas, so all have the same values.
            return tf.nest.map_structure(lambda one: self._strategy.experimental_local_results(one)[0], found)

        size = f"_{static.text_length}x{static.mel_frames}x{static.batch_size}" if static else "_free" * dynamic_shapes
        function.__name__ = f"{self._stage.name}{body.__name__}{size}"
        # XLA cannot all-reduce on every release: in mirrored steps only each replica's own computation is compiled.
        whole = self._jit and not self._is_mirrored
        made = _compiled(function, signature, jit_compile=whole or None)
        self._trial_specs[made] = [*inputs.values(), *scalars]
        return made

    def _forward_backward(
        self, batch: Any, shape: Optional[Shape], context: Any, totals: Tensor, step: Tensor, number: Tensor
    ) -> Any:
        """This replica's share of the losses, and its gradients and statistics, to be summed over the step."""
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        seed = tf.stack([self._recipe.run.seed + _SEED_STRIDE * replica, number])

        def compute(totals: Tensor, seed: Tensor, *values: Tensor) -> Any:
            with tf.GradientTape() as tape:
                found = self._stage.losses(dict(zip(batch, values)), shape, seed, training=True)
                parts = found.means * found.counts / totals
                loss = self._scale * self._weighted_sum(tf.unstack(parts))
            gradients = tape.gradient(loss, self._variables)
            return parts, [_dense(g, v) / self._scale for g, v in zip(gradients, self._variables)], found.extra

        if self._jit and self._is_mirrored:
            compute = compat.compiled(compute, jit_compile=True, autograph=False).function
        parts, gradients, extra = compute(totals, seed, *batch.values())
        place = (number - step * self._accumulated) * self._placement.replicas + replica
        step_seed = tf.stack([self._recipe.run.seed, step])
        return parts, [*gradients, *self._stage.statistics(extra, step_seed, StepPiece(place, self._pieces))]

    def _move(
        self,
        batch: Any,
        shape: Optional[Shape],
        context: Any,
        totals: Tensor,
        step: Tensor,
        number: Tensor,
        live: Tensor,
    ) -> Any:
        """A whole optimizer step on one batch."""
        parts, found = self._forward_backward(batch, shape, context, totals, step, number)
        parts, *found = self._all_reduce(context, [parts, *found])
        return (parts, *self._update(found, context, self._weighted_sum(tf.unstack(parts)), step, live))

    def _add(
        self,
        batch: Any,
        shape: Optional[Shape],
        context: Any,
        totals: Tensor,
        step: Tensor,
        number: Tensor,
        live: Tensor,
    ) -> Any:
        """Add the gradients and statistics of one batch to the accumulators."""
        parts, found = self._forward_backward(batch, shape, context, totals, step, number)
        own = self._local_copy(context)
        for total, one in zip(self._accumulators, found):
            variable = own(total)
            variable.assign(tf.where(live, variable + one, 0.0))
        return self._all_reduce(context, [parts])

    def _apply_sums(self, _batch: Any, _shape: Any, context: Any, loss: Tensor, step: Tensor, live: Tensor) -> Any:
        """The update after the last accumulated batch."""
        own = self._local_copy(context)
        found = self._all_reduce(context, [tf.identity(own(total)) for total in self._accumulators])
        moved = self._update(found, context, loss, step, live)
        for total in self._accumulators:
            own(total).assign(tf.zeros(total.shape))
        return moved

    def _update(self, found: List[Tensor], context: Any, loss: Tensor, step: Tensor, live: Tensor) -> Any:
        """Update the weights by the summed gradients, if they are finite and this is not a trial (not `live`)."""
        gradients, statistics = found[: len(self._variables)], found[len(self._variables) :]
        moved = self._optimizer.apply(gradients, step, tf.where(live, loss, np.nan), self._local_copy(context))
        self._stage.follow(statistics, moved.is_finite)
        return moved.norm, moved.is_finite, moved.learning_rate

    def _measure(self, batch: Any, shape: Optional[Shape], context: Any, totals: Tensor) -> Any:
        """The losses of a batch, without an update."""
        found = self._stage.losses(batch, shape, tf.constant([0, 0]), training=False)
        return self._all_reduce(context, [found.means * found.counts / totals])

    def _all_reduce(self, context: Any, values: List[Tensor]) -> List[Tensor]:
        """The sums over all replicas."""
        return list(context.all_reduce(tf.distribute.ReduceOp.SUM, values)) if self._is_mirrored else values

    def _local_copy(self, context: Any) -> Callable[[Any], Any]:
        """A function that returns this replica's copy of a variable."""
        if not self._is_mirrored:
            return lambda variable: variable
        place = self._local_replica(context)
        return lambda variable: self._strategy.experimental_local_results(variable)[place]

    def _local_replica(self, context: Any) -> int:
        """The index of the calling replica among those of this process."""
        if not self._is_mirrored:
            return 0
        return int(tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group))) - self._share.start


def _sum(parts: List[np.ndarray], dtype: Any) -> np.ndarray:
    """The sum over batches of each part of the loss."""
    return np.asarray(np.sum(parts, axis=0, dtype=dtype))


def _rows(value: Tensor, replica: Any, replicas: int) -> Tensor:
    """The rows of one replica."""
    if replicas == 1:
        return value
    rows = shape_list(value)[0] // replicas
    start = tf.cast(replica, tf.int32) * rows
    return tf.ensure_shape(value[start : start + rows], [rows if isinstance(rows, int) else None, *value.shape[1:]])


def _dynamic_spec(spec: Any) -> Any:
    """A spec with any number of rows and any length, the first two axes of a tensor."""
    return tf.TensorSpec([None if axis < 2 else size for axis, size in enumerate(spec.shape)], spec.dtype)


def _dense(gradient: Any, variable: Any) -> Tensor:
    """A gradient as a dense tensor: embeddings have sparse gradients, and unused weights have none."""
    return tf.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)


def _scalar(dtype: Any) -> Any:
    return tf.TensorSpec([], dtype)


_BATCH: Callable[[int], List[Any]] = lambda parts: [  # noqa: E731
    tf.TensorSpec([parts], tf.float32),
    _scalar(tf.int32),
    _scalar(tf.int32),
    _scalar(tf.bool),
]
_SCALARS: Dict[str, Callable[[int], List[Any]]] = {  # further inputs of each function, after the batch
    "_move": _BATCH,
    "_add": _BATCH,
    "_apply_sums": lambda parts: [_scalar(tf.float32), _scalar(tf.int32), _scalar(tf.bool)],
    "_measure": lambda parts: [tf.TensorSpec([parts], tf.float32)],
}


def _compiled(function: Callable[..., Any], signature: List[Any], jit_compile: Optional[bool]) -> compat.Compiled:
    made: compat.Compiled = compat.compiled(
        function, input_signature=signature, jit_compile=jit_compile, autograph=False, allowed=1, action="raise"
    )
    return made
