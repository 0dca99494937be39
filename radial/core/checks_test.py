"""The checks say the field, what is allowed and what was given, and take NumPy's numbers for what they are."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from radial.core import checks
from radial.core.data import BadInput

Check = Callable[[object, str], None]


@dataclass
class May:
    x: float | None


@dataclass
class Must:
    x: float


@dataclass
class Sizes:
    hidden: tuple[int, ...]


@pytest.mark.parametrize("number", [3, np.int64(3), np.uint8(3)])
def test_a_whole_number_becomes_pythons_own(number: int) -> None:
    found = checks.check_whole("seed", number, 0)
    assert found == 3
    assert type(found) is int  # what is recorded must be JSON


@pytest.mark.parametrize("value", [-1, 1.0, True, None, "1", float("nan"), np.float64(1)])
def test_what_is_no_whole_number(value: int) -> None:
    with pytest.raises(BadInput, match=r"^seed must be a whole number ≥ 0, got "):
        checks.check_whole("seed", value, 0)


@pytest.mark.parametrize(
    ("check", "good", "bad", "line"),
    [
        (checks.whole, 1, 0, "x must be a whole number ≥ 1, got 0"),
        (checks.positive, 1e-9, 0.0, "x must be finite and > 0, got 0.0"),
        (checks.positive, 2, float("inf"), "x must be finite and > 0, got inf"),
        (checks.not_negative, 0, float("nan"), "x must be finite and ≥ 0, got nan"),
        (checks.share, 1.0, 1.1, r"x must lie in \[0, 1\], got 1.1"),
    ],
)
def test_fields_of_a_config(check: Check, good: float, bad: float, line: str) -> None:
    check(May(good), "x")
    check(May(None), "x")
    check(Must(good), "x")
    with pytest.raises(BadInput, match=line):
        check(May(bad), "x")
    with pytest.raises(BadInput, match="got None"):  # its type does not say that it may be absent
        check(Must(None), "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [(), (0,), (1.5,), 64, "ab", ("a",)])
def test_sizes(bad: object) -> None:
    checks.sizes(Sizes((64, 32)), "hidden")
    with pytest.raises(BadInput, match=r"hidden must be sizes ≥ 1 such as \(64, 64\), got "):
        checks.sizes(Sizes(bad), "hidden")  # type: ignore[arg-type]


def test_an_object_of_a_kind() -> None:
    checks.kind(May(1), "x", int)
    with pytest.raises(BadInput, match="x must be of type str, got 1"):
        checks.kind(May(1), "x", str)
