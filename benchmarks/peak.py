"""The peak memory of this process, in bytes.

It is read from /proc, where the kernel counts it from the start of the program. `ru_maxrss` does not: a child starts
with the peak of the process that forked it, and so would include whatever ran before it in a test session.
"""

import resource
from pathlib import Path


def peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # not Linux, or not reported by the kernel
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
