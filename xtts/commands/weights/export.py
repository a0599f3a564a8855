"""`xtts export`: write a model for other programs."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Optional

from xtts.commands.command import Command, add_run_folder, add_verbose_flag, require_folder, require_free_folder
from xtts.errors import UsageError


def add_flags(parser: ArgumentParser) -> None:
    """RUN, and what to write."""
    add_run_folder(parser, or_import=True)
    parser.add_argument("out", metavar="OUT.safetensors", nargs="?", help="file to write")
    parser.add_argument("--coqui", metavar="DIR", help="write a folder that coqui-tts loads instead")
    parser.add_argument("--saved-model", metavar="DIR", help="write a SavedModel instead, which runs without xtts")
    add_verbose_flag(parser)


def export(*, folder: str, out: Optional[str], coqui: Optional[str], saved_model: Optional[str], verbose: bool) -> int:
    """Write the weights, a folder for coqui-tts or a SavedModel, and print the files."""
    options = {"--coqui": coqui, "--saved-model": saved_model}
    named = [*filter(None, [out]), *(f"{option} {path}" for option, path in options.items() if path is not None)]
    if len(named) > 1:
        raise UsageError(f"name what to write only once: leave out {' or '.join(named)}")
    require_folder(folder, "xtts run or xtts import")
    if saved_model is not None:
        require_free_folder(saved_model)
        return _export_savedmodel(folder, saved_model, verbose)
    from xtts.weights.exporting import export_checkpoint, export_for_coqui

    if coqui is not None:
        require_free_folder(coqui)
        for path in export_for_coqui(folder, coqui):
            print(path)
        return 0
    if out is None:
        raise UsageError("name what to write: OUT.safetensors for weights, --coqui DIR, or --saved-model DIR")
    if Path(out).suffix != ".safetensors":
        raise UsageError(f"{out}: weights are written as safetensors; write a name that ends in .safetensors")

    for path in export_checkpoint(folder, out):
        print(path)
    return 0


def _export_savedmodel(folder: str, out: str, verbose: bool) -> int:
    from xtts.commands.start_tensorflow import start_tensorflow

    start_tensorflow(verbose)

    from xtts.inference.savedmodel import write_savedmodel

    print(write_savedmodel(folder, out))
    return 0


COMMAND = Command(
    "export",
    "Write a model's weights under the names that the public implementation loads, a folder for it, or a SavedModel.",
    add_flags,
    export,
)
