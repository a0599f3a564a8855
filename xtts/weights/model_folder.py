"""A model folder: tensors, sizes and vocabulary."""

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Tuple, Union

import attrs
import numpy as np

from xtts.files import draft_folder
from xtts.weights import safetensors_file
from xtts.weights.layout import ModelDescription, layout_problems, list_mismatches
from xtts.weights.safetensors_file import Tensors, WeightsError

MODEL, SIZES, VOCAB = "model.safetensors", "model.json", "vocab.json"
RUN_MODEL = "model"  # subfolder of a run
ORIGIN, OWN = "origin", "trained with xtts from nothing"  # metadata of exported weights that are not published ones
MAX_JSON_BYTES = 100_000_000

PathLike = Union[str, Path]


def read_model_folder(folder: PathLike) -> Tuple[ModelDescription, Tensors]:
    """A folder's model description and its tensors, checked against each other."""
    path, model = _find_description(folder)
    tensors, _ = safetensors_file.read_safetensors(path.with_name(MODEL))
    _check_layout(model, tensors, str(path.with_name(MODEL)))
    return model, tensors


def is_published(folder: Optional[PathLike]) -> bool:
    """Whether a folder holds published weights, or a model trained from them; None: no folder, so not."""
    return folder is not None and read_description(folder).is_published


def read_description(folder: PathLike) -> ModelDescription:
    """A folder's model description."""
    return _find_description(folder)[1]


def has_model(folder: PathLike) -> bool:
    """Whether a folder, of an import or of a run, has a model description."""
    return any((Path(folder) / inner / SIZES).is_file() for inner in ("", RUN_MODEL))


def _find_description(folder: PathLike) -> Tuple[Path, ModelDescription]:
    """The path of a folder's model description, and the description."""
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder}: there is no such folder; name that of a run or of an import")
    if not (folder / SIZES).exists() and (folder / RUN_MODEL).is_dir():
        folder = folder / RUN_MODEL
    path = folder / SIZES
    try:
        from cattrs import Converter

        return path, Converter(forbid_extra_keys=True).structure(_read_json(path), ModelDescription)
    except WeightsError:
        raise
    except Exception:  # cattrs raises many kinds
        raise WeightsError(f"{path}: this is not a model description; import the checkpoint again") from None


def write_model_folder(
    folder: PathLike,
    model: ModelDescription,
    tensors: Mapping[str, np.ndarray],
    vocab: Optional[PathLike] = None,
    extend: Optional[Callable[[Path], None]] = None,
) -> None:
    """Write a model folder, which must be new or empty; complete or not at all. `extend` adds files of its own."""
    folder = Path(folder)
    _check_empty(folder)
    _check_layout(model, tensors, str(folder))
    try:
        with draft_folder(folder) as draft:
            safetensors_file.write_safetensors(draft / MODEL, tensors, {"format": "pt"})
            (draft / SIZES).write_text(json.dumps(attrs.asdict(model), indent=2) + "\n", encoding="utf-8")
            if vocab is not None:
                shutil.copyfile(str(vocab), str(draft / VOCAB))
            if extend is not None:
                extend(draft)
    except OSError as error:
        raise WeightsError(f"{folder}: {error.strerror}; name a folder that can be written") from None


def _read_json(path: Path) -> Any:
    try:
        if path.is_file() and path.stat().st_size > MAX_JSON_BYTES:
            raise WeightsError(f"{path}: the file is too large to be a vocabulary or a config; name a JSON file")
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be read") from None
    except (ValueError, RecursionError):
        raise WeightsError(f"{path}: this is not JSON; name a JSON file") from None


def _check_layout(model: ModelDescription, tensors: Mapping[str, np.ndarray], place: str) -> None:
    wrong = layout_problems(model, tensors)
    if model.size.gpt.width % model.size.gpt.heads:
        wrong.append(f"a width of {model.size.gpt.width} is not divisible by {model.size.gpt.heads} heads")
    if wrong:
        raise WeightsError(list_mismatches(f"{place}: these tensors do not make up a model", wrong))


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise WeightsError(f"{folder}: this exists already; name a folder that is new or empty")
