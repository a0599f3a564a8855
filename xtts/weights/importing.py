"""Weights under their published names: a checkpoint comes in, a model's folder goes out, and a file for others.

A folder holds `model.safetensors` (every tensor bit for bit as published: names, layouts, halves of normed weights),
`model.json` (the sizes, found from the shapes) and, where it was given, `vocab.json`. `load_into` and `save_from` carry
tensors into the modules of `xtts.model` and out of them, transposed to the layout that each wants. What does not fit
is told in one list, and then nothing has been loaded or written.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import attrs
import numpy as np

from xtts.weights import safetensors_file, torch_file
from xtts.weights.layout import (
    DIRECTION,
    MEL_STATS,
    NORMED,
    PREFIXES,
    Description,
    constants,
    describe,
    problems,
)
from xtts.weights.layout import published as published_name
from xtts.weights.safetensors_file import Tensors, WeightsError
from xtts.weights.unpickling import Inert

MODEL, SIZES, VOCAB = "model.safetensors", "model.json", "vocab.json"
RUN_MODEL = "model"  # where a run keeps its model
REQUIRED = ("gpt", "decoder", "speaker")  # of a published checkpoint; the codec is a file of its own
TEXT_ROWS = ("gpt.text_embedding.weight", "gpt.text_head.weight", "gpt.text_head.bias")
LARGEST_JSON = 100_000_000  # bytes
LICENCE = (
    "The published XTTS weights, v1 and v2, are under the Coqui Public Model License, for non-commercial use only.\n"
    "That holds for what is trained from them too; the licence of this program, Apache-2.0, does not change it."
)
PathLike = Union[str, Path]


@attrs.frozen
class Imported:
    """What an import found and made."""

    folder: Path
    model: Description
    tensors: int
    ignored: int  # tensors that are no part of the model
    added_rows: int  # of the text vocabulary

    def text(self) -> str:
        gpt, parts = self.model.size.gpt, ", ".join(self.model.parts)
        lines = [
            f"{self.folder}: {self.tensors:,} tensors of {parts}",
            f"  {gpt.layers} layers, width {gpt.width}, {gpt.heads} heads; {self.model.text_tokens:,} text tokens, "
            f"{self.model.size.codec.codes:,} codes",
        ]
        if not gpt.perceiver_layers:
            lines.append("  no perceiver: an XTTS v1 can be exported, but neither trained nor spoken with; import a v2")
        if "codec" not in self.model.parts:
            lines.append("  no codec: it can speak, but not train; import it with --dvae dvae.pth for that")
        if self.ignored:
            lines.append(f"  {self.ignored:,} tensors that are no part of the model were left out")
        if self.added_rows:
            lines.append(f"  {self.added_rows:,} rows were added for new text tokens; the old ones are as they were")
        return "\n".join([*lines, "", LICENCE])


def import_checkpoint(
    model: PathLike,
    out: PathLike,
    dvae: Optional[PathLike] = None,
    vocab: Optional[PathLike] = None,
    mel_norms: Optional[PathLike] = None,
    config: Optional[PathLike] = None,
    extend: bool = False,
    seed: int = 0,
) -> Imported:
    """Make the folder `out` of a published checkpoint, or of a trainer's; .pth or .safetensors. Nothing in it is run.

    `extend`: where the vocabulary has more tokens than the checkpoint, add rows for them.
    """
    out = Path(out)
    _check_empty(out)
    tables = _read(model)
    tensors, ignored = _tensors(_state(tables, model), model)
    if dvae is not None:
        codec, more = _tensors(_state(_read(dvae), dvae), dvae)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIXES["codec"])}
        tensors.update((_prefixed(name, PREFIXES["codec"]), tensor) for name, tensor in codec.items())
        ignored += more
    if mel_norms is not None:
        tensors[MEL_STATS] = _only_tensor(_read(mel_norms), mel_norms)
    found = describe(tensors, _settings(tables, config))
    found = attrs.evolve(found, parts=tuple(part for part in PREFIXES if part in found.parts or part in REQUIRED))
    _check(found, tensors, str(model))
    before = found.text_tokens
    if vocab is not None:
        tokens = _vocabulary_size(Path(vocab))
        if tokens > before and not extend:
            raise WeightsError(
                f"{vocab}: it has {tokens:,} tokens and the checkpoint rows for {before:,}; name the vocabulary that "
                "the checkpoint was trained with, or add rows for the new tokens with --extend"
            )
        if tokens > before:
            tensors = extend_text(tensors, tokens, np.random.default_rng(seed))
            found = attrs.evolve(found, text_tokens=tokens)
    write_folder(out, found, tensors, vocab)
    return Imported(out, found, len(tensors), ignored, found.text_tokens - before)


def export(folder: PathLike, out: PathLike) -> List[Path]:
    """Write a folder's model under the names that the public implementation loads; the files that were written.

    The codec goes to a file of its own beside `out`, `NAME.dvae.safetensors`, as it is published.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise WeightsError(f"{out}: this is what the file is to be; give it a name that ends in .safetensors")
    model, tensors = read_folder(folder)
    complete = {**constants(model), **_normed(tensors)}
    prefix = PREFIXES["codec"]
    codec = {name[len(prefix) :]: tensor for name, tensor in complete.items() if name.startswith(prefix)}
    files = {out: {name: tensor for name, tensor in complete.items() if not name.startswith(prefix)}}
    if codec:
        files[out.with_name(f"{out.stem}.dvae.safetensors")] = codec
    for path, content in files.items():
        safetensors_file.write(path, content, {"format": "pt"})
    return list(files)


def read_folder(folder: PathLike) -> Tuple[Description, Tensors]:
    """A folder's sizes and tensors, checked against each other."""
    path, model = _described(folder)
    tensors, _ = safetensors_file.read(path.with_name(MODEL))
    _check(model, tensors, str(path.with_name(MODEL)))
    return model, tensors


def is_published(folder: Optional[PathLike]) -> bool:
    """Whether a run that starts from a folder's weights, or from none, starts from published ones."""
    return folder is not None and _described(folder)[1].is_published


def _described(folder: PathLike) -> Tuple[Path, Description]:
    """What a folder says of its model, and in which file."""
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder}: there is no such folder; name one that an import or a run has made")
    if not (folder / SIZES).exists() and (folder / RUN_MODEL).is_dir():
        folder = folder / RUN_MODEL
    path = folder / SIZES
    try:
        from cattrs import Converter

        return path, Converter(forbid_extra_keys=True).structure(_json(path), Description)
    except WeightsError:
        raise
    except Exception:  # whatever a converter makes of what a table may hold
        raise WeightsError(f"{path}: this does not state a model's sizes; import the checkpoint anew") from None


def write_folder(
    folder: PathLike, model: Description, tensors: Mapping[str, np.ndarray], vocab: Optional[PathLike] = None
) -> None:
    """Make a model's folder, which must not be there yet or be empty; whole or not at all."""
    folder = Path(folder)
    _check_empty(folder)
    _check(model, tensors, str(folder))
    draft = folder.parent / f".{folder.name}.{os.getpid()}"
    try:
        draft.mkdir(parents=True)
        safetensors_file.write(draft / MODEL, tensors, {"format": "pt"})
        (draft / SIZES).write_text(json.dumps(attrs.asdict(model), indent=2) + "\n", encoding="utf-8")
        if vocab is not None:
            shutil.copyfile(str(vocab), str(draft / VOCAB))
        if folder.exists():
            folder.rmdir()
        draft.replace(folder)
    except OSError as error:
        raise WeightsError(f"{folder}: {error.strerror}; name a folder that can be written") from None
    finally:
        shutil.rmtree(str(draft), ignore_errors=True)


def load_into(module: Any, tensors: Mapping[str, np.ndarray], prefix: str = "") -> None:
    """Give a module of `xtts.model` its weights: those named `prefix` and then as the module says.

    All are checked before the first is given. Normed weights are folded where the module has them so.
    """
    wanted = module.weights()
    mine = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if any(name.endswith(DIRECTION) and name[len(prefix) :] not in wanted for name in mine):
        from xtts.weights.weight_norm import fold

        mine = fold(mine)
    mine = {name[len(prefix) :]: tensor for name, tensor in mine.items()}
    assign(wanted, mine, f"the weights of {type(module).__name__}", prefix)


def assign(wanted: Mapping[str, Any], tensors: Mapping[str, np.ndarray], what: str, prefix: str = "") -> None:
    """Give weights of `xtts.model.layers` tensors as published, by name; all are checked before one is given."""
    wrong = []
    for name, weight in wanted.items():
        if name not in tensors:
            wrong.append(f"{prefix}{name}: missing, expected {list(weight.published_shape)}")
        elif tensors[name].shape != weight.published_shape:
            wrong.append(f"{prefix}{name}: has {list(tensors[name].shape)}, expected {list(weight.published_shape)}")
    for name, tensor in tensors.items():
        if name not in wanted and not _is_constant(name):
            wrong.append(f"{prefix}{name}: surplus, has {list(tensor.shape)}")
    if wrong:
        raise WeightsError(_list_of(f"{what} do not fit", wrong))
    for name, weight in wanted.items():
        value = tensors[name].astype(weight.variable.dtype.as_numpy_dtype, copy=False)
        weight.variable.assign(value if weight.axes is None else np.transpose(value, weight.axes))


def published(weight: Any) -> np.ndarray:
    """A weight's value as it is published."""
    value = np.asarray(weight.variable.numpy())
    return value if weight.axes is None else np.transpose(value, np.argsort(weight.axes))


def save_from(module: Any, prefix: str = "") -> Tensors:
    """A module's weights as they are published: names after `prefix`, and layouts."""
    return {prefix + name: published(weight) for name, weight in module.weights().items()}


def extend_text(tensors: Mapping[str, np.ndarray], count: int, random: np.random.Generator) -> Tensors:
    """The tensors with rows for `count` text tokens; the rows that were there keep every bit.

    A new row is the mean of the old ones plus noise of a tenth of their deviation, column by column, and a new bias is
    their mean: to the model a new token is at first a middling old one, neither likely nor strange, and no two are
    the same.
    """
    found = dict(tensors)
    for name in TEXT_ROWS:
        rows = found.get(name)
        if rows is None:
            raise WeightsError(f"{name} is missing; the text vocabulary of a checkpoint with its gpt can be extended")
        if count < len(rows):
            raise WeightsError(f"{name} has {len(rows):,} rows, more than {count:,}; a vocabulary can only grow")
        mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        noise = random.standard_normal((count - len(rows), *rows.shape[1:])) if rows.ndim > 1 else 0.0
        new = np.broadcast_to(mean + 0.1 * deviation * noise, (count - len(rows), *rows.shape[1:]))
        found[name] = np.concatenate([rows, new.astype(rows.dtype)])
    return found


def _read(path: PathLike) -> Any:
    """What is in a checkpoint's file, of either format."""
    return safetensors_file.read(path)[0] if Path(path).suffix == ".safetensors" else torch_file.load(path)


def _state(tables: Any, path: PathLike) -> Dict[Any, Any]:
    """The table of tensors: the file's `model`, or all of it."""
    state = tables.get("model", tables) if isinstance(tables, dict) else tables
    if not isinstance(state, dict) or not any(isinstance(value, np.ndarray) for value in state.values()):
        raise WeightsError(f"{path}: there is no table of tensors in it; name a checkpoint, such as model.pth")
    return state


def _tensors(state: Dict[Any, Any], path: PathLike) -> Tuple[Tensors, int]:
    """The tensors that are a part of the model, by published names, and how many are not."""
    found: Tensors = {}
    wrong: List[str] = []
    ignored = 0
    for key, value in state.items():
        name = published_name(key) if isinstance(key, str) else str(key)
        if name is None:
            ignored += 1
        elif not isinstance(value, np.ndarray) or not isinstance(key, str):
            wrong.append(f"{key!a}: is {_kind_of(value)}, expected a tensor under a name")
        elif name in found:
            wrong.append(f"{key}: is there twice, as {name}")
        else:
            found[name] = value
    if wrong:
        raise WeightsError(_list_of(f"{path}: what it holds are not all tensors", wrong))
    return found, ignored


def _kind_of(value: Any) -> str:
    return f"of the kind {value.name}" if isinstance(value, Inert) else type(value).__name__


def _prefixed(name: str, prefix: str) -> str:
    return name if name.startswith(prefix) else prefix + name


def _only_tensor(value: Any, path: PathLike) -> np.ndarray:
    """The tensor of a file that holds one, alone or in a table."""
    values = list(value.values()) if isinstance(value, dict) else [value]
    if len(values) != 1 or not isinstance(values[0], np.ndarray):
        raise WeightsError(f"{path}: there is not one tensor in it; name the file of mel norms, mel_norms.pth")
    return values[0]


def _settings(tables: Any, config: Optional[PathLike]) -> Dict[str, Any]:
    """What a Coqui config says of the model: that of a file, or the one a checkpoint has within it."""
    within = tables.get("config") if isinstance(tables, dict) and "model" in tables else None
    settings = _json(Path(config)) if config is not None else within
    if isinstance(settings, str):  # some trainers store the text of it
        try:
            settings = json.loads(settings)
        except (ValueError, RecursionError):
            settings = None
    settings = _table(settings)
    return _table(settings.get("model_args", settings))


def _table(value: Any) -> Dict[str, Any]:
    """A table, be it one or a config's object that was not made."""
    value = value.state if isinstance(value, Inert) else value
    return value if isinstance(value, dict) else {}


def _vocabulary_size(path: Path) -> int:
    """Rows that a vocabulary wants: one more than its highest token."""
    table = _json(path)
    try:
        tokens = list(table["model"]["vocab"].values())
        tokens += [token["id"] for token in table.get("added_tokens", [])]
        if not tokens or not all(type(token) is int and 0 <= token < 2**24 for token in tokens):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise WeightsError(f"{path}: there is no vocabulary in it; name a vocab.json as XTTS publishes it") from None
    return int(max(tokens)) + 1


def _json(path: Path) -> Any:
    try:
        if path.is_file() and path.stat().st_size > LARGEST_JSON:
            raise WeightsError(f"{path}: the file is too large for what it should be; name a JSON file")
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be read") from None
    except (ValueError, RecursionError):
        raise WeightsError(f"{path}: this is not JSON; name a JSON file") from None


def _check(model: Description, tensors: Mapping[str, np.ndarray], place: str) -> None:
    wrong = problems(model, tensors)
    if model.size.gpt.width % model.size.gpt.heads:
        wrong.append(f"a width of {model.size.gpt.width} is not divided by {model.size.gpt.heads} heads")
    if wrong:
        raise WeightsError(_list_of(f"{place}: the tensors are not those of a model", wrong))


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise WeightsError(f"{folder}: this is there already; name a folder that is new or empty")


def _list_of(what: str, wrong: List[str]) -> str:
    return "\n".join([f"{what}; nothing was loaded. {len(wrong):,} do not fit:", *(f"  {line}" for line in wrong)])


def _normed(tensors: Tensors) -> Tensors:
    """The tensors with every weight in halves that the public implementation has in halves."""
    folded = [name for name in tensors if NORMED.fullmatch(name)]
    if not folded:
        return tensors
    from xtts.weights.weight_norm import unfold

    return unfold(tensors, folded)


def _is_constant(name: str) -> bool:
    """Whether a published tensor is none that a module has: counters and tables that can be made anew."""
    return name.endswith("num_batches_tracked") or name.startswith(("torch_spec.", "discrete_loss."))
