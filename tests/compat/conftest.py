"""Two logical CPU devices for all compat tests, made before TensorFlow starts; and stand-ins for what GPUs accept."""

import pytest
from recorder import Recorder

from xtts import compat

compat.split("CPU", 0, [None, None])


@pytest.fixture
def recorder():
    return Recorder
