"""Convert a YAML configuration of the earlier MyXTTS into a recipe.

Old names are written as `section.key`. Each is either converted (`TAKEN`), or has no counterpart for a known reason
(`GONE`), or is unknown; the last two are listed and never dropped silently. An invalid value is listed too, with the
reason, and the default is used.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from xtts import files
from xtts.errors import UsageError, XttsError
from xtts.recipe import fields, loading
from xtts.recipe.lines import RecipeError

LARGEST_FILE = 1_000_000  # bytes; a configuration is a page of text
STEPS = 100_000  # used when only epochs were given, as in the shipped recipes for a GPU
SIZE = "normal"  # MyXTTS's default


class MigrateError(UsageError):
    """A configuration that cannot be read or written as a recipe."""


class Taken(NamedTuple):
    """The new key of an old one, and how its values are converted."""

    key: str  # of a recipe
    translate: Callable[[Any], Any] = lambda value: value  # raises a KeyError for a value without a counterpart
    words: str = ""  # how values change, for the documentation


def _worded(key: str, **words: Any) -> Taken:
    shown = ", ".join(f"`{old}` → `{toml_word(new)}`" for old, new in words.items())
    return Taken(key, lambda value: words[str(value).lower()], shown)


def toml_word(value: Any) -> str:
    """A value as TOML writes it."""
    return fields.format_value(value)


TAKEN: Dict[str, Taken] = {  # of two old keys for one new key the first that is present is used
    "model.size": Taken("model.size"),
    "model.model_size": Taken("model.size"),
    "model.sample_rate": Taken("audio.sample_rate"),
    "model.n_mels": Taken("audio.n_mels"),
    "model.n_fft": Taken("audio.n_fft"),
    "model.hop_length": Taken("audio.hop_length"),
    "model.win_length": Taken("audio.win_length"),
    "data.sample_rate": Taken("audio.sample_rate"),
    "data.n_mels": Taken("audio.n_mels"),
    "data.dataset_path": Taken("data.train"),
    "data.train_data": Taken("data.train"),
    "data.val_data": Taken("data.val"),
    "data.metadata_eval_file": Taken("data.val"),
    "data.dataset_name": _worded("data.format", ljspeech="ljspeech", vctk="vctk", common_voice="common_voice"),
    "data.language": Taken("data.language"),
    "data.val_split": Taken("data.validation_share"),
    "data.pad_to_fixed_length": Taken("data.pad_to_fixed_length"),
    "data.enable_static_shapes": Taken("data.pad_to_fixed_length"),
    "data.max_text_length": Taken("data.max_text_length"),
    "data.max_mel_frames": Taken("data.max_mel_frames"),
    "data.reference_audio_length": Taken("data.reference_seconds"),
    "data.preprocessing_mode": _worded("data.features", auto="auto", precompute="cached", runtime="live"),
    "data.num_workers": Taken("data.workers"),
    "data.batch_size": Taken("train.batch_size"),
    "data.mixed_precision": _worded("train.precision", true="float16", false="float32"),
    "data.enable_xla": Taken("train.jit_compile"),
    "data.data_gpu": Taken("devices.data_gpu"),
    "data.model_gpu": Taken("devices.model_gpu"),
    "data.pipeline_buffer_size": Taken("devices.buffer_size"),
    "data.buffer_size": Taken("devices.buffer_size"),
    "data.prefetch_buffer_size": Taken("devices.buffer_size"),
    "data.model_start_delay": Taken("devices.model_start_delay"),
    "data.data_gpu_memory_limit": Taken("devices.data_gpu_memory_limit"),
    "data.model_gpu_memory_limit": Taken("devices.model_gpu_memory_limit"),
    "training.steps": Taken("train.steps"),
    "training.max_steps": Taken("train.steps"),
    "training.batch_size": Taken("train.batch_size"),
    "training.learning_rate": Taken("train.learning_rate"),
    "training.warmup_steps": Taken("train.warmup_steps"),
    "training.weight_decay": Taken("train.weight_decay"),
    "training.gradient_clip_norm": Taken("train.clip_norm"),
    "training.gradient_accumulation_steps": Taken("train.gradient_accumulation_steps"),
    "training.use_warmup_cosine_schedule": _worded("train.schedule", true="cosine"),
    "training.scheduler": _worded("train.schedule", noam="noam", cosine="cosine", constant="constant"),
    "training.early_stopping_patience": Taken("train.early_stopping"),
    "training.save_step": Taken("train.save_every"),
    "training.val_step": Taken("train.validate_every"),
    "training.log_step": Taken("train.log_every"),
    "training.checkpoint_dir": Taken("run.folder"),
    "training.multi_gpu": Taken("devices.multi_gpu"),
    "training.visible_gpus": Taken("devices.visible_gpus", str),
}

GONE = {  # reason: old keys without a counterpart, with * for any letters
    "a recipe counts steps; `xtts plan` says how many an epoch has": "training.epochs",
    "the optimizer is AdamW with its usual constants": "training.optimizer training.beta1 training.beta2 training.eps",
    "the losses of XTTS have no weights to set": """
        training.*loss* training.*label_smoothing* training.*huber* training.*duration* training.*regularization*
        training.stop_token*""",
    "a schedule is constant, cosine or noam, and nothing more is set": """
        training.cosine_restarts training.min_learning_rate training.scheduler_params""",
    "any better loss counts, and gradients are clipped": """
        training.early_stopping_min_delta training.gradient_norm_threshold""",
    "curves are in report.html, and in TensorBoard where it is installed": "training.*wandb*",
    "devices.model_gpu_memory_limit limits memory, and attention keeps no scores": """
        training.max_memory_fraction training.enable_memory_cleanup model.enable_gradient_checkpointing
        model.*attention*""",
    "the model is XTTS; model.size names how large it is": """
        model.text_encoder_* model.audio_encoder_* model.decoder_* model.*speaker* model.*voice* model.contrastive*""",
    "the waveform decoder is XTTS's own": "model.vocoder_* model.*diffusion*",
    "XTTS takes its style from the reference recording": "model.*gst* model.*duration*",
    'tokens are the characters of the corpus, or a vocab.json (text.tokenizer = "bpe")': """
        model.tokenizer* model.*vocab* model.shared_embedding* model.enable_weight_tying""",
    "the corpus says its languages, and the plan its lengths": """
        model.languages model.max_text_length model.*reference_audio_length""",
    "all of the corpus is trained on but data.validation_share, and the plan fits its lengths": """
        data.train_split data.*subset* data.max_text_tokens data.max_audio_length""",
    "recordings are looked for beside the metadata": "data.wavs_*_dir",
    "text is normalised by its language; speakers and languages are columns of the corpus": """
        data.text_cleaners data.add_blank data.*phone* data.*language* data.enable_multi* data.*speaker*""",
    "recordings are taken as they are; prepare them before": """
        data.trim_silence data.normalize_audio data.enable_vad data.*loudness* data.*noise* data.*pitch*""",
    "the feed does that by itself": """
        data.shuffle* data.enable_memory_mapping data.cache_verification data.*prefetch* data.pin_memory
        data.persistent_workers data.use_tf_native_loading data.optimize* data.auto_* data.enable_tensorrt""",
}

FLAGS = {  # of train_main.py, and what replaces them
    "--train-data, --val-data": "`--train-data`, `--val-data`",
    "--batch-size": "`--batch-size`",
    "--grad-accum N": "`--set train.gradient_accumulation_steps=N`",
    "--lr X": "`--set train.learning_rate=X`",
    "--num-workers N": "`--set data.workers=N`",
    "--epochs N": "`--set train.steps=N`, with the steps of an epoch from `xtts plan`",
    "--checkpoint-dir DIR": "`--set run.folder=DIR`",
    "--model-size tiny|small|normal|big": "`--model-size`, which also knows `v2`",
    "--data-gpu, --model-gpu": "`--data-gpu`, `--model-gpu`",
    "--buffer-size, --prefetch-buffer-size": "`--buffer-size`",
    "--model-start-delay": "`--model-start-delay`",
    "--enable-static-shapes, --pad-to-fixed-length": "the same; `data.shapes` knows better ones",
    "--max-text-length, --max-mel-frames": "the same",
    "--multi-gpu, --visible-gpus": "the same",
    "--resume": "nothing: the same command resumes",
    "--reset-training": "another `--set run.name=NAME`, or remove `runs/NAME`",
    "--tensorboard-log-dir DIR": 'nothing: logs are in the run\'s folder, with `pip install "xtts[tensorboard]"`',
    "--enable-evaluation": "`xtts evaluate RUN`",
    "--optimization-level, --apply-fast-convergence, --simple-loss": "nothing: there is one trainer",
    "--decoder-strategy, --vocoder-type, --enable-gst, speaker encoder flags": "nothing: the model is XTTS",
}


class Left(NamedTuple):
    """An old setting that was not converted."""

    key: str
    why: str


class Migrated(NamedTuple):
    """The result of a conversion."""

    tables: Dict[str, Dict[str, Any]]  # of a recipe
    taken: List[Tuple[str, str]]  # old key, new key
    left: List[Left]

    def recipe(self) -> str:
        """The recipe in TOML."""
        import tomlkit

        notes = [f"# {one.key}: {one.why}" for one in self.left]
        head = ["# Made by `xtts migrate`; what found no place:", *notes] if notes else ["# Made by `xtts migrate`."]
        return "\n".join(head) + "\n\n" + tomlkit.dumps(self.tables)

    def text(self) -> str:
        """Both lists as text."""
        lines = [f"{len(self.taken)} settings were taken over, {len(self.left)} were not"]
        lines += [f"  {old} → {new} = {toml_word(self._value(new))}" for old, new in self.taken]
        return "\n".join([*lines, *(f"  {one.key}: not taken over: {one.why}" for one in self.left)])

    def _value(self, key: str) -> Any:
        section, name = key.split(".")
        return self.tables[section][name]


def convert(path: Path) -> Migrated:
    """Convert a MyXTTS configuration."""
    settings = dict(_settings(_read(path)))
    tables: Dict[str, Dict[str, Any]] = {"model": {"size": SIZE}}
    done = Migrated(tables, [], [])
    _join_metadata(settings)
    for old in sorted(settings, key=_rank):
        _take(old, settings[old], done)
    if "training.epochs" in settings and "steps" not in tables.get("train", {}):
        tables.setdefault("train", {})["steps"] = STEPS
    _leave_contradictions(done)
    return done


def write_migrated(path: Path, out: Path) -> Migrated:
    """Write the recipe of a configuration to a new file."""
    done = convert(path)
    if out.exists():
        raise MigrateError(f"{out}: this is there already; name another file with -o, or remove it")
    try:
        files.write_text(out, done.recipe())
    except OSError as error:
        raise XttsError(f"{out}: {error.strerror}; name a file that can be written with -o") from None
    return done


def _read(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise XttsError('YAML is read by PyYAML, which is not installed: pip install "xtts[migrate]"') from None
    try:
        if path.is_dir():
            raise MigrateError(f"{path}: this is a folder; name the YAML file in it")
        if path.stat().st_size > LARGEST_FILE:
            raise MigrateError(f"{path}: the file is too large for a configuration; name a YAML file")
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise MigrateError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise MigrateError(f"{path}: {error.strerror}; make it a readable file") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = path if line is None else f"{path}:{line + 1}"
        what = getattr(error, "problem", None) or type(error).__name__
        raise MigrateError(f"{place}: this is not YAML ({what}); mend it there, or write a recipe by hand") from None


def _settings(document: Any) -> Iterator[Tuple[str, Any]]:
    """Every setting as `section.key`; those outside of a section are looked up in each section."""
    if not isinstance(document, dict) or not document:
        raise MigrateError("the file has no settings; name the YAML configuration of MyXTTS")
    for section, values in document.items():
        if isinstance(values, dict) and section in ("model", "data", "training"):
            yield from ((f"{section}.{_plain(key)}", value) for key, value in values.items())
        else:
            homes = [f"{home}.{_plain(section)}" for home in ("data", "training", "model")]
            yield next((home for home in homes if home in TAKEN), _plain(section)), values


def _plain(key: Any) -> str:
    """A key as text on one line."""
    return " ".join(str(key).split())


def _join_metadata(settings: Dict[str, Any]) -> None:
    """Join the metadata files to the corpus folder, to which they are relative; a recipe names the files."""
    folder, train = settings.get("data.dataset_path"), settings.pop("data.metadata_train_file", None)
    for name, file in (
        ("data.dataset_path", train),
        ("data.metadata_eval_file", settings.get("data.metadata_eval_file")),
    ):
        if isinstance(file, str) and file:
            settings[name] = str(Path(folder, file)) if isinstance(folder, str) else file


def _rank(old: str) -> int:
    names = list(TAKEN)
    return names.index(old) if old in TAKEN else len(names)


def _take(old: str, value: Any, done: Migrated) -> None:
    if value is None or value == "":
        return  # unset
    taken = TAKEN.get(old)
    if taken is None:
        done.left.append(Left(old, _why_gone(old)))
        return
    section, name = taken.key.split(".")
    if any(new == taken.key for _, new in done.taken):
        if done.tables[section][name] != value:
            done.left.append(Left(old, f"{taken.key} was taken from another key"))
        return
    kind = loading.json_schema()["properties"][section]["properties"][name]
    try:
        meant = taken.translate(value)
    except KeyError:
        done.left.append(
            Left(
                old,
                f"{fields.format_value(value)} has no counterpart; {taken.key} may be {fields.describe_field(kind)}",
            )
        )
        return
    if isinstance(meant, str):
        meant = fields.parse_flag(meant, kind)  # YAML 1.1 reads 1e-4 as text
    problem = fields.find_problem(meant, kind)
    if problem:
        done.left.append(Left(old, f"{taken.key}: {problem}"))
        return
    done.tables.setdefault(section, {})[name] = meant
    done.taken.append((old, taken.key))


def _why_gone(old: str) -> str:
    found = next((why for why, names in GONE.items() if any(fnmatchcase(old, name) for name in names.split())), None)
    return found or "not known; docs/settings.md has every setting of a recipe"


def _leave_contradictions(done: Migrated) -> None:
    """Remove contradicting settings, one by one, until the recipe is valid."""
    while True:
        mistake = _first_mistake(done)
        if mistake is None:
            return
        key, problem = mistake
        section, name = key.split(".")
        del done.tables[section][name]
        old = next((old for old, new in done.taken if new == key), key)
        done.taken[:] = [pair for pair in done.taken if pair[1] != key]
        done.left.append(Left(old, f"{key}: {problem}"))


def _first_mistake(done: Migrated) -> Optional[Tuple[str, str]]:
    import tomlkit

    try:
        loading.parse_recipe(tomlkit.dumps(done.tables))
    except RecipeError as error:
        return error.problems[0].key, error.problems[0].text
    return None
