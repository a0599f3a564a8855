"""One stable API over TensorFlow 2.4 to 2.21: the installed TensorFlow comes in, the same names go out on each.

Usable alone, from anybody's TensorFlow program: it needs TensorFlow and nothing else of this package.

    from xtts import compat

    compat.isolate_memory(data_gpu=0, model_gpu=1, data_gpu_memory_limit=8192, model_gpu_memory_limit=16384)
    step = compat.compiled(step, input_signature=[...], jit_compile=True, allowed=1, action="raise")
    step(batch)
    print(step.report())

What TensorFlow offers is looked up once, by name and not by version number; `compat.OFFERED` says what was found.
"""

from xtts.compat.devices import (
    DeviceError,
    Memory,
    TooLateError,
    enable_determinism,
    has_gpu,
    logical_devices,
    memory_info,
    physical_devices,
    set_memory_growth,
    set_visible,
    split,
)
from xtts.compat.functions import Compiled, RetraceError, RetraceWarning, SignatureError, compiled, trace_count, watch
from xtts.compat.isolation import Isolation, isolate_memory
from xtts.compat.offered import OFFERED, Offered, detect
from xtts.compat.signatures import explain, signature
from xtts.compat.workers import MeetingError, lost_tasks, multi_worker, slurm_workers

__all__ = [
    "OFFERED",
    "Compiled",
    "DeviceError",
    "Isolation",
    "MeetingError",
    "Memory",
    "Offered",
    "RetraceError",
    "RetraceWarning",
    "SignatureError",
    "TooLateError",
    "compiled",
    "detect",
    "enable_determinism",
    "explain",
    "has_gpu",
    "isolate_memory",
    "logical_devices",
    "lost_tasks",
    "memory_info",
    "multi_worker",
    "physical_devices",
    "set_memory_growth",
    "set_visible",
    "signature",
    "slurm_workers",
    "split",
    "trace_count",
    "watch",
]
