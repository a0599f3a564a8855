"""Training states that can be told apart, for processes that save them and are killed."""

import numpy as np

from xtts.training.checkpoint import TrainingState

SIZE = 50_000  # elements of a tensor


def state(step, size=SIZE):
    """The state of a step, with 8 bytes of tensors for each of `size` elements."""
    weights = np.random.RandomState(step).standard_normal(size).astype(np.float32)
    return TrainingState(
        step, {"weights": weights, "moments": weights**2, "step": np.array(step)}, {"cursor": step * 7}
    )


def is_whole(found, size=SIZE):
    """Whether a state is bit-identical to what `state` returns."""
    expected = state(found.step, size)
    return found.counters == expected.counters and {n: t.tobytes() for n, t in found.tensors.items()} == {
        name: tensor.tobytes() for name, tensor in expected.tensors.items()
    }
