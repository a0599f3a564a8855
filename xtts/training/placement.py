"""Device placement: which devices compute features, which train, and with which TensorFlow strategy.

With both `data_gpu` and `model_gpu` set, some devices compute features while others train (the dual pipeline). With
several GPUs in `model_gpu`, or `multi_gpu`, the model is mirrored over them. Otherwise one device does both. A set-up
that is not available falls back to one device, and the placement records the reason. On a machine without GPUs logical
CPU devices stand in for the GPUs that a recipe names, and run the same code.

GPUs are numbered as the machine numbers them; TensorFlow renumbers the visible ones, in the machine's order.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import attrs

from xtts import compat
from xtts.compat import OFFERED, DeviceError, Offered, TooLateError
from xtts.errors import XttsError
from xtts.recipe.schema import DevicesSection
from xtts.training.cluster.membership import Cluster

DEFAULT, ONE, MIRRORED = "default", "OneDeviceStrategy", "MirroredStrategy"
WORKERS = "MultiWorkerMirroredStrategy"
STAND_INS = 2  # logical CPU devices that the model is mirrored over when the recipe gives no number of GPUs


class PlacementError(XttsError):
    """A recipe names devices that the machine does not have."""


@attrs.frozen
class Placement:
    """The devices of a run by role; names are TensorFlow's, such as "/GPU:0"."""

    data_device: str  # computes features
    model_devices: Tuple[str, ...]  # train; with several the model is mirrored
    strategy: str
    roles: Dict[str, str]  # description of each device on this machine, for messages
    reasons: Tuple[str, ...] = ()  # why the placement differs from what the recipe asks for
    further: Tuple[str, ...] = ()  # additional devices that compute features
    cluster: Optional[Cluster] = None  # every worker has the same number of model devices

    @property
    def data_devices(self) -> Tuple[str, ...]:
        """Every device that computes features."""
        return (self.data_device, *self.further)

    @property
    def is_dual(self) -> bool:
        """Whether features are computed on other devices than those that train."""
        return self.data_device not in self.model_devices

    @property
    def has_gpu(self) -> bool:
        """Whether the model trains on a GPU."""
        return "GPU" in self.model_devices[0]

    @property
    def mode(self) -> str:
        return "dual" if self.is_dual else "single"

    @property
    def replicas(self) -> int:
        """The number of replicas of all workers together."""
        return len(self.model_devices) * (self.cluster.size if self.cluster else 1)

    @property
    def share(self) -> range:
        """The indices of this process's replicas."""
        own = len(self.model_devices)
        first = self.cluster.index * own if self.cluster else 0
        return range(first, first + own)

    @property
    def is_mirrored(self) -> bool:
        """Whether there are several replicas, whose gradients are summed."""
        return self.strategy in (MIRRORED, WORKERS)

    def start_strategy(self, patience: float = 0.0) -> Any:
        """TensorFlow's strategy, in whose scope the model is built. `patience`: seconds to wait for workers."""
        import tensorflow as tf

        from xtts.model.layers import ordered_sum

        if self.cluster:
            return compat.multi_worker(self.cluster.addresses, self.cluster.index, patience)
        if self.strategy == MIRRORED:
            # CPUs have no NCCL; on one machine gradients can be summed on the first device instead.
            on_cpu = "CPU" in self.model_devices[0]
            # Summed in the order of the devices: tf.add_n, the default, keeps no order for more than two.
            reduction = tf.distribute.ReductionToOneDevice(accumulation_fn=ordered_sum) if on_cpu else None
            return tf.distribute.MirroredStrategy(list(self.model_devices), cross_device_ops=reduction)
        if self.strategy == ONE:
            return tf.distribute.OneDeviceStrategy(self.model_devices[0])
        return tf.distribute.get_strategy()

    def lines(self) -> List[str]:
        """Lines to print: the mode, the role of each device, and every difference from what the recipe asks for."""
        feature, model = (
            ", ".join(f"{device} ({self.roles[device]})" for device in devices)
            for devices in (self.data_devices, self.model_devices)
        )
        lines = [f"mode: {self.mode}, strategy: {self.strategy}", f"features: {feature}", f"model: {model}"]
        if self.cluster:
            own = self.cluster.name(self.cluster.index)
            lines.append(f"this is {own} of {self.cluster.size}, by {self.cluster.origin}; replicas: {self.replicas}")
        return [*lines, *(f"note: {reason}" for reason in self.reasons)]


def place_devices(devices: DevicesSection, offered: Offered = OFFERED, cluster: Optional[Cluster] = None) -> Placement:
    """Configure TensorFlow's devices by the recipe's [devices]; must be called before TensorFlow starts."""
    gpus = compat.physical_devices("GPU", offered)
    if cluster:
        return _in_cluster(devices, len(gpus), offered, cluster)
    return _on_gpus(devices, len(gpus), offered) if gpus else _on_cpus(devices, offered)


def _in_cluster(devices: DevicesSection, gpus: int, offered: Offered, cluster: Cluster) -> Placement:
    """MultiWorkerMirroredStrategy trains on every GPU it sees, or on the one CPU, so all other GPUs are hidden."""
    reasons = []
    if devices.data_gpus and devices.model_gpus:
        reasons.append("in a cluster there is no dual pipeline: the GPUs that train make the features")
    if not gpus:
        if devices.multi_gpu or len(devices.model_gpus) > 1:
            reasons.append("in a cluster a worker without GPUs is one device: its model is not mirrored")
        alone = _on_cpus(DevicesSection(), offered)
    else:
        every = devices.visible or range(gpus)
        chosen: Sequence[int] = sorted(set(every)) if devices.multi_gpu else devices.model_gpus or [min(every)]
        asked = DevicesSection(visible_gpus=",".join(map(str, chosen)), multi_gpu=devices.multi_gpu or len(chosen) > 1)
        alone = _on_gpus(asked, gpus, offered)
    return attrs.evolve(alone, strategy=WORKERS, cluster=cluster, reasons=(*alone.reasons, *reasons))


def _on_gpus(devices: DevicesSection, count: int, offered: Offered) -> Placement:
    visible = sorted(set(devices.visible or range(count)))
    missing = [number for number in visible if number >= count]
    if missing:
        raise PlacementError(
            f"devices.visible_gpus: there is no GPU {missing[0]}, this machine has GPU 0 to {count - 1};"
            " name some of these, or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    data, model = devices.data_gpus, devices.model_gpus
    if not data or not model:
        return _one_or_mirrored(devices, visible, [], offered)
    try:
        isolation = compat.isolate_memory(
            data,
            model,
            devices.data_gpu_memory_limit,
            devices.model_gpu_memory_limit,
            offered=offered,
        )
    except DeviceError as error:
        return _one_or_mirrored(devices, visible, [f"the dual pipeline is not available: {error}"], offered)
    names = [*isolation.data_devices, *isolation.model_devices]
    roles = {name: f"GPU {number}" for name, number in zip(names, (*data, *model))}
    those = "both GPUs" if len(names) == 2 else f"all {len(names)} GPUs"
    reasons = (
        () if isolation.limited else (f"memory limits cannot be set here: {those} allocate memory as they need it",)
    )
    return _dual(isolation.data_devices, isolation.model_devices, roles, reasons)


def _dual(data: Tuple[str, ...], model: Tuple[str, ...], roles: Dict[str, str], reasons: Sequence[str]) -> Placement:
    strategy = MIRRORED if len(model) > 1 else ONE
    return Placement(data[0], model, strategy, roles, tuple(reasons), data[1:])


def _one_or_mirrored(
    devices: DevicesSection, visible: Sequence[int], reasons: List[str], offered: Offered
) -> Placement:
    try:
        compat.set_visible("GPU", visible, offered)
        compat.set_memory_growth("GPU", visible, offered)
    except TooLateError as error:
        reasons.append(str(error))
        visible = _already_visible(offered)  # device names already refer to these
    names = {number: f"/GPU:{place}" for place, number in enumerate(visible)}
    roles = {name: f"GPU {number}" for number, name in names.items()}
    reasons += _not_dual(devices)
    if devices.multi_gpu and len(visible) > 1:
        return Placement("/GPU:0", tuple(names.values()), MIRRORED, roles, tuple(reasons))
    if devices.multi_gpu:
        reasons.append(f"multi_gpu = true, but GPU {visible[0]} is the only one: the model is not mirrored")
    chosen = devices.model_gpus or devices.data_gpus[:1]  # features are computed on the model's device
    available = [number for number in chosen if number in names]
    for number in chosen:
        if number not in names:
            instead = "the others train without it" if available else f"GPU {visible[0]} trains in its place"
            reasons.append(f"there is no GPU {number}: {instead}")
    trains = tuple(names[number] for number in available) or ("/GPU:0",)
    return Placement(trains[0], trains, MIRRORED if len(trains) > 1 else ONE, roles, tuple(reasons))


def _already_visible(offered: Offered) -> List[int]:
    """The GPUs visible to a TensorFlow that has already started, as the machine numbers them."""
    seen = [device.name for device in offered.get_visible("GPU")]
    return [number for number, gpu in enumerate(compat.physical_devices("GPU", offered)) if gpu.name in seen]


def _not_dual(devices: DevicesSection) -> List[str]:
    is_alone = bool(devices.data_gpus) and not devices.model_gpus
    return ["data_gpu alone makes no dual pipeline: name model_gpu too"] if is_alone else []


def _on_cpus(devices: DevicesSection, offered: Offered) -> Placement:
    """The same roles on logical CPU devices."""
    gpus = _named(devices)
    reasons = ["TensorFlow sees no GPU: training on the CPU"]
    if len(gpus) > 1:
        reasons = [f"TensorFlow sees no GPU: {len(gpus)} logical CPU devices stand in for GPUs"]
        try:
            compat.split("CPU", 0, [None] * len(gpus), offered)
        except DeviceError as error:  # too late, but it may have been split before
            if len(compat.logical_devices("CPU", offered)) < len(gpus):
                reasons.append(f"the CPU cannot be split into {len(gpus)} devices, one does everything: {error}")
                gpus = []
    elif devices.multi_gpu:
        reasons.append(f"multi_gpu = true, but GPU {gpus[0]} is the only one: the model is not mirrored")
    reasons += _not_dual(devices)
    if len(gpus) < 2:
        return Placement("/CPU:0", ("/CPU:0",), DEFAULT, {"/CPU:0": "the CPU"}, tuple(reasons))
    names = {gpu: f"/CPU:{place}" for place, gpu in enumerate(gpus)}
    roles = {name: f"in place of GPU {gpu}" for gpu, name in names.items()}
    if not devices.data_gpus or not devices.model_gpus:
        return Placement("/CPU:0", tuple(roles), MIRRORED, roles, tuple(reasons))
    data, model = (tuple(names[gpu] for gpu in named) for named in (devices.data_gpus, devices.model_gpus))
    return _dual(data, model, roles, reasons)


def _named(devices: DevicesSection) -> List[int]:
    """The GPUs of a recipe that logical CPU devices stand in for, sorted; empty if one device does everything."""
    if devices.multi_gpu:
        return sorted(set(devices.visible or range(STAND_INS)))
    is_single = not devices.data_gpus and len(devices.model_gpus) < 2
    return [] if is_single or not devices.model_gpus else sorted((*devices.data_gpus, *devices.model_gpus))
