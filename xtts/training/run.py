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
from xtts.corpus.utterances import counts, write_rejected
from xtts.errors import XttsError
from xtts.files import digest
from xtts.formatting import counted
from xtts.inference import voices
from xtts.inference.loading import VOICES
from xtts.pipeline.recordings import Recordings
from xtts.pipeline.service.client import Service, connect
from xtts.pipeline.service.servers import started
from xtts.planning import plan as plans
from xtts.planning.dataset import Material, Part, Say, gather
from xtts.planning.plan import Plan
from xtts.planning.sizes import SIZES
from xtts.progress import Bar
from xtts.recipe import loading
from xtts.recipe.constraints import served_alone
from xtts.recipe.schema import Recipe
from xtts.reporting.journal import Journal
from xtts.reporting.monitor import Live, Monitor
from xtts.reporting.system import gauges
from xtts.reporting.tensorboard import TensorBoard
from xtts.text.tokenizer import TOKENIZER
from xtts.training.checkpoint import Checkpoints, State, set_aside
from xtts.training.cluster.collectives import Crew, meet, watched
from xtts.training.cluster.membership import Cluster, ClusterError, resolve
from xtts.training.cluster.null_writers import QuietCheckpoints, QuietJournal
from xtts.training.context import Rig, Session, codec_rig, frozen_codecs, gpt_rig
from xtts.training.fingerprint import Inputs, changes, check_agreement, inputs
from xtts.training.loop import Training
from xtts.training.placement import Placement, place
from xtts.training.run_lock import RunLock
from xtts.training.signals import interrupted
from xtts.training.step import Steps
from xtts.weights import importing
from xtts.weights.layout import MEL_STATS, PREFIXES, Description
from xtts.weights.safetensors_file import Tensors, WeightsError

FEW = 200  # recordings that the scale of mels is measured on


class RunError(XttsError):
    """A run that cannot start, and what to change."""


def run(recipe: Recipe, say: Say = print) -> Optional[Path]:
    """Train every stage of a recipe that is not finished; the run's folder, where this process is who writes it."""
    cluster = resolve(recipe.cluster)
    folder = Path(recipe.run.folder) / recipe.run.name
    if cluster and recipe.data.service is not None:
        raise ClusterError(f"data.service: {served_alone(cluster.origin)}")
    crew = Crew()
    with _written(folder, cluster, say), interrupted(), contextlib.ExitStack() as stack:
        stack.enter_context(watched(cluster, lambda: crew.has_stepped))
        stack.enter_context(enough_memory(recipe))
        placement = None
        if cluster:  # before anything is read: the chief reads first
            placement = place(recipe.devices, cluster=cluster)
            crew = meet(placement, recipe.cluster.patience, say)
        published = _published(recipe)
        session = _prepared(recipe, folder, crew, placement, published, say)
        service = stack.enter_context(_service(folder, session.recipe, session.material.train, say))
        session = attrs.evolve(session, service=service)
        say(f"\n{session.plan.text()}")
        say("\n".join(block(session)) + "\n")
        codec: Optional[Tensors] = published
        if "codec" in recipe.run.stages:
            codec = _renamed(_train_codec(session, published).tensors, PREFIXES["codec"])
        if "gpt" in recipe.run.stages:
            _train_gpt(session, _codec_of(session, codec), published)
    return folder if crew.is_chief else None


def _prepared(
    recipe: Recipe,
    folder: Path,
    crew: Crew,
    placement: Optional[Placement],
    published: Optional[Tensors],
    say: Say,
) -> Session:
    """Everything that is read and planned before the first stage; workers have met before, and see that they agree."""
    decided = crew.told_json(plans.settled(recipe, _begun(folder)).data.shapes if crew.is_chief else None)
    recipe = attrs.evolve(recipe, data=attrs.evolve(recipe.data, shapes=decided))
    with crew.chief_first():
        material = gather(recipe, say)
    made = _planned(recipe, material, placement.replicas if placement else None)
    if placement is None:
        placement = place(recipe.devices)
        if placement.replicas != made.order.workers:
            made = _planned(recipe, material, placement.replicas)
    check_agreement(crew, recipe, material, made)
    stats = _mel_stats(folder, recipe, material.train, published) if crew.is_chief else None
    stats = np.array(crew.told_json(None if stats is None else [float(value) for value in stats]), np.float32)
    if crew.is_chief:
        _record(folder, recipe, material, made)
    strategy = crew.strategy or placement.start_strategy()
    board = TensorBoard(folder / "tensorboard", say, is_wanted=crew.is_chief)
    return Session(recipe, folder, material, made, placement, strategy, stats, board, say, crew)


def goes_on(recipe: Recipe) -> str:
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


def last_wave(folder: Path) -> Optional[Path]:
    """The newest wave a run has made."""
    waves = [line["wav"] for line in Journal(folder).samples() if line.get("wav")]
    return folder / waves[-1] if waves else None


def block(session: Session) -> List[str]:
    """What a run is about to do, for people: devices, buffer, strategy, shapes and traces."""
    recipe, layout = session.recipe, session.plan.layout
    shapes = layout.shapes
    spans = [sorted({getattr(shape, name) for shape in shapes}) for name in ("text_length", "mel_frames")]
    text, mel = (f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    sizes = f"text {text}, mel {mel}; {len(shapes)} shapes"
    if session.is_free:
        pools = counted(len(shapes), "pool")
        sizes = f"text up to {spans[0][-1]}, mel up to {spans[1][-1]}, each batch as long as its longest; {pools}"
    reserve = session.reserve("gpt", shapes)
    size = f"{reserve.size} batches" + (f" ({reserve.least} to {reserve.most})" if reserve.least < reserve.most else "")
    kind = "kept on disk" if session.is_cached else "live, by tf.data service" if session.service else "live"
    traces = {"codec": 1, "gpt": session.plan.traces}
    planned = ", ".join(f"{name} {traces[name]}" for name in recipe.run.stages)
    return [
        *session.placement.lines(),
        *_idle(session),
        f"features are {kind}; buffer: {size}, {session.readers} readers,"
        f" the model starts after {recipe.devices.model_start_delay:g} s at the earliest",
        f"Static shapes (pad_to_fixed_length): {not session.is_free}, {recipe.data.shapes}: {sizes},"
        f" traces of a step: {planned}",
    ]


def _idle(session: Session) -> List[str]:
    idle = session.placement.further if session.is_cached else ()
    return [f"note: {', '.join(idle)} makes nothing: features are kept on disk, not made live"] if idle else []


@contextlib.contextmanager
def _service(folder: Path, recipe: Recipe, part: Part, say: Say) -> Iterator[Optional[Service]]:
    """The tf.data service that a recipe names, or one that ends with the run."""
    asked = recipe.data.service
    if asked is None:
        yield None
        return
    local = asked.partition("local:")[2]
    with started(int(local)) if local else contextlib.nullcontext(asked) as target:
        recording, rate = part.corpus.utterances[0].path, recipe.audio.sample_rate
        yield connect(target, folder / "service", recording, rate, say, at_least=int(local or 1))


def _train_codec(session: Session, published: Optional[Tensors]) -> State:
    """The codec's last state."""
    now = inputs(session.recipe, "codec", session.material, session.plan)
    return _trained(session, "codec", now, lambda: codec_rig(session, published))


def _tensor_digest(tensors: Tensors) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensors[name]).tobytes())
    return sha.hexdigest()


def _train_gpt(session: Session, codec: Tensors, published: Optional[Tensors]) -> None:
    own = {name: tensor for name, tensor in codec.items() if name.startswith(PREFIXES["codec"])}
    name = _tensor_digest(own)
    now = inputs(session.recipe, "gpt", session.material, session.plan, name)
    frozen = frozen_codecs(session, own, PREFIXES["codec"])
    state = _trained(session, "gpt", now, lambda: gpt_rig(session, frozen, name, published))
    if not session.crew.is_chief:
        return
    _write_model(session, state, {**(published or {}), **own})
    voices.keep(session.folder / VOICES, session.material.held_out.corpus.utterances)


def _trained(session: Session, name: str, now: Inputs, make_rig: Any) -> State:
    """The last state of a stage: as it was found when it had ended, or after training."""
    folder, total = session.folder / name, session.recipe.steps_of(name)
    state = session.crew.told_state(_found(session, folder, now) if session.crew.is_chief else None)
    if state is not None and _is_over(state, total, session.recipe.train.early_stopping):
        session.say(f"{name}: finished before, after {state.step:,} steps; it is not repeated")
        return state
    if session.crew.is_chief:
        files.write(folder / "inputs.json", json.dumps(now, indent=1) + "\n")
    journal = (Journal if session.crew.is_chief else QuietJournal)(session.folder)
    journal.resume(name, state.step if state else 0)
    rig = make_rig()
    if rig.makers:
        rates = ", ".join(f"{maker.name} {1 / max(maker.seconds or 0, 1e-9):,.1f}" for maker in rig.makers)
        session.say(f"{name}: batches a second that each data device makes: {rates}; work is divided by that")
    training = _training(session, rig, journal, total, state.step if state else 0)
    if state is not None:
        try:
            training.restore(state)
        except WeightsError as error:
            kept = set_aside(folder) if session.crew.is_chief else folder
            session.say(f"{error}\n{name}: the checkpoint is of another model; it is kept as {kept.name}")
            return _trained(session, name, now, lambda: rig)
        training.monitor.event("resume", f"resumed after step {state.step:,}")
        session.say(f"{name}: goes on after step {state.step:,} of {total:,}")
    with training.monitor.aside("trace"), Bar(f"{name}: tracing") as bar:
        seconds = training.steps.trace(bar)
    for function, took in seconds.items():
        training.monitor.event("trace", function, took)
    session.say(f"{name}: {len(seconds)} functions traced in {sum(seconds.values()):.1f} s")
    return training.run(state.step if state else 0)


def _found(session: Session, folder: Path, now: Inputs) -> Optional[State]:
    """Where a stage goes on from, and what is different from when it was there; None: from the beginning."""
    keep = session.recipe.train.keep_checkpoints
    state = Checkpoints(folder, keep, session.say).newest()
    if state is None:
        return None
    try:
        before: Inputs = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    different = ", ".join(changes(before, now))
    if not different:
        return state
    if state.counters["finished"]:
        kept = set_aside(folder)
        session.say(
            f"{folder.name}: trained anew, because its inputs changed: {different}. What was, is in {kept.name}"
        )
        return None
    session.say(f"{folder.name}: goes on with other inputs than it was begun with: {different}")
    return state


def _training(session: Session, rig: Rig, journal: Journal, total: int, done: int) -> Training:
    recipe, name = session.recipe, rig.stage.name
    jit = recipe.train.jit_compile is True
    held_shape = rig.held_shape if recipe.train.validate_every else None
    steps = Steps(rig.stage, rig.optimizer, session.strategy, session.placement, recipe, jit, held_shape)
    functions = [*steps.functions, *rig.functions]
    model = session.placement.model_devices[0]
    monitor = Monitor(
        name,
        journal,
        traces=lambda: sum(function.traces for function in functions),
        explain=lambda: "; ".join(function.report() for function in functions if function.retraces),
        gauges=gauges(model),
        live=Live(name, total, done),
        tensorboard=session.board,
        facts={
            "devices": {
                "features": ", ".join(session.placement.data_devices),
                "model": list(session.placement.model_devices),
            },
            "mode": session.placement.mode,
            "strategy": session.placement.strategy,
            "tensorflow": compat.OFFERED.version,
        },
        log_every=recipe.train.log_every,
        patience=recipe.train.most_skipped,
    )

    checkpoints = Checkpoints if session.crew.is_chief else QuietCheckpoints

    def lost(utterance: str, why: str) -> None:
        monitor.warn(f"{utterance} is set aside: {why}", "set aside")

    def told(text: str) -> None:
        monitor.event("buffer", text)

    return Training(
        rig.stage,
        rig.optimizer,
        steps,
        lambda start: rig.feed(lost, told, start, total),
        rig.held_out,
        rig.sample,
        checkpoints(session.folder / name, recipe.train.keep_checkpoints, session.say),
        monitor,
        recipe.train,
        total,
        session.placement.replicas,
        recipe.devices.model_start_delay,
        rig.begin,
        session.crew,
    )


def _write_model(session: Session, state: State, others: Tensors) -> None:
    """The folder `model`: what was trained, and the parts that were not, under their published names."""
    recipe, prefix = session.recipe, PREFIXES["gpt"]
    tensors = {**others, **_renamed(state.tensors, prefix), MEL_STATS: session.stats}
    tensors.update(_renamed(state.tensors, prefix, "average."))  # where there is one, it speaks
    rows = len(tensors[importing.TEXT_ROWS[0]])
    parts = tuple(part for part, own in PREFIXES.items() if any(name.startswith(own) for name in tensors))
    is_published = importing.is_published(recipe.model.weights)
    description = Description(SIZES[recipe.model.size], rows, recipe.audio.n_mels, parts, is_published)
    folder = session.folder / importing.RUN_MODEL
    shutil.rmtree(folder, ignore_errors=True)
    is_bpe = recipe.text.tokenizer == "bpe"  # one of characters is not a vocab.json, and no other program reads it
    importing.write_folder(folder, description, tensors, session.folder / TOKENIZER if is_bpe else None)


def _is_over(state: State, total: int, early_stopping: int) -> bool:
    stopped_early = state.counters["finished"] and 0 < early_stopping <= state.counters["stale"]
    return state.step >= total or bool(stopped_early)


def _begun(folder: Path) -> Optional[str]:
    """With which shapes a run was begun that is in this folder, perhaps on another machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["mode"])
    return None


def _planned(recipe: Recipe, material: Material, workers: Optional[int] = None) -> Plan:
    lengths = material.train.lengths
    return plans.plan(recipe, lengths.text, lengths.frames, material.tokenizer.size, counts(material.rejected), workers)


def _record(folder: Path, recipe: Recipe, material: Material, plan: Plan) -> None:
    """What the run is made from, beside what it makes."""
    try:
        files.write(folder / "recipe.toml", loading.dumps(recipe))
        files.write(folder / "plan.json", json.dumps(plan.as_json(), indent=2, ensure_ascii=False) + "\n")
        write_rejected(folder / "rejected.csv", material.rejected)
        material.tokenizer.save(folder / TOKENIZER)
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}; name another folder with --set run.folder=...") from None


def _mel_stats(folder: Path, recipe: Recipe, part: Part, published: Optional[Tensors]) -> np.ndarray:
    """What mels are divided by, a number a channel: published, or the size they have in some recordings."""
    if published is not None:
        return np.asarray(published[MEL_STATS], np.float32)
    path = folder / "mel_stats.json"
    spec, recordings = MelSpec.of(recipe.audio), Recordings(part, recipe.audio.sample_rate)
    about = digest(recipe.as_tables()["audio"])  # and not the corpus: a codec keeps the scale it was trained with
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
    files.write(path, json.dumps({"about": about, "stats": [float(value) for value in stats]}) + "\n")
    return stats


def _published(recipe: Recipe) -> Optional[Tensors]:
    """The weights a recipe starts from."""
    if recipe.model.weights is None:
        return None
    model, tensors = importing.read_folder(recipe.model.weights)
    size = SIZES[recipe.model.size]
    if (model.size.gpt, model.size.codec) != (size.gpt, size.codec) or model.n_mels != recipe.audio.n_mels:
        raise RunError(
            f"model.weights: {recipe.model.weights} holds {model.size.gpt.layers} layers of {model.size.gpt.width},"
            f' which is not model.size = "{recipe.model.size}"; write the size it was published with, such as "v2"'
        )
    if "codec" not in model.parts and "codec" not in recipe.run.stages:
        raise RunError(f"model.weights: {recipe.model.weights} has no codec; import it with --dvae dvae.pth")
    return tensors


def _codec_of(session: Session, tensors: Optional[Tensors]) -> Tensors:
    """The codec's tensors as published: those given, or of a stage that was trained in this folder before."""
    if tensors is not None and any(name.startswith(PREFIXES["codec"]) for name in tensors):
        return tensors
    folder, crew = session.folder, session.crew
    state = crew.told_state(Checkpoints(folder / "codec").newest() if crew.is_chief else None)
    if state is None or not state.counters["finished"]:
        raise RunError(
            f"the gpt stage needs a codec, and {folder} has no finished one; add codec to run.stages, or name"
            " published weights in model.weights"
        )
    return _renamed(state.tensors, PREFIXES["codec"])


def _renamed(tensors: Tensors, prefix: str, own: str = "model.") -> Dict[str, np.ndarray]:
    """A checkpoint's weights under a published prefix."""
    return {prefix + name[len(own) :]: tensor for name, tensor in tensors.items() if name.startswith(own)}


def _written(folder: Path, cluster: Optional[Cluster], say: Say) -> ContextManager[Any]:
    """The run's folder as this process's own; of several workers the chief has it."""
    return RunLock(folder, say) if cluster is None or cluster.is_chief else contextlib.nullcontext()
