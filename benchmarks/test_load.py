"""Promise: loading a full-size import costs little more than reading its file into memory, in time and in memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from promises import BYTES, at_most
from turns import ENVIRONMENT

SCRIPT = Path(__file__).parent / "load.py"
SIZE = "v2"  # 2.1 GB
OVER_FILE = at_most(1.3)  # growth of the peak of resident memory over the size of the file
OVER_READING = at_most(6.0)  # processor time of loading over that of reading the file into memory

pytestmark = pytest.mark.long


def measured(way: str, folder: Path) -> Dict[str, float]:
    command = [sys.executable, str(SCRIPT), way, str(folder)]
    ran = subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.PIPE)
    found: Dict[str, float] = json.loads(ran.stdout)
    return found


def test_loading_is_little_more_than_reading(tmp_path: Path, promise: Any, benchmark: Any) -> None:
    """No weight is drawn before it is loaded, and no weight is in memory twice."""
    folder = tmp_path / "import"
    subprocess.run([sys.executable, str(SCRIPT), "write", str(folder), SIZE], check=True, env=ENVIRONMENT)
    first = benchmark.pedantic(measured, ("load", folder), rounds=1)
    promise.count("load: memory over the file's size", lambda: first["growth"] / first["file"], OVER_FILE, BYTES)
    promise.ratio(
        "load: processor time over reading the file",
        lambda: measured("load", folder)["processor"] / measured("read", folder)["processor"],
        OVER_READING,
    )
