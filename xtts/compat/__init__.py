"""One stable API over TensorFlow 2.4 to 2.21.

It needs TensorFlow and nothing else of this package, so any TensorFlow program can use it.

    from xtts import compat

    compat.isolate_memory(data_gpu=0, model_gpu=1, data_gpu_memory_limit=8192, model_gpu_memory_limit=16384)
    step = compat.compiled(step, input_signature=[...], jit_compile=True, allowed=1, action="raise")
    step(batch)
    print(step.report())

What the installed TensorFlow offers is looked up once, by name and not by version; `compat.OFFERED` is the result.
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
