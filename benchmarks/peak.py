"""The peak memory of this process, in bytes.

The kernel counts it from the start of the program. `ru_maxrss` does not: a child begins with the peak of the process
that forked it, so that whatever ran before it in a test session would be counted as its own.
"""

import resource
from pathlib import Path


def peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # not Linux, or a kernel that does not tell
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
