"""The lines of metrics.jsonl that a resumed run keeps."""

import json
import math
from pathlib import Path
from typing import Any

from radial.runs.files import open_plain, warn, write_atomic


def _seconds(value: Any) -> float:
    if not math.isfinite(value):  # the next line would not be JSON
        raise ValueError(f"time is {value}")
    return float(value)


def cut_metrics(path: Path, step: int) -> float:
    """Drop lines logged after `step` and a line that a crash cut; returns the time of the last line that stays."""
    kept, seconds = [], 0.0
    if not path.exists():
        if step > 0:
            warn(f"{path} is gone: the run resumes at step {step:,}, and the metrics of earlier steps are lost")
        return seconds
    with open(path, encoding="utf-8", errors="replace", opener=open_plain) as file:
        lines = file.read().split("\n")
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            if line["step"] <= step:
                seconds = _seconds(line["time"])
                kept.append(text + "\n")
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            if number < len(lines):  # the last one is empty, or was being written
                warn(f"{path} line {number} is no line of metrics and is dropped")
    write_atomic(path, "".join(kept))
    return seconds
