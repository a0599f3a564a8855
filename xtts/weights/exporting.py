"""Export a model under the names that the public implementation loads."""

from pathlib import Path
from typing import List

from xtts.weights import safetensors_file
from xtts.weights.layout import NORMED, PREFIXES, constants
from xtts.weights.model_folder import PathLike, read_model_folder
from xtts.weights.safetensors_file import Tensors, WeightsError


def export_checkpoint(folder: PathLike, out: PathLike) -> List[Path]:
    """Write a folder's model under the names that the public implementation loads; returns the files written.

    As published, the codec has a file of its own: `NAME.dvae.safetensors` next to `out`.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise WeightsError(
            f"{out}: weights are exported as safetensors; give the file a name that ends in .safetensors"
        )
    model, tensors = read_model_folder(folder)
    complete = {**constants(model), **_unfolded(tensors)}
    prefix = PREFIXES["codec"]
    codec = {name[len(prefix) :]: tensor for name, tensor in complete.items() if name.startswith(prefix)}
    files = {out: {name: tensor for name, tensor in complete.items() if not name.startswith(prefix)}}
    if codec:
        files[out.with_name(f"{out.stem}.dvae.safetensors")] = codec
    for path, content in files.items():
        safetensors_file.write_safetensors(path, content, {"format": "pt"})
    return list(files)


def _unfolded(tensors: Tensors) -> Tensors:
    """The tensors with weight normalisation where the public implementation has it."""
    folded = [name for name in tensors if NORMED.fullmatch(name)]
    if not folded:
        return tensors
    from xtts.weights.weight_norm import unfold_weight_norm

    return unfold_weight_norm(tensors, folded)
