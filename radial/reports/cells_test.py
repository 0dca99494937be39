"""Cells of an audit's table: bounds are rounded outward, and a bound of every policy is none."""

from typing import Any

from radial.reports.cells import EMPTY, certified_number, rows_of, width


def audited(lower: float, says: str) -> dict[str, Any]:
    level = {
        "radius": 0.1, "attacks": [], "worst": None, "gwc": None,
        "acr": {"mean": 0.99996, "sem": 0.0, "distinct_actions": 2},
        "bracket": {"lower": lower, "gap": 1.0, "kind": "certified", "starts": 3, "says": says},
    }  # fmt: skip
    clean = {"mean": -80.0, "sem": 1.0, "iqm": -80.0, "iqm_ci95": [-81.0, -79.0]}
    return {"discrete": True, "nominal": clean, "levels": [level]}


def test_a_certified_share_is_never_rounded_up() -> None:
    assert rows_of(audited(-90.06, ""))[1][1][4:8] == [
        "-90.1",
        "1.0",
        "certified, 3 starts",
        "0.999 ± 0.000 (2 distinct)",
    ]


def test_the_least_possible_return_is_no_certificate() -> None:
    said = "nothing is certified: the bound is the least possible return"
    assert rows_of(audited(-500.0, said))[1][1][4:7] == [EMPTY, EMPTY, "nothing is certified"]


def test_bounds_are_rounded_outward() -> None:
    assert (certified_number(0.9999, 2), certified_number(None)) == ("0.99", EMPTY)
    assert width({"width": 0.1201, "relative": True}) == "13 % of the range"
    assert width({"width": 0.1201, "relative": False}) == "0.121"
