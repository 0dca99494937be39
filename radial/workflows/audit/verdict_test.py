"""The headline: what it says of made-up results, and that it claims no more than they hold."""

import pytest

from radial.workflows.audit.result import AuditResult, Bracket, Level, Played
from radial.workflows.audit.verdict import headline

START = "Undisturbed it scores 500.0 ± 0.0."


def result(*proven: tuple[float, float, int], attacked: float | None = None) -> AuditResult:
    """Of each radius: the proven mean return, and from how many first states."""
    levels = [Level(radius, bracket=Bracket(lower, None, "certified", n, "")) for radius, lower, n in proven]
    for level in levels if attacked is not None else []:
        assert attacked is not None
        level.attacks["pgd"] = Played("pgd", level.radius, "", (attacked,) * 3, (int(attacked),) * 3)
    return AuditResult({}, Played("none", 0.0, "none", (500.0,) * 3, (500,) * 3), levels)


@pytest.mark.parametrize(
    ("proven", "says"),
    [
        (
            [(0.01, 500.0, 3), (0.05, 260.06, 2), (0.1, 9.0, 2)],
            "Proven: at ε = 0.05 no adversary can bring its mean return from these 2 first states below 260.0.",
        ),
        (
            [(0.01, 20.5, 1), (0.05, 9.0, 1)],
            "Little is proven: at ε = 0.01 no adversary can bring its return from this one first state below 20.5.",
        ),
        ([], "Nothing about its return is proven."),
    ],
)
def test_what_is_proven_is_said_of_the_largest_radius_where_it_is_worth_something(
    proven: list[tuple[float, float, int]], says: str
) -> None:
    assert headline(result(*proven)) == f"{START} There was no time for an attack. {says}"
    assert headline(result(*proven), attacked=False) == f"{START} No attack was asked for. {says}"
    assert headline(result(*proven, attacked=490.0)).endswith(says)


def test_returns_below_zero() -> None:
    found = result((0.01, -90.0, 2), (0.05, -500.0, 2))
    found.nominal = Played("none", 0.0, "none", (-80.0,) * 2, (80,) * 2)
    assert "Proven: at ε = 0.01" in headline(found)
    assert "below -90.0." in headline(found)
