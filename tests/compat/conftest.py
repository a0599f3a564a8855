"""Two logical CPU devices for all compat tests, created before TensorFlow starts, and stand-ins for GPUs."""

import pytest
from recorder import Recorder

from xtts import compat

compat.split("CPU", 0, [None, None])


@pytest.fixture
def recorder():
    return Recorder
