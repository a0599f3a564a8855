"""A run: prepare it, train its stages one after the other, and write the model.

    runs/<name>/
      recipe.toml, plan.json, rejected.csv, tokenizer.json, mel_stats.json   the settings and the dataset
      codec/, gpt/                                                           checkpoints and fingerprints
      metrics.jsonl, validation.jsonl, events.jsonl, summary.json            the journal
      samples/, report.html                                                  samples to listen to, and the report
      model/                                                                 weights under their published names
      voices/                                                                reference recordings, held out

A stage whose fingerprint has not changed continues from its newest checkpoint, and is skipped if it has finished. A
finished stage whose fingerprint has changed is trained again from the beginning; its old folder is renamed and kept.
"""

import contextlib
import functools
import json
import shutil
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional

import attrs
import numpy as np

from xtts import compat, files
from xtts.formatting import count_of
from xtts.pipeline.service.client import Service, connect_service
from xtts.pipeline.service.servers import local_service
from xtts.planning.dataset import Log, Split
from xtts.planning.sizes import SIZES
from xtts.progress import ProgressBar
from xtts.recipe.constraints import served_alone
from xtts.recipe.schema import Recipe
from xtts.reporting.journal import Journal
from xtts.reporting.monitor import Live, Monitor
from xtts.reporting.system import gauges
from xtts.text.tokenizer import TOKENIZER
from xtts.training.checkpoint import Checkpoints, TrainingState, set_aside
from xtts.training.cluster.collectives import Collectives, rendezvous, watch_workers
from xtts.training.cluster.membership import Cluster, ClusterError, resolve_cluster
from xtts.training.cluster.null_writers import NullCheckpoints, NullJournal
from xtts.training.context import StageSetup, TrainingContext, prepare_stage
from xtts.training.fingerprint import Fingerprint, diff_fingerprints, make_fingerprint
from xtts.training.loop import TrainingLoop
from xtts.training.placement import place_devices
from xtts.training.preparation import RunError, prepare_run
from xtts.training.reference_voices import VOICES, keep_voices
from xtts.training.run_lock import RunLock
from xtts.training.signals import interrupted
from xtts.training.stages import STAGES, stages_of
from xtts.training.stages.stage import Stage, Tensors
from xtts.training.step import TrainingSteps
from xtts.weights import assignment, model_folder, speaking_settings
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription
from xtts.weights.safetensors_file import WeightsError


def train(recipe: Recipe, log: Log = print) -> Optional[Path]:
    """Train every unfinished stage of a recipe; returns the run's folder, or None on workers other than the chief."""
    cluster = resolve_cluster(recipe.cluster)
    folder = Path(recipe.run.folder) / recipe.run.name
    if cluster and recipe.data.service is not None:
        raise ClusterError(f"data.service: {served_alone(cluster.origin)}")
    collectives = Collectives()
    with _lock(folder, cluster, log), interrupted(), contextlib.ExitStack() as stack:
        stack.enter_context(watch_workers(cluster, lambda: collectives.has_stepped))
        stack.enter_context(enough_memory(recipe))
        placement = place_devices(recipe.devices, cluster=cluster)
        if cluster:
            collectives = rendezvous(placement, recipe.cluster.patience, log)
        context = prepare_run(recipe, placement, collectives, log)
        stack.callback(context.board.close)
        service = stack.enter_context(_service(folder, context.recipe, context.dataset.train, log))
        context = attrs.evolve(context, service=service)
        log(f"\n{context.plan.text()}")
        log("\n".join(describe_run(context)) + "\n")
        trained: Dict[str, Tensors] = {}
        for stage in stages_of(recipe):
            needed = {name: find_weights(context, stage, STAGES[name], trained) for name in stage.needs}
            state = train_stage(context, stage, needed)
            trained[stage.name] = stage.published_weights(state.tensors)
            if stage.completes_model and collectives.is_chief:
                write_model(context, {**needed, **trained})
                keep_voices(context.folder / VOICES, context.dataset.held_out.corpus.utterances)
    return folder if collectives.is_chief else None


def resume_point(recipe: Recipe) -> str:
    """Where a run resumes, for a message; known only to the process that writes its folder."""
    folder = Path(recipe.run.folder) / recipe.run.name
    for stage in reversed(recipe.run.stages):
        steps = Checkpoints(folder / stage).steps()
        if steps:
            return f"after step {steps[-1]:,} of the {stage} stage"
    return "from the chief's last checkpoint"


@contextlib.contextmanager
def enough_memory(recipe: Recipe) -> Iterator[None]:
    """Turn an out-of-memory error inside into a RunError that says which settings to lower."""
    import tensorflow as tf

    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        said = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        rows, parts = recipe.train.batch_size, recipe.train.gradient_accumulation_steps
        raise RunError(
            f"there is not enough memory ({said[:200]}); write train.batch_size = {max(1, rows // 2)}, where it was"
            f" {rows}, and train.gradient_accumulation_steps = {2 * parts} to learn from as many utterances a step;"
            " `xtts plan` says what each device needs, and the run resumes from its last checkpoint"
        ) from None


def newest_sample(folder: Path) -> Optional[Path]:
    """The wave file of a run's newest sample."""
    waves = [line["wav"] for line in Journal(folder).samples() if line.get("wav")]
    return folder / waves[-1] if waves else None


def describe_run(context: TrainingContext) -> List[str]:
    """Lines to print before a run: devices, buffer, strategy, shapes and traces."""
    recipe, shapes = context.recipe, context.plan.layout.shapes
    spans = [sorted({getattr(shape, name) for shape in shapes}) for name in ("text_length", "mel_frames")]
    text, mel = (f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    is_dynamic = recipe.data.shapes == "relaxed"
    sizes = f"text {text}, mel {mel}; {len(shapes)} shapes"
    if is_dynamic:
        pools = count_of(len(shapes), "pool")
        sizes = f"text up to {spans[0][-1]}, mel up to {spans[1][-1]}, each batch as long as its longest; {pools}"
    buffer = context.buffer_policy(stages_of(recipe)[-1])
    size = f"{buffer.size} batches" + (
        f" ({buffer.smallest} to {buffer.largest})" if buffer.smallest < buffer.largest else ""
    )
    kind = "cached on disk" if context.is_cached else "live, by tf.data service" if context.service else "live"
    traces = ", ".join(f"{stage.name} {stage.traces(recipe, shapes)}" for stage in stages_of(recipe))
    return [
        *context.placement.lines(),
        *_idle(context),
        f"features are {kind}; buffer: {size}, {context.readers} readers,"
        f" the model starts after {recipe.devices.model_start_delay:g} s at the earliest",
        f"Static shapes (pad_to_fixed_length): {not is_dynamic}, {recipe.data.shapes}: {sizes},"
        f" traces of a step: {traces}",
    ]


def _idle(context: TrainingContext) -> List[str]:
    idle = context.placement.further if context.is_cached else ()
    return [f"note: {', '.join(idle)} is idle: features are cached on disk, not computed live"] if idle else []


@contextlib.contextmanager
def _service(folder: Path, recipe: Recipe, split: Split, log: Log) -> Iterator[Optional[Service]]:
    """The tf.data service that a recipe names; local workers end with the run."""
    asked = recipe.data.service
    if asked is None:
        yield None
        return
    local = asked.partition("local:")[2]
    with local_service(int(local)) if local else contextlib.nullcontext(asked) as target:
        recording, rate = split.corpus.utterances[0].path, recipe.audio.sample_rate
        yield connect_service(target, folder / "service", recording, rate, log, at_least=int(local or 1))


def find_weights(
    context: TrainingContext, stage: Stage, needed: Stage, trained: Mapping[str, Tensors]
) -> Dict[str, np.ndarray]:
    """The published tensors of a stage that another needs: just trained, published, or from a checkpoint."""
    for tensors in (trained.get(needed.name), context.published):
        own = needed.own_weights(tensors)
        if own:
            return own
    folder, collectives = context.folder, context.collectives
    state = collectives.broadcast_state(Checkpoints(folder / needed.name).newest() if collectives.is_chief else None)
    if state is None or not state.counters["finished"]:
        raise RunError(
            f"the {stage.name} stage needs a {needed.name}, and {folder} has no finished one; add {needed.name} to"
            " run.stages, or name published weights in model.weights"
        )
    return needed.published_weights(state.tensors)


def train_stage(context: TrainingContext, stage: Stage, needed: Mapping[str, Tensors]) -> TrainingState:
    """Train a stage from its newest checkpoint to its end, unless it has finished; returns its last state."""
    fingerprint = make_fingerprint(context.recipe, stage, context.dataset, context.plan, needed)
    return _train(context, stage, fingerprint, lambda: prepare_stage(context, stage, needed))


def _train(
    context: TrainingContext, stage: Stage, fingerprint: Fingerprint, make_setup: Callable[[], StageSetup]
) -> TrainingState:
    name, total, is_chief = stage.name, stage.steps(context.recipe), context.collectives.is_chief
    folder = context.folder / name
    state = context.collectives.broadcast_state(_find_checkpoint(context, folder, fingerprint) if is_chief else None)
    done = state.step if state else 0
    if state is not None and _is_over(state, total, context.recipe.train.early_stopping):
        context.log(f"{name}: already finished, after {done:,} steps; skipped")
        return state
    if is_chief:
        files.write_text(folder / "inputs.json", json.dumps(fingerprint, indent=1) + "\n")
    journal = (Journal if is_chief else NullJournal)(context.folder)
    journal.resume(name, done)
    setup = make_setup()
    if setup.feature_devices:
        rates = ", ".join(f"{one.name} {1 / max(one.seconds or 0, 1e-9):,.1f}" for one in setup.feature_devices)
        context.log(f"{name}: batches a second of each data device: {rates}; batches are shared out accordingly")
    loop = _make_loop(setup, journal, done)
    if state is not None:
        try:
            loop.restore(state)
        except WeightsError as error:
            kept = set_aside(folder) if is_chief else folder
            context.log(
                f"{error}\n{name}: the checkpoint belongs to another model; it is kept in {kept.name}, and the stage"
                " starts again from step 0"
            )
            return _train(context, stage, fingerprint, lambda: setup)
        loop.monitor.event("resume", f"resumed after step {done:,}")
        context.log(f"{name}: resuming after step {done:,} of {total:,}")
    with loop.monitor.phase("trace"), ProgressBar(f"{name}: tracing") as bar:
        seconds = loop.steps.trace(bar)
    for function, took in seconds.items():
        loop.monitor.event("trace", function, took)
    context.log(f"{name}: {len(seconds)} functions traced in {sum(seconds.values()):.1f} s")
    return loop.run(done)


def _find_checkpoint(context: TrainingContext, folder: Path, now: Fingerprint) -> Optional[TrainingState]:
    """The checkpoint to continue from, None if there is none; logs what has changed since it was written."""
    state = Checkpoints(folder, context.recipe.train.keep_checkpoints, context.log).newest()
    if state is None:
        return None
    try:
        before: Fingerprint = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    different = ", ".join(diff_fingerprints(before, now))
    if not different:
        return state
    if state.counters["finished"]:
        kept = set_aside(folder)
        context.log(
            f"{folder.name}: training again from step 0 because its settings or data changed: {different};"
            f" the earlier checkpoints are in {kept.name}"
        )
        return None
    context.log(f"{folder.name}: resuming with changed settings or data: {different}")
    return state


def _is_over(state: TrainingState, total: int, early_stopping: int) -> bool:
    stopped_early = state.counters["finished"] and 0 < early_stopping <= state.counters["stale"]
    return state.step >= total or bool(stopped_early)


def _make_loop(setup: StageSetup, journal: Journal, done: int) -> TrainingLoop:
    """The loop of a stage, with its steps, checkpoints and monitor."""
    context, name = setup.context, setup.stage.name
    recipe, placement = context.recipe, context.placement
    steps = TrainingSteps(
        setup.trained,
        setup.optimizer,
        strategy=context.strategy,
        placement=placement,
        recipe=recipe,
        jit_compile=recipe.train.jit_compile is True,
        validation_shape=setup.held_out.shape if recipe.train.validate_every else None,
    )
    functions = [*steps.functions, *setup.functions]
    monitor = Monitor(
        name,
        journal,
        traces=lambda: sum(function.traces for function in functions),
        explain=lambda: "; ".join(function.report() for function in functions if function.retraces),
        gauges=gauges(placement.model_devices[0]),
        live=Live(name, setup.steps, done),
        tensorboard=context.board,
        facts={
            "devices": {"features": ", ".join(placement.data_devices), "model": list(placement.model_devices)},
            "mode": placement.mode,
            "strategy": placement.strategy,
            "tensorflow": compat.OFFERED.version,
        },
        log_every=recipe.train.log_every,
        patience=recipe.train.most_skipped,
    )
    checkpoints = (Checkpoints if context.collectives.is_chief else NullCheckpoints)(
        context.folder / name, recipe.train.keep_checkpoints, context.log
    )
    return TrainingLoop(setup=setup, steps=steps, checkpoints=checkpoints, monitor=monitor)


def write_model(context: TrainingContext, parts: Mapping[str, Tensors]) -> None:
    """Write the folder `model`: trained parts, and published parts that were not trained, under published names."""
    recipe = context.recipe
    tensors: Dict[str, np.ndarray] = {**(context.published or {}), MEL_STATS: context.stats}
    for part in parts.values():
        tensors.update(part)
    rows = len(tensors[assignment.TEXT_ROWS[0]])
    names = tuple(part for part, prefix in PREFIXES.items() if any(name.startswith(prefix) for name in tensors))
    is_published = model_folder.is_published(recipe.model.weights)
    description = ModelDescription(SIZES[recipe.model.size], rows, recipe.audio.n_mels, names, is_published)
    folder = context.folder / model_folder.RUN_MODEL
    shutil.rmtree(folder, ignore_errors=True)
    is_bpe = recipe.text.tokenizer == "bpe"  # a character tokenizer is not a vocab.json, which other programs expect
    vocab = context.folder / TOKENIZER if is_bpe else None
    settings = speaking_settings.read_speaking(recipe.model.weights) if is_published and recipe.model.weights else None
    extend = functools.partial(speaking_settings.write_speaking, settings=settings) if settings else None
    model_folder.write_model_folder(folder, description, tensors, vocab, extend)


def _lock(folder: Path, cluster: Optional[Cluster], log: Log) -> ContextManager[Any]:
    """The lock of the run's folder; with several workers only the chief takes it."""
    return RunLock(folder, log) if cluster is None or cluster.is_chief else contextlib.nullcontext()
