"""A run from its recipe to its report: a recipe comes in; a folder with everything that was made and measured goes out.

    runs/<name>/
      recipe.toml, plan.json, rejected.csv, tokenizer.json, mel_stats.json   what is trained, and on what
      codec/, gpt/                                                           checkpoints, and what they were made from
      metrics.jsonl, validation.jsonl, events.jsonl, summary.json            what happened
      samples/, report.html                                                  to hear and to see
      model/                                                                 weights under their published names
      voices/                                                                held-out recordings to speak like

A stage whose inputs are what they were goes on from its newest checkpoint, and is not repeated when it has ended. One
that had ended with other inputs starts anew, and what it had made is kept beside it.
"""

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterator, List, Optional

import attrs
import numpy as np

from xtts import compat, files
from xtts.audio import wav
from xtts.audio.mel import MelSpec, log_mel
from xtts.corpus.utterances import count_reasons, write_rejected
from xtts.errors import XttsError
from xtts.files import json_digest
from xtts.formatting import count_of
from xtts.inference import voices
from xtts.inference.loading import VOICES
from xtts.pipeline.recordings import Recordings
from xtts.pipeline.service.client import Service, connect_service
from xtts.pipeline.service.servers import local_service
from xtts.planning import plan as plans
from xtts.planning.dataset import Dataset, Log, Split, load_dataset
from xtts.planning.plan import Plan
from xtts.planning.sizes import SIZES
from xtts.progress import ProgressBar
from xtts.recipe import loading
from xtts.recipe.constraints import served_alone
from xtts.recipe.schema import Recipe
from xtts.reporting.journal import Journal
from xtts.reporting.monitor import Live, Monitor
from xtts.reporting.system import gauges
from xtts.reporting.tensorboard import TensorBoard
from xtts.text.tokenizer import TOKENIZER
from xtts.training.checkpoint import Checkpoints, TrainingState, set_aside
from xtts.training.cluster.collectives import Collectives, rendezvous, watch_workers
from xtts.training.cluster.membership import Cluster, ClusterError, resolve_cluster
from xtts.training.cluster.null_writers import NullCheckpoints, NullJournal
from xtts.training.context import StageSetup, TrainingContext, codec_setup, frozen_codecs, gpt_setup
from xtts.training.fingerprint import Fingerprint, check_agreement, diff_fingerprints, make_fingerprint
from xtts.training.loop import TrainingLoop
from xtts.training.placement import Placement, place_devices
from xtts.training.run_lock import RunLock
from xtts.training.signals import interrupted
from xtts.training.step import TrainingSteps
from xtts.weights import assignment, model_folder
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription
from xtts.weights.safetensors_file import Tensors, WeightsError

FEW = 200  # recordings that the scale of mels is measured on


class RunError(XttsError):
    """A run that cannot start, and what to change."""


def train(recipe: Recipe, say: Log = print) -> Optional[Path]:
    """Train every stage of a recipe that is not finished; the run's folder, where this process is who writes it."""
    cluster = resolve_cluster(recipe.cluster)
    folder = Path(recipe.run.folder) / recipe.run.name
    if cluster and recipe.data.service is not None:
        raise ClusterError(f"data.service: {served_alone(cluster.origin)}")
    collectives = Collectives()
    with _written(folder, cluster, say), interrupted(), contextlib.ExitStack() as stack:
        stack.enter_context(watch_workers(cluster, lambda: collectives.has_stepped))
        stack.enter_context(enough_memory(recipe))
        placement = None
        if cluster:  # before anything is read: the chief reads first
            placement = place_devices(recipe.devices, cluster=cluster)
            collectives = rendezvous(placement, recipe.cluster.patience, say)
        published = _published(recipe)
        context = _prepared(recipe, folder, collectives, placement, published, say)
        service = stack.enter_context(_service(folder, context.recipe, context.dataset.train, say))
        context = attrs.evolve(context, service=service)
        say(f"\n{context.plan.text()}")
        say("\n".join(describe_run(context)) + "\n")
        codec: Optional[Tensors] = published
        if "codec" in recipe.run.stages:
            codec = _renamed(_train_codec(context, published).tensors, PREFIXES["codec"])
        if "gpt" in recipe.run.stages:
            _train_gpt(context, _codec_of(context, codec), published)
    return folder if collectives.is_chief else None


def _prepared(
    recipe: Recipe,
    folder: Path,
    collectives: Collectives,
    placement: Optional[Placement],
    published: Optional[Tensors],
    say: Log,
) -> TrainingContext:
    """Everything that is read and planned before the first stage; workers have met before, and see that they agree."""
    decided = collectives.broadcast_json(
        plans.resolve_shapes(recipe, _begun(folder)).data.shapes if collectives.is_chief else None
    )
    recipe = attrs.evolve(recipe, data=attrs.evolve(recipe.data, shapes=decided))
    with collectives.chief_first():
        dataset = load_dataset(recipe, say)
    made = _planned(recipe, dataset, placement.replicas if placement else None)
    if placement is None:
        placement = place_devices(recipe.devices)
        if placement.replicas != made.order.workers:
            made = _planned(recipe, dataset, placement.replicas)
    check_agreement(collectives, recipe, dataset, made)
    stats = _mel_stats(folder, recipe, dataset.train, published) if collectives.is_chief else None
    stats = np.array(
        collectives.broadcast_json(None if stats is None else [float(value) for value in stats]), np.float32
    )
    if collectives.is_chief:
        _record(folder, recipe, dataset, made)
    strategy = collectives.strategy or placement.start_strategy()
    board = TensorBoard(folder / "tensorboard", say, is_wanted=collectives.is_chief)
    return TrainingContext(recipe, folder, dataset, made, placement, strategy, stats, board, say, collectives)


def resume_point(recipe: Recipe) -> str:
    """Where a run that was interrupted goes on, for people; only who writes its folder knows."""
    folder = Path(recipe.run.folder) / recipe.run.name
    for stage in reversed(recipe.run.stages):
        steps = Checkpoints(folder / stage).steps()
        if steps:
            return f"after step {steps[-1]:,} of the {stage} stage"
    return "from the chief's last checkpoint"


@contextlib.contextmanager
def enough_memory(recipe: Recipe) -> Iterator[None]:
    """What is done within needs memory: where there is not enough, a RunError says what to lower."""
    import tensorflow as tf

    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        said = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        rows, parts = recipe.train.batch_size, recipe.train.gradient_accumulation_steps
        raise RunError(
            f"there is not enough memory ({said[:200]}); write train.batch_size = {max(1, rows // 2)}, where it was"
            f" {rows}, and train.gradient_accumulation_steps = {2 * parts} to learn from as many utterances a step;"
            " `xtts plan` says what each device needs, and the run goes on from its last checkpoint"
        ) from None


def newest_sample(folder: Path) -> Optional[Path]:
    """The newest wave a run has made."""
    waves = [line["wav"] for line in Journal(folder).samples() if line.get("wav")]
    return folder / waves[-1] if waves else None


def describe_run(context: TrainingContext) -> List[str]:
    """What a run is about to do, for people: devices, buffer, strategy, shapes and traces."""
    recipe, layout = context.recipe, context.plan.layout
    shapes = layout.shapes
    spans = [sorted({getattr(shape, name) for shape in shapes}) for name in ("text_length", "mel_frames")]
    text, mel = (f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    sizes = f"text {text}, mel {mel}; {len(shapes)} shapes"
    if context.dynamic_shapes:
        pools = count_of(len(shapes), "pool")
        sizes = f"text up to {spans[0][-1]}, mel up to {spans[1][-1]}, each batch as long as its longest; {pools}"
    reserve = context.reserve("gpt", shapes)
    size = f"{reserve.size} batches" + (
        f" ({reserve.smallest} to {reserve.largest})" if reserve.smallest < reserve.largest else ""
    )
    kind = "kept on disk" if context.is_cached else "live, by tf.data service" if context.service else "live"
    traces = {"codec": 1, "gpt": context.plan.traces}
    planned = ", ".join(f"{name} {traces[name]}" for name in recipe.run.stages)
    return [
        *context.placement.lines(),
        *_idle(context),
        f"features are {kind}; buffer: {size}, {context.readers} readers,"
        f" the model starts after {recipe.devices.model_start_delay:g} s at the earliest",
        f"Static shapes (pad_to_fixed_length): {not context.dynamic_shapes}, {recipe.data.shapes}: {sizes},"
        f" traces of a step: {planned}",
    ]


def _idle(context: TrainingContext) -> List[str]:
    idle = context.placement.further if context.is_cached else ()
    return [f"note: {', '.join(idle)} makes nothing: features are kept on disk, not made live"] if idle else []


@contextlib.contextmanager
def _service(folder: Path, recipe: Recipe, part: Split, say: Log) -> Iterator[Optional[Service]]:
    """The tf.data service that a recipe names, or one that ends with the run."""
    asked = recipe.data.service
    if asked is None:
        yield None
        return
    local = asked.partition("local:")[2]
    with local_service(int(local)) if local else contextlib.nullcontext(asked) as target:
        recording, rate = part.corpus.utterances[0].path, recipe.audio.sample_rate
        yield connect_service(target, folder / "service", recording, rate, say, at_least=int(local or 1))


def _train_codec(context: TrainingContext, published: Optional[Tensors]) -> TrainingState:
    """The codec's last state."""
    now = make_fingerprint(context.recipe, "codec", context.dataset, context.plan)
    return _trained(context, "codec", now, lambda: codec_setup(context, published))


def _tensor_digest(tensors: Tensors) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensors[name]).tobytes())
    return sha.hexdigest()


def _train_gpt(context: TrainingContext, codec: Tensors, published: Optional[Tensors]) -> None:
    own = {name: tensor for name, tensor in codec.items() if name.startswith(PREFIXES["codec"])}
    name = _tensor_digest(own)
    now = make_fingerprint(context.recipe, "gpt", context.dataset, context.plan, name)
    frozen = frozen_codecs(context, own, PREFIXES["codec"])
    state = _trained(context, "gpt", now, lambda: gpt_setup(context, frozen, name, published))
    if not context.collectives.is_chief:
        return
    _write_model(context, state, {**(published or {}), **own})
    voices.keep_voices(context.folder / VOICES, context.dataset.held_out.corpus.utterances)


def _trained(context: TrainingContext, name: str, now: Fingerprint, make_rig: Any) -> TrainingState:
    """The last state of a stage: as it was found when it had ended, or after training."""
    folder, total = context.folder / name, context.recipe.steps_of(name)
    state = context.collectives.broadcast_state(_found(context, folder, now) if context.collectives.is_chief else None)
    if state is not None and _is_over(state, total, context.recipe.train.early_stopping):
        context.say(f"{name}: finished before, after {state.step:,} steps; it is not repeated")
        return state
    if context.collectives.is_chief:
        files.write_text(folder / "inputs.json", json.dumps(now, indent=1) + "\n")
    journal = (Journal if context.collectives.is_chief else NullJournal)(context.folder)
    journal.resume(name, state.step if state else 0)
    setup = make_rig()
    if setup.makers:
        rates = ", ".join(f"{maker.name} {1 / max(maker.seconds or 0, 1e-9):,.1f}" for maker in setup.makers)
        context.say(f"{name}: batches a second that each data device makes: {rates}; work is divided by that")
    training = _training(context, setup, journal, total, state.step if state else 0)
    if state is not None:
        try:
            training.restore(state)
        except WeightsError as error:
            kept = set_aside(folder) if context.collectives.is_chief else folder
            context.say(f"{error}\n{name}: the checkpoint is of another model; it is kept as {kept.name}")
            return _trained(context, name, now, lambda: setup)
        training.monitor.event("resume", f"resumed after step {state.step:,}")
        context.say(f"{name}: goes on after step {state.step:,} of {total:,}")
    with training.monitor.phase("trace"), ProgressBar(f"{name}: tracing") as bar:
        seconds = training.steps.trace(bar)
    for function, took in seconds.items():
        training.monitor.event("trace", function, took)
    context.say(f"{name}: {len(seconds)} functions traced in {sum(seconds.values()):.1f} s")
    return training.run(state.step if state else 0)


def _found(context: TrainingContext, folder: Path, now: Fingerprint) -> Optional[TrainingState]:
    """Where a stage goes on from, and what is different from when it was there; None: from the beginning."""
    keep = context.recipe.train.keep_checkpoints
    state = Checkpoints(folder, keep, context.say).newest()
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
        context.say(
            f"{folder.name}: trained anew, because its inputs changed: {different}. What was, is in {kept.name}"
        )
        return None
    context.say(f"{folder.name}: goes on with other inputs than it was begun with: {different}")
    return state


def _training(context: TrainingContext, setup: StageSetup, journal: Journal, total: int, done: int) -> TrainingLoop:
    recipe, name = context.recipe, setup.stage.name
    jit = recipe.train.jit_compile is True
    held_shape = setup.held_shape if recipe.train.validate_every else None
    steps = TrainingSteps(setup.stage, setup.optimizer, context.strategy, context.placement, recipe, jit, held_shape)
    functions = [*steps.functions, *setup.functions]
    model = context.placement.model_devices[0]
    monitor = Monitor(
        name,
        journal,
        traces=lambda: sum(function.traces for function in functions),
        explain=lambda: "; ".join(function.report() for function in functions if function.retraces),
        gauges=gauges(model),
        live=Live(name, total, done),
        tensorboard=context.board,
        facts={
            "devices": {
                "features": ", ".join(context.placement.data_devices),
                "model": list(context.placement.model_devices),
            },
            "mode": context.placement.mode,
            "strategy": context.placement.strategy,
            "tensorflow": compat.OFFERED.version,
        },
        log_every=recipe.train.log_every,
        patience=recipe.train.most_skipped,
    )

    checkpoints = Checkpoints if context.collectives.is_chief else NullCheckpoints

    def lost(utterance: str, why: str) -> None:
        monitor.warn(f"{utterance} is set aside: {why}", "set aside")

    def told(text: str) -> None:
        monitor.event("buffer", text)

    return TrainingLoop(
        setup.stage,
        setup.optimizer,
        steps,
        lambda start: setup.feed(lost, told, start, total),
        setup.held_out,
        setup.sample,
        checkpoints(context.folder / name, recipe.train.keep_checkpoints, context.say),
        monitor,
        recipe.train,
        total,
        context.placement.replicas,
        recipe.devices.model_start_delay,
        setup.begin,
        context.collectives,
    )


def _write_model(context: TrainingContext, state: TrainingState, others: Tensors) -> None:
    """The folder `model`: what was trained, and the parts that were not, under their published names."""
    recipe, prefix = context.recipe, PREFIXES["gpt"]
    tensors = {**others, **_renamed(state.tensors, prefix), MEL_STATS: context.stats}
    tensors.update(_renamed(state.tensors, prefix, "average."))  # where there is one, it speaks
    rows = len(tensors[assignment.TEXT_ROWS[0]])
    parts = tuple(part for part, own in PREFIXES.items() if any(name.startswith(own) for name in tensors))
    is_published = model_folder.is_published(recipe.model.weights)
    description = ModelDescription(SIZES[recipe.model.size], rows, recipe.audio.n_mels, parts, is_published)
    folder = context.folder / model_folder.RUN_MODEL
    shutil.rmtree(folder, ignore_errors=True)
    is_bpe = recipe.text.tokenizer == "bpe"  # one of characters is not a vocab.json, and no other program reads it
    model_folder.write_model_folder(folder, description, tensors, context.folder / TOKENIZER if is_bpe else None)


def _is_over(state: TrainingState, total: int, early_stopping: int) -> bool:
    stopped_early = state.counters["finished"] and 0 < early_stopping <= state.counters["stale"]
    return state.step >= total or bool(stopped_early)


def _begun(folder: Path) -> Optional[str]:
    """With which shapes a run was begun that is in this folder, perhaps on another machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["mode"])
    return None


def _planned(recipe: Recipe, dataset: Dataset, workers: Optional[int] = None) -> Plan:
    lengths = dataset.train.lengths
    return plans.make_plan(
        recipe, lengths.text, lengths.frames, dataset.tokenizer.size, count_reasons(dataset.rejected), workers
    )


def _record(folder: Path, recipe: Recipe, dataset: Dataset, plan: Plan) -> None:
    """What the run is made from, beside what it makes."""
    try:
        files.write_text(folder / "recipe.toml", loading.dump_recipe(recipe))
        files.write_text(folder / "plan.json", json.dumps(plan.as_json(), indent=2, ensure_ascii=False) + "\n")
        write_rejected(folder / "rejected.csv", dataset.rejected)
        dataset.tokenizer.save(folder / TOKENIZER)
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}; name another folder with --set run.folder=...") from None


def _mel_stats(folder: Path, recipe: Recipe, part: Split, published: Optional[Tensors]) -> np.ndarray:
    """What mels are divided by, a number a channel: published, or the size they have in some recordings."""
    if published is not None:
        return np.asarray(published[MEL_STATS], np.float32)
    path = folder / "mel_stats.json"
    spec, recordings = MelSpec.of(recipe.audio), Recordings(part, recipe.audio.sample_rate)
    about = json_digest(recipe.as_tables()["audio"])  # and not the corpus: a codec keeps the scale it was trained with
    with contextlib.suppress(OSError, ValueError, KeyError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["about"] == about:
            return np.array(found["stats"], np.float32)
    squares, count = np.zeros(spec.n_mels), 0
    for position in range(min(FEW, len(part.lengths))):
        with contextlib.suppress(wav.AudioError):
            mel = log_mel(recordings.wave(position), spec).astype(np.float64)
            squares += np.square(mel).sum(axis=0)
            count += len(mel)
    stats = np.sqrt(squares / max(1, count)).astype(np.float32)
    files.write_text(path, json.dumps({"about": about, "stats": [float(value) for value in stats]}) + "\n")
    return stats


def _published(recipe: Recipe) -> Optional[Tensors]:
    """The weights a recipe starts from."""
    if recipe.model.weights is None:
        return None
    model, tensors = model_folder.read_model_folder(recipe.model.weights)
    size = SIZES[recipe.model.size]
    if (model.size.gpt, model.size.codec) != (size.gpt, size.codec) or model.n_mels != recipe.audio.n_mels:
        raise RunError(
            f"model.weights: {recipe.model.weights} holds {model.size.gpt.layers} layers of {model.size.gpt.width},"
            f' which is not model.size = "{recipe.model.size}"; write the size it was published with, such as "v2"'
        )
    if "codec" not in model.parts and "codec" not in recipe.run.stages:
        raise RunError(f"model.weights: {recipe.model.weights} has no codec; import it with --dvae dvae.pth")
    return tensors


def _codec_of(context: TrainingContext, tensors: Optional[Tensors]) -> Tensors:
    """The codec's tensors as published: those given, or of a stage that was trained in this folder before."""
    if tensors is not None and any(name.startswith(PREFIXES["codec"]) for name in tensors):
        return tensors
    folder, collectives = context.folder, context.collectives
    state = collectives.broadcast_state(Checkpoints(folder / "codec").newest() if collectives.is_chief else None)
    if state is None or not state.counters["finished"]:
        raise RunError(
            f"the gpt stage needs a codec, and {folder} has no finished one; add codec to run.stages, or name"
            " published weights in model.weights"
        )
    return _renamed(state.tensors, PREFIXES["codec"])


def _renamed(tensors: Tensors, prefix: str, own: str = "model.") -> Dict[str, np.ndarray]:
    """A checkpoint's weights under a published prefix."""
    return {prefix + name[len(own) :]: tensor for name, tensor in tensors.items() if name.startswith(own)}


def _written(folder: Path, cluster: Optional[Cluster], say: Log) -> ContextManager[Any]:
    """The run's folder as this process's own; of several workers the chief has it."""
    return RunLock(folder, say) if cluster is None or cluster.is_chief else contextlib.nullcontext()
