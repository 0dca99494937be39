"""Timing and memory of torch code on a noisy machine: interleaved repetitions, medians, and the peak of one call.

Shared by every `radial bench`; never asserted in a test, because the numbers are the machine's.
"""

import ctypes
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from radial.core.errors import BadInput

Job = Callable[[], object]


def keep_freed_memory() -> bool:
    """Let the C library keep large freed blocks instead of returning them to the system after each tensor.

    Otherwise every temporary of a few megabytes is paged in anew, which can cost more than the arithmetic. Affects the
    whole process, so commands call it, never the library. Returns whether the system has this setting (glibc only).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # from malloc.h
    settings = ((mmap_threshold, 1 << 30), (trim_threshold, (1 << 31) - 1), (top_pad, 1 << 26))
    return all(mallopt(name, value) == 1 for name, value in settings)


def median_seconds(jobs: Sequence[Job], repeats: int, warmup: int = 2) -> list[float]:
    """Median time of each job, the jobs taking turns so that a slow moment of the machine hits them all."""
    for job in jobs:
        for _ in range(warmup):
            job()
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(repeats):
        for job, record in zip(jobs, times, strict=True):
            _wait()
            start = time.perf_counter()
            job()
            _wait()
            record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


def peak_bytes(job: Job, device: torch.device) -> int | None:
    """Memory a call needs at its peak beyond what the process held before; None where it cannot be measured."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        job()
        return torch.cuda.max_memory_allocated() - before
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak (Linux)
    except (OSError, AttributeError):
        return None
    before = _status("VmRSS")
    job()
    return max(0, _status("VmHWM") - before)


def process_peak() -> int:
    """Peak memory of the whole process since `peak_bytes` was called."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def torch_device(name: str) -> torch.device:
    """A torch device that exists here."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"device must be cpu or cuda, got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("device must be cpu: this machine has no CUDA device")
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"device must be cpu or cuda, got {name!r}")
    return device


def machine() -> dict[str, Any]:
    """Versions, threads and cores that a number was measured with."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "processor": platform.machine(),
    }
