"""Resolve the constraints of every cell of the test matrix; versions that still satisfy them are kept.

tox -e relock            every cell
tox -e relock -- 2.21    one of them
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CELLS = {  # cell: TensorFlow release, Python, and pins that are missing from TensorFlow's own metadata
    "2.4": ("2.4.4", "3.8", ["protobuf<3.21"]),
    # TensorFlow 2.6 keeps typing-extensions below 4, and librosa of that time imports pkg_resources.
    "2.6": ("2.6.5", "3.9", ["protobuf<3.21", "referencing<0.36", "setuptools<81"]),
    "2.8": ("2.8.4", "3.10", ["protobuf<3.21", "numpy<2"]),
    "2.10": ("2.10.1", "3.10", ["protobuf<3.21", "numpy<2"]),
    "2.12": ("2.12.1", "3.11", []),
    "2.15": ("2.15.1", "3.11", ["numpy<2"]),
    "2.16": ("2.16.2", "3.11", []),
    "2.18": ("2.18.1", "3.12", []),
    "2.20": ("2.20.0", "3.13", []),
    "2.21": ("2.21.0", "3.13", []),
}


def relock(cell: str) -> None:
    release, python, pins = CELLS[cell]
    target = HERE / f"tf{cell}.txt"
    command = ["uv", "pip", "compile", "-", "pyproject.toml", "--python-version", python]
    extras = ["--extra", "demo", "--extra", "bpe", "--extra", "migrate", "--extra", "languages"]
    command += ["--group", "test", *extras, "--overrides", str(HERE / "no-tensorflow.txt")]
    command += ["--quiet", "--no-header", "--no-annotate", "--output-file", str(target)]
    wanted = "\n".join([f"tensorflow-cpu=={release}", *pins])
    subprocess.run(command, input=wanted, text=True, check=True, cwd=HERE.parent, stdout=subprocess.DEVNULL)
    print(f"{target.name}: TensorFlow {release} on Python {python}")


for name in sys.argv[1:] or CELLS:
    relock(name)
