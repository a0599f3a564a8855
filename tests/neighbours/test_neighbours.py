"""xtts doctor in a broken environment: tox installs TensorFlow with a package that conflicts with it."""

import json
import os
import re
import subprocess
import sys

import pytest

BROKEN = os.environ.get("XTTS_NEIGHBOUR", "")  # such as protobuf==4.25.9

pytestmark = pytest.mark.skipif(not BROKEN, reason="run by tox -m neighbours, in environments broken on purpose")


def install(requirement):
    free = {name: value for name, value in os.environ.items() if not name.startswith("UV_OVERRIDE")}
    subprocess.run(["uv", "pip", "install", "--python", sys.executable, requirement], check=True, env=free)


def test_the_conflicting_package_is_named_and_the_command_fixes_it(xtts):
    """TensorFlow cannot be imported; doctor names the package and a command that repairs the environment."""
    broken = xtts("doctor", "--json")
    findings = json.loads(broken.stdout)
    assert broken.returncode == 1
    assert not findings["tensorflow"]["imports"]
    package = BROKEN.split("==")[0]
    command = re.search(rf'^{package} .+ -m pip install "(.+)"$', findings["advice"][0])
    try:
        install(command.group(1))
        mended = xtts("doctor", "--json")
        assert mended.returncode == 0, mended.stdout
    finally:
        install(BROKEN)  # the environment is reused, and must be as broken next time
