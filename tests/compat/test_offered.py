"""Capabilities of a TensorFlow are found by name, the stable name first."""

import pytest
import tensorflow as tf

from xtts import compat


def test_every_needed_capability_is_found_on_this_tensorflow():
    """Every supported release has an API for each needed capability; only determinism may be missing."""
    missing = {field for field, name in compat.OFFERED.names().items() if name is None}
    assert missing <= {"op_determinism"}
    assert compat.OFFERED.version == tf.__version__


def test_reported_names_exist():
    """Every reported name can be looked up in TensorFlow."""
    for name in compat.OFFERED.names().values():
        if name and name.startswith("tf.config"):
            found = tf
            for part in name.split(".")[1:]:
                found = getattr(found, part)
            assert callable(found)


@pytest.mark.parametrize(
    ("stable", "alias", "name"),
    [
        (True, True, "tf.config.set_logical_device_configuration"),
        (True, False, "tf.config.set_logical_device_configuration"),
        (False, True, "tf.config.experimental.set_virtual_device_configuration"),
        (False, False, None),
    ],
)
def test_the_stable_name_is_preferred_then_the_alias(recorder, stable, alias, name):
    """Each historical form of tf.config is used through its best name."""
    assert recorder(stable, alias).offered.set_logical_devices.name == name


@pytest.mark.parametrize(
    ("function", "jit", "relax"),
    [
        (
            lambda f, experimental_compile=0, experimental_relax_shapes=0: f,
            "experimental_compile",
            "experimental_relax_shapes",
        ),
        (
            lambda f, jit_compile=0, experimental_compile=0, experimental_relax_shapes=0: f,
            "jit_compile",
            "experimental_relax_shapes",
        ),
        (
            lambda f, jit_compile=0, reduce_retracing=0, experimental_relax_shapes=0: f,
            "jit_compile",
            "reduce_retracing",
        ),
    ],
    ids=["2.4", "2.6", "2.10"],
)
def test_the_keywords_of_tf_function_are_found(recorder, function, jit, relax):
    """jit_compile and reduce_retracing are passed under the keyword this release has."""
    stand_in = recorder()
    stand_in.tf.function = function
    assert stand_in.offered.jit_compile.value == jit
    assert stand_in.offered.reduce_retracing.value == relax
