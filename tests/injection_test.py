"""Whatever is not finite stops a training before it is saved: 8 points × 4 algorithms."""

from pathlib import Path

import injections
import pytest


def test_there_are_thirty_two() -> None:
    assert len(injections.CASES) == 32


@pytest.mark.parametrize(("name", "point"), injections.CASES)
def test_nan_is_caught(name: str, point: str, tmp_path: Path) -> None:
    injections.check_injection(name, point, tmp_path / "run")
