"""A stand-in for tf.config that records the calls that only a GPU accepts."""

from types import SimpleNamespace

from xtts import compat


class Recorder:
    """A tf.config of one historical form, with a CPU and this many GPUs, that records each call."""

    def __init__(self, stable=True, alias=True, gpus=2, started=False, logical_cpus=1):
        self.calls = []
        self.cpus = [SimpleNamespace(name="/physical_device:CPU:0", device_type="CPU")]
        self.gpus = [SimpleNamespace(name=f"/physical_device:GPU:{n}", device_type="GPU") for n in range(gpus)]
        self.started = started
        experimental = {
            "set_memory_growth": self._call("growth"),
            "get_device_details": lambda gpu: {"device_name": "Test Card"},
        }
        config = {
            "list_physical_devices": lambda kind=None: self.gpus if kind == "GPU" else self.cpus,
            "list_logical_devices": lambda kind=None: self.cpus * logical_cpus if kind == "CPU" else [],
            "set_visible_devices": self._call("visible"),
            "get_visible_devices": lambda kind=None: self.gpus,
        }
        if stable:
            config["set_logical_device_configuration"] = self._call("stable")
            config["LogicalDeviceConfiguration"] = lambda memory_limit=None: ("limit", memory_limit)
        if alias:
            experimental["set_virtual_device_configuration"] = self._call("alias")
            experimental["VirtualDeviceConfiguration"] = lambda memory_limit=None: ("limit", memory_limit)
        self.tf = SimpleNamespace(
            __version__="2.x",
            config=SimpleNamespace(experimental=SimpleNamespace(**experimental), **config),
            function=lambda func=None, input_signature=None: func,
        )

    @property
    def offered(self):
        return compat.detect(self.tf)

    def _call(self, name):
        def call(*arguments):
            if self.started:
                raise RuntimeError("Virtual devices cannot be modified after being initialized")
            plain = [[d.name[-1] for d in a] if isinstance(a, list) and hasattr(a[0], "name") else a for a in arguments]
            self.calls.append((name, *[a.name[-1] if hasattr(a, "name") else a for a in plain]))

        return call
