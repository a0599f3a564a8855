"""The folder of a model: tensors, sizes and vocabulary."""

import json
import shutil
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple, Union

import attrs
import numpy as np

from xtts.files import draft_folder
from xtts.weights import safetensors_file
from xtts.weights.layout import ModelDescription, layout_problems, list_mismatches
from xtts.weights.safetensors_file import Tensors, WeightsError

MODEL, SIZES, VOCAB = "model.safetensors", "model.json", "vocab.json"


RUN_MODEL = "model"  # where a run keeps its model


LARGEST_JSON = 100_000_000  # bytes


PathLike = Union[str, Path]


def read_model_folder(folder: PathLike) -> Tuple[ModelDescription, Tensors]:
    """A folder's sizes and tensors, checked against each other."""
    path, model = _described(folder)
    tensors, _ = safetensors_file.read_safetensors(path.with_name(MODEL))
    _check(model, tensors, str(path.with_name(MODEL)))
    return model, tensors


def is_published(folder: Optional[PathLike]) -> bool:
    """Whether a run that starts from a folder's weights, or from none, starts from published ones."""
    return folder is not None and _described(folder)[1].is_published


def _described(folder: PathLike) -> Tuple[Path, ModelDescription]:
    """What a folder says of its model, and in which file."""
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder}: there is no such folder; name one that an import or a run has made")
    if not (folder / SIZES).exists() and (folder / RUN_MODEL).is_dir():
        folder = folder / RUN_MODEL
    path = folder / SIZES
    try:
        from cattrs import Converter

        return path, Converter(forbid_extra_keys=True).structure(_json(path), ModelDescription)
    except WeightsError:
        raise
    except Exception:  # whatever a converter makes of what a table may hold
        raise WeightsError(f"{path}: this does not state a model's sizes; import the checkpoint anew") from None


def write_model_folder(
    folder: PathLike, model: ModelDescription, tensors: Mapping[str, np.ndarray], vocab: Optional[PathLike] = None
) -> None:
    """Make a model's folder, which must not be there yet or be empty; whole or not at all."""
    folder = Path(folder)
    _check_empty(folder)
    _check(model, tensors, str(folder))
    try:
        with draft_folder(folder) as draft:
            safetensors_file.write_safetensors(draft / MODEL, tensors, {"format": "pt"})
            (draft / SIZES).write_text(json.dumps(attrs.asdict(model), indent=2) + "\n", encoding="utf-8")
            if vocab is not None:
                shutil.copyfile(str(vocab), str(draft / VOCAB))
    except OSError as error:
        raise WeightsError(f"{folder}: {error.strerror}; name a folder that can be written") from None


def _json(path: Path) -> Any:
    try:
        if path.is_file() and path.stat().st_size > LARGEST_JSON:
            raise WeightsError(f"{path}: the file is too large for what it should be; name a JSON file")
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}; name a file that can be read") from None
    except (ValueError, RecursionError):
        raise WeightsError(f"{path}: this is not JSON; name a JSON file") from None


def _check(model: ModelDescription, tensors: Mapping[str, np.ndarray], place: str) -> None:
    wrong = layout_problems(model, tensors)
    if model.size.gpt.width % model.size.gpt.heads:
        wrong.append(f"a width of {model.size.gpt.width} is not divided by {model.size.gpt.heads} heads")
    if wrong:
        raise WeightsError(list_mismatches(f"{place}: the tensors are not those of a model", wrong))


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise WeightsError(f"{folder}: this is there already; name a folder that is new or empty")
