"""The plan of a run: its shapes, batches, traces, steps and memory, computed before it starts and without TensorFlow.

`Plan.text()` is a summary for people, `as_json()` the same as data; `layout` and `order` determine the batches of the
run.
"""

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import attrs
import numpy as np

from xtts.errors import XttsError
from xtts.formatting import count_of, format_excess, format_reasons
from xtts.planning import machine, memory, shapes
from xtts.planning.batch_order import BatchOrder
from xtts.planning.memory import MemoryBudget, MemoryEstimate, PlannedStage
from xtts.planning.shapes import ShapePlan, TraceCost
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES, GptSize, ParameterCount, StepCost, count_parameters, step_cost
from xtts.planning.summary import format_plan
from xtts.recipe.schema import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]

CURVE = (1, 2, 3, 4, 6, 8, 12, 16)  # numbers of shapes for which the work is shown
PASSES = 3  # the work of a training step, in forward passes: one forward, two backward


class PlanError(XttsError):
    """Why a recipe cannot be trained on a corpus."""


@attrs.frozen
class MachineSpeed:
    """How fast a machine traces and trains, which decides how many shapes pay off.

    The defaults were measured on two CPU cores with 4 layers of 256 (TensorFlow 2.21). A GPU traces as slowly but
    trains far faster, so that fewer shapes pay off there.
    """

    trace_seconds: float = 1.2  # for each layer of each shape, in addition to the first step
    xla_seconds: float = 5.5  # the same, when XLA compiles the step
    work_per_second: float = 30e9  # multiply-adds


@attrs.frozen
class EpochWork:
    """The work of an epoch, relative to that of its recordings without padding."""

    ratio: float  # with padded lengths
    computed: float  # including blank rows of last batches
    of_shapes: Tuple[float, ...]  # `ratio` of each shape


@attrs.frozen(eq=False)
class Plan:
    """Everything known about a run before it starts."""

    recipe: Recipe
    layout: ShapePlan
    order: BatchOrder
    seconds: float  # of recordings
    tokens_per_code: float  # text tokens, on average: the speaking rate
    rejected: Dict[str, int]  # number of rejected utterances, by reason
    work: EpochWork
    curve: Dict[int, float]  # `EpochWork.computed`, by number of planned shapes
    parts: Dict[str, ParameterCount]  # parameters
    budgets: Dict[str, MemoryBudget]  # bytes, by device
    advice: Tuple[str, ...]

    @property
    def utterances(self) -> int:
        return sum(self.layout.counts)

    @property
    def traces(self) -> int:
        """The number of traces of a stage's step: one for each shape, or a single one if lengths are dynamic."""
        return 1 if self.recipe.data.shapes == "relaxed" else len(self.layout.shapes)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps; the last may include batches of the next epoch."""
        return -(-self.order.batches_per_epoch // self.recipe.train.gradient_accumulation_steps)

    @property
    def epochs(self) -> float:
        """The number of epochs of a stage."""
        batches = self.recipe.train.steps * self.recipe.train.gradient_accumulation_steps
        return batches / self.order.batches_per_epoch

    @property
    def parameters(self) -> int:
        return sum(count.total for count in self.parts.values())

    def text(self) -> str:
        """The plan as text."""
        return format_plan(self.as_json())

    def as_json(self) -> Dict[str, Any]:
        """The plan in JSON's types."""
        return {
            "size": self.recipe.model.size,
            "mode": self.recipe.data.shapes,
            "seed": self.recipe.run.seed,
            "utterances": self.utterances,
            "seconds": self.seconds,
            "pace": self.tokens_per_code,
            "rejected": dict(self.rejected),
            "shapes": self._shapes(),
            "work_ratio": self.work.ratio,
            "computed_ratio": self.work.computed,
            "curve": {str(number): ratio for number, ratio in self.curve.items()},
            "traces": self.traces,
            "workers": self.order.workers,
            "batches_per_epoch": self.order.batches_per_epoch,
            "steps_per_epoch": self.steps_per_epoch,
            "steps": self.recipe.train.steps,
            "epochs": self.epochs,
            "parameters": self.parameters,
            "parts": {name: count.total for name, count in self.parts.items()},
            "bytes": {
                device: {**attrs.asdict(budget), "total": budget.total, "fits": budget.fits}
                for device, budget in self.budgets.items()
            },
            "limits_in_force": memory.is_dual(self.recipe),
            "advice": list(self.advice),
            "order_hash": self.order.digest(),
        }

    def _shapes(self) -> List[Dict[str, Any]]:
        found = []
        for place, shape in enumerate(self.layout.shapes):
            count, batches = self.layout.counts[place], self.order.batches_per_shape[place]
            rows = batches * shape.batch_size * self.order.workers
            blank = -count % self.order.workers if self.recipe.data.shapes == "relaxed" else rows - count
            numbers = {"utterances": count, "batches": batches, "blank_rows": blank}
            found.append({**attrs.asdict(shape), **numbers, "work_ratio": self.work.of_shapes[place]})
        return found


def make_plan(
    recipe: Recipe,
    text_lengths: "Ints",
    mel_frames: "Ints",
    text_tokens: int,
    *,
    stages: Sequence[PlannedStage] = (),
    rejected: Optional[Mapping[str, int]] = None,
    replicas: Optional[int] = None,
    speed: Optional[MachineSpeed] = None,
) -> Plan:
    """The plan for the usable utterances of a corpus.

    `text_lengths` (tokens) and `mel_frames` have one entry for each utterance; the order refers to utterances by index.
    `text_tokens` is the vocabulary size of the tokenizer; `rejected` counts utterances rejected before, by reason.
    Memory is estimated for `stages`, those of `xtts.training.stages` that the recipe trains. `replicas` is the number
    of copies of the model; None: as many as the recipe names GPUs.
    """
    recipe = resolve_shapes(recipe, begun="planned")
    text, mel = np.asarray(text_lengths, np.int32), np.asarray(mel_frames, np.int32)
    size = SIZES[recipe.model.size]
    too_long = _too_long(recipe, text, mel)
    usable = ~np.any(list(too_long.values()), axis=0)
    reasons = dict(rejected or {})
    for reason, long in too_long.items():
        if long.any():
            reasons[reason] = reasons.get(reason, 0) + int(long.sum())
    if not usable.any():
        raise PlanError(_nothing_usable(reasons))

    replicas = replicas or recipe.devices.replicas
    layout = _plan_layout(recipe, size.gpt, text[usable], mel[usable], replicas, speed or MachineSpeed())
    shape_of = np.full(len(text), shapes.SET_ASIDE, np.int16)
    shape_of[usable] = layout.shape_of
    layout = attrs.evolve(layout, shape_of=shape_of)
    order = BatchOrder(shape_of, tuple(shape.batch_size for shape in layout.shapes), recipe.run.seed, replicas)

    joint = np.where(usable, shapes.joint_length(text, mel), 0)
    work = _epoch_work(recipe, layout, order, joint, step_cost(size.gpt).reduced())
    numbers = {*CURVE, len(layout.shapes)} if recipe.data.shapes == "planned" else {*CURVE}
    curve = _padding_curve(joint[usable], step_cost(size.gpt), recipe.train.batch_size, replicas, sorted(numbers))
    frames = int(mel[usable].sum(dtype=np.int64))
    estimate = MemoryEstimate(
        recipe=recipe,
        size=size,
        text_tokens=text_tokens,
        shapes=layout.shapes,
        stages=stages,
        replicas=replicas,
    )
    return Plan(
        recipe,
        layout,
        order,
        seconds=frames * recipe.audio.hop_length / recipe.audio.sample_rate,
        tokens_per_code=int(text[usable].sum(dtype=np.int64)) * FRAMES_PER_CODE / frames,
        rejected=reasons,
        work=work,
        curve=curve,
        parts=count_parameters(size, text_tokens, recipe.audio.n_mels),
        budgets=estimate.budgets(),
        advice=(*estimate.advice(), *_shape_advice(recipe, layout, work, curve)),
    )


def resolve_shapes(recipe: Recipe, begun: Optional[str] = None, has_gpu: Optional[bool] = None) -> Recipe:
    """The recipe with `shapes = "auto"` resolved: to that of a run that was `begun`, or to the fastest on this machine.

    On CPUs that is "relaxed": dynamic lengths need one trace and pad least. Static shapes pay off where kernels are
    tuned to each shape, so they are for GPUs, even for those that a recipe names and the machine lacks, for XLA, and if
    the recipe gives their number. `has_gpu`: whether the run trains on a GPU; None: its devices are not placed yet, so
    the machine is checked.
    """
    if recipe.data.shapes != "auto":
        return recipe
    is_static = recipe.train.jit_compile is True or recipe.data.shape_count != "auto" or recipe.devices.names_gpus
    shapes: Any = begun
    if not shapes:
        is_static = is_static or (machine.has_gpu_driver() if has_gpu is None else has_gpu)
        shapes = "planned" if is_static else "relaxed"
    return attrs.evolve(recipe, data=attrs.evolve(recipe.data, shapes=shapes))


def length_limits(recipe: Recipe) -> Tuple[int, int]:
    """The longest text, in tokens, and the longest recording, in mel frames, that a run can train on.

    A fixed shape has the recipe's limits. Other shapes grow with the corpus, as far as the model has positions.
    """
    data, gpt = recipe.data, SIZES[recipe.model.size].gpt
    if data.shapes != "fixed":
        return gpt.max_text_tokens, gpt.max_recording_frames
    for key, most in (("max_text_length", gpt.max_text_tokens), ("max_mel_frames", gpt.max_recording_frames)):
        asked, name = getattr(data, key), recipe.model.size
        if asked > most:
            raise PlanError(f"data.{key} = {asked}: a {name} model has positions for {most}; write at most {most}")
    return data.max_text_length, data.max_mel_frames


def _too_long(recipe: Recipe, text: "Ints", mel: "Ints") -> Dict[str, "Ints"]:
    """A mask of the utterances that are too long for the run, by reason; each has one reason."""
    most_text, most_mel = length_limits(recipe)
    long_text = text > most_text
    return {
        f"text too long (over {most_text} tokens)": long_text,
        f"audio too long (over {most_mel} mel frames)": ~long_text & (mel > most_mel),
    }


def _plan_layout(
    recipe: Recipe, gpt: GptSize, text: "Ints", mel: "Ints", replicas: int, speed: MachineSpeed
) -> ShapePlan:
    data, train = recipe.data, recipe.train
    if data.shapes == "fixed":
        return shapes.fixed_shapes(text, mel, data.max_text_length, data.max_mel_frames, train.batch_size)
    if data.shapes == "relaxed":
        return shapes.relaxed_shapes(text, mel, step_cost(gpt), train.batch_size)
    longest = int(shapes.joint_length(text, mel).max())
    step = PASSES * train.batch_size * step_cost(gpt).of(longest) / speed.work_per_second
    weighing = TraceCost(
        trace_seconds=gpt.layers * (speed.xla_seconds if train.jit_compile is True else speed.trace_seconds),
        run_seconds=train.steps * train.gradient_accumulation_steps * step,
    )
    count = None if data.shape_count == "auto" else data.shape_count
    return shapes.plan_shapes(text, mel, step_cost(gpt), train.batch_size, count, weighing, replicas)


def _padding_curve(
    joint: "Ints", work: StepCost, batch_size: int, replicas: int, numbers: List[int]
) -> Dict[int, float]:
    """The work of an epoch by number of planned shapes, up to the number of distinct lengths."""
    lengths, counts = shapes.length_histogram(joint)
    rows = replicas * shapes.batch_sizes(lengths, batch_size)
    best = shapes.boundaries(lengths, counts, work, numbers[-1], rows)
    return {k: shapes.work_ratio(lengths, counts, best[k], work, rows) for k in numbers if k in best}


def _epoch_work(recipe: Recipe, layout: ShapePlan, order: BatchOrder, joint: "Ints", work: StepCost) -> EpochWork:
    """The work of an epoch; `joint` has one entry for each utterance."""
    taken = layout.shape_of >= 0
    real = np.bincount(layout.shape_of[taken], weights=work.of(joint[taken].astype(np.int64)))  # exact below 2^53
    if recipe.data.shapes == "relaxed":
        padded = computed = _relaxed_work(layout, order, joint, work)
    else:
        one = work.of(np.array([shape.joint_length for shape in layout.shapes], np.int64))
        padded = one * np.array(layout.counts, np.int64)
        computed = one * np.array(order.batch_sizes, np.int64) * order.workers * np.array(order.batches_per_shape)
    return EpochWork(
        ratio=float(padded.sum()) / float(real.sum()),
        computed=float(computed.sum()) / float(real.sum()),
        of_shapes=tuple(float(ratio) for ratio in padded / real),
    )


def _relaxed_work(layout: ShapePlan, order: BatchOrder, joint: "Ints", work: StepCost) -> "Ints":
    """The work of each pool in the first epoch: a step is as long as its longest member.

    The only blank rows are those that give every worker the same number of rows.
    """
    members = order.epoch(0).members
    first = np.cumsum(layout.counts) - layout.counts  # index of each pool's first member
    steps = [
        start + np.arange(0, count, rows * order.workers)
        for start, count, rows in zip(first, layout.counts, order.batch_sizes)
    ]
    cuts = np.concatenate(steps)
    longest = np.maximum.reduceat(joint[members], cuts).astype(np.int64)
    rows = -(-np.diff(np.append(cuts, len(members))) // order.workers) * order.workers
    batches = work.of(longest) * rows
    return np.asarray(np.add.reduceat(batches, np.searchsorted(cuts, first)))


def _shape_advice(recipe: Recipe, layout: ShapePlan, work: EpochWork, curve: Dict[int, float]) -> List[str]:
    """Advice if fewer shapes would compute less: with a small corpus the last batches are partly blank."""
    fewest = min(curve, key=lambda number: curve[number])
    if recipe.data.shapes != "planned" or fewest >= len(layout.shapes) or curve[fewest] >= work.computed:
        return []
    return [
        f"blank rows make {len(layout.shapes)} shapes compute {format_excess(work.computed)} too much, {fewest} shapes"
        f" {format_excess(curve[fewest])}; write data.shape_count = {fewest}"
    ]


def _nothing_usable(reasons: Mapping[str, int]) -> str:
    if not reasons:
        return "the corpus has no utterances; name one that has, in data.train"
    count = count_of(sum(reasons.values()), "utterance")
    return (
        f"none of {count} can be trained on ({format_reasons(reasons)}); fix the corpus, or name another in data.train"
    )
