"""Virtual environments of the peers, made on demand in a folder."""

import subprocess
import sys
from pathlib import Path
from typing import Dict, Tuple

# For each environment, the packages that pip installs: some with their dependencies, then others without.
PACKAGES: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    # As dependencies, torchaudio and torchcodec would install another torch, with CUDA.
    "coqui": (("torch==2.13.0", "coqui-tts==0.28.0"), ("torchaudio", "torchcodec")),
    "librosa": (("librosa==0.11.0",), ()),
}
TRIED = {"coqui": "import TTS.tts.layers.xtts.gpt, TTS.tts.layers.xtts.dvae", "librosa": "import librosa"}

# Wheels of torchaudio on PyPI are for a torch with CUDA: with another torch their compiled part cannot be loaded, which
# keeps the rest from being imported. Nothing that is measured needs it.
WITHOUT_CUDA = """
import importlib.util, pathlib, torch
if torch.version.cuda is None:
    folder = pathlib.Path(importlib.util.find_spec("torchaudio").origin).parent / "lib"
    for library in folder.glob("*.so"):
        library.unlink()
"""


class PeerError(Exception):
    """Why an environment cannot be made."""


def python_of(name: str, folder: Path) -> str:
    """The Python interpreter of a peer; the first time its environment is made, which can take minutes."""
    environment = folder / name
    python = environment / "bin" / "python"
    if not _works(python, name):
        print(f"installing {', '.join(PACKAGES[name][0])} in {environment}", file=sys.stderr)
        _run(sys.executable, "-m", "venv", "--clear", str(environment))
        together, alone = PACKAGES[name]
        _run(str(python), "-m", "pip", "install", "-q", *together)
        if alone:
            _run(str(python), "-m", "pip", "install", "-q", "--no-deps", *alone)
        if "torchaudio" in alone:
            _run(str(python), "-c", WITHOUT_CUDA)
        if not _works(python, name):
            raise PeerError(f"{name} is installed in {environment} and cannot be imported: {python} -c '{TRIED[name]}'")
    return str(python)


def _works(python: Path, name: str) -> bool:
    return python.exists() and not subprocess.run([str(python), "-c", TRIED[name]], capture_output=True).returncode


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise PeerError(f"{' '.join(command)} failed: {last}")
