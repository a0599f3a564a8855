"""Which capabilities a TensorFlow offers, and under which names.

Capabilities are looked up under all the names they have had, the stable one first; version numbers are not compared.
"""

import functools
import inspect
from typing import Any, Dict, NamedTuple, Optional

import tensorflow


class Choice(NamedTuple):
    """A capability: the name it was found under, and the object. Both are None where TensorFlow lacks it."""

    name: Optional[str] = None
    value: Any = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.value(*arguments, **options)

    def __bool__(self) -> bool:
        return self.value is not None


class Offered(NamedTuple):
    """Every capability whose name has changed, appeared or disappeared since TensorFlow 2.2."""

    version: str
    list_physical: Choice
    list_logical: Choice
    set_visible: Choice
    get_visible: Choice
    set_logical_devices: Choice
    logical_device: Choice  # the type of the entries that set_logical_devices takes
    set_memory_growth: Choice
    memory_info: Choice
    device_details: Choice
    op_determinism: Choice
    jit_compile: Choice  # of tf.function, by keyword
    reduce_retracing: Choice  # of tf.function, by keyword
    trace_count: Choice  # of what tf.function returns
    multi_worker: Choice  # the strategy of several machines
    slurm: Choice  # the cluster resolver of a Slurm step

    def names(self) -> Dict[str, Optional[str]]:
        """The name chosen for each capability."""
        return {field: choice.name for field, choice in self._asdict().items() if isinstance(choice, Choice)}


def detect(tf: Any) -> Offered:
    """Look up every capability of a TensorFlow module."""

    def first(*names: str) -> Choice:
        for name in names:
            try:
                return Choice(name, functools.reduce(getattr, name.split(".")[1:], tf))
            except AttributeError:
                continue
        return Choice()

    keywords = inspect.signature(tf.function).parameters

    def keyword(*names: str) -> Choice:
        return next((Choice(f"tf.function({name}=...)", name) for name in names if name in keywords), Choice())

    return Offered(
        version=tf.__version__,
        list_physical=first("tf.config.list_physical_devices", "tf.config.experimental.list_physical_devices"),
        list_logical=first("tf.config.list_logical_devices", "tf.config.experimental.list_logical_devices"),
        set_visible=first("tf.config.set_visible_devices", "tf.config.experimental.set_visible_devices"),
        get_visible=first("tf.config.get_visible_devices", "tf.config.experimental.get_visible_devices"),
        # tf.config.experimental.set_logical_device_configuration, which people look for, has never existed.
        set_logical_devices=first(
            "tf.config.set_logical_device_configuration", "tf.config.experimental.set_virtual_device_configuration"
        ),
        logical_device=first(
            "tf.config.LogicalDeviceConfiguration", "tf.config.experimental.VirtualDeviceConfiguration"
        ),
        set_memory_growth=first("tf.config.experimental.set_memory_growth"),
        memory_info=first("tf.config.experimental.get_memory_info", "tf.config.experimental.get_memory_usage"),
        device_details=first("tf.config.experimental.get_device_details"),
        op_determinism=first("tf.config.experimental.enable_op_determinism"),
        jit_compile=keyword("jit_compile", "experimental_compile"),
        reduce_retracing=keyword("reduce_retracing", "experimental_relax_shapes"),
        trace_count=Choice("Function.experimental_get_tracing_count", "experimental_get_tracing_count"),
        multi_worker=first(
            "tf.distribute.MultiWorkerMirroredStrategy", "tf.distribute.experimental.MultiWorkerMirroredStrategy"
        ),
        slurm=first("tf.distribute.cluster_resolver.SlurmClusterResolver"),
    )


OFFERED = detect(tensorflow)
