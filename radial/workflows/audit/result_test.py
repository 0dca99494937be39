"""The headline claims no more than a result holds, and requirements are read as people write them in a build file."""

import math

import pytest

from radial.core.data import BadInput
from radial.workflows.audit.result import AuditResult, Bracket, Level, Played, requirement
from radial.workflows.audit.verdict import headline

START = "Clean return 500.0 ± 0.0."


def certified(*proven: tuple[float, float, int], attacked: float | None = None) -> AuditResult:
    """Of each radius: the certified mean return, and from how many starts."""
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
            "Certified: at ε = 0.05 no adversary can bring the mean return from these 2 starts below 260.0.",
        ),
        (
            [(0.01, 20.5, 1), (0.05, 9.0, 1)],
            "Little is certified: at ε = 0.01 no adversary can bring the return from this one start below 20.5.",
        ),
        ([], "No return is certified."),
    ],
)
def test_what_is_proven_is_said_of_the_largest_radius_where_it_is_worth_something(
    proven: list[tuple[float, float, int]], says: str
) -> None:
    assert headline(certified(*proven)) == f"{START} There was no time for an attack. {says}"
    assert headline(certified(*proven), attacked=False) == f"{START} No attack was asked for. {says}"
    assert headline(certified(*proven, attacked=490.0)).endswith(says)


def test_returns_below_zero() -> None:
    found = certified((0.01, -90.0, 2), (0.05, -500.0, 2))
    found.nominal = Played("none", 0.0, "none", (-80.0,) * 2, (80,) * 2)
    assert "Certified: at ε = 0.01" in headline(found)
    assert "below -90.0." in headline(found)


def attacked(clean: float, random: float | None, gap: float, error: float, episodes: int = 20) -> str:
    """The headline where one attack has this gap."""
    played = Played("pgd", 0.1, "", (clean - gap,) * episodes, (9,) * episodes, gap, error)
    result = AuditResult({}, Played("none", 0.0, "none", (clean,) * 20, (9,) * 20), [Level(0.1, {"pgd": played})])
    result.random = random
    return headline(result)


@pytest.mark.parametrize(
    ("clean", "random", "gap", "error", "clear"),
    [
        (-148.0, -1200.0, 29.0, 5.0, False),  # Pendulum: a fortieth of the range, though a fifth of |return|
        (290.0, -100.0, 29.0, 31.0, False),  # BipedalWalker: within two standard errors
        (290.0, -100.0, 60.0, 31.0, False),
        (500.0, 22.0, 100.0, 9.0, True),  # CartPole
        (3000.0, 18.0, 1500.0, 200.0, True),  # Hopper
        (20.0, -20.7, 10.0, 1.0, True),  # Pong
        (-100.0, -200.0, 20.0, 2.0, True),  # MountainCar
        (0.0, None, 0.0, 0.0, False),
        (9.3, 22.0, 0.5, 0.1, False),  # an agent that has learned nothing
    ],
)
def test_an_attack_counts_by_the_range_of_returns_and_its_standard_error(
    clean: float, random: float | None, gap: float, error: float, clear: bool
) -> None:
    said = attacked(clean, random, gap, error)
    assert ("Not robust" in said) is clear
    assert ("No clear effect of any attack up to ε = 0.1" in said) is not clear


def test_one_episode_has_no_standard_error() -> None:
    assert "pgd reduces it to 10.0 (one episode)" in attacked(20.0, -20.7, 10.0, 0.0, episodes=1)


def test_shares_and_radii_stand_in_the_headline_and_are_never_rounded_up() -> None:
    result = certified((0.01, 500.0, 3), attacked=490.0)
    result.levels.append(Level(0.1, acr={"mean": 0.9999, "certified": 99}))
    result.levels[0].acr = {"mean": 1.0, "certified": 100}
    result.certified_radius = {"mean": 0.0349}
    said = headline(result)
    assert "Certified actions: 100 % at ε = 0.01, 99 % at 0.1; mean certified radius 0.034." in said


def test_the_least_possible_return_is_no_certificate() -> None:
    """Acrobot cannot return less than −500, whatever is done."""
    result = certified((0.01, -500.0, 3))
    assert result.levels[0].bracket is not None
    result.levels[0].bracket = Bracket(-500.0, None, "certified", 3, "nothing is certified: the bound is the least")
    assert headline(result).endswith("Nothing is certified about the return.")


def test_a_bound_without_any_certified_action_is_only_that_poles_fall_slowly() -> None:
    result = certified((0.1, 9.0, 3))
    result.levels[0].acr = {"mean": 0.0, "certified": 0}
    assert headline(result).endswith("Certified actions: 0 % at ε = 0.1. Nothing is certified about the return.")


def test_episodes_are_paired_by_their_starts() -> None:
    clean = Played("none", 0.0, "none", (10.0, 20.0, 30.0), (1, 2, 3))
    cut = Played("pgd", 0.1, "", (5.0, 1.0), (1, 1), numbers=(2, 0))
    assert cut.gaps(clean) == {2: 25.0, 0: 9.0}
    result = AuditResult({}, clean, [Level(0.1, {"pgd": cut}), Level(0.2, {"pgd": cut})])
    assert result.largest_drop() == (0.1, 2, cut)
    same = Played("mad", 0.2, "", clean.returns, clean.lengths)
    assert AuditResult({}, clean, [Level(0.1, {"a": same}), Level(0.2, {"a": same})]).largest_drop() == (0.2, 0, same)


# --------------------------------------------------------------------------------------------------------- requirements


def result() -> AuditResult:
    level = Level(
        3 / 255, {"pgd": Played("pgd", 3 / 255, "", (300.0, 500.0), (300, 500))}, acr={"mean": 0.9, "sem": 0.0}
    )
    level.bracket = Bracket(40.0, 400.0, "certified", 2, "exact")
    other = Level(0.5, bracket=Bracket(40.0, 400.0, "estimate", 2, ""))
    return AuditResult({}, Played("none", 0.0, "none", (500.0,), (500,)), [level, other])


KEPT = ("return@3/255>=400", "acr@3/255 > 0.8", "lower@3/255<=40", "nominal>=500", "acr@3/255>.8", "acr@3/255≥.9",
        "nominal ≤ 5e2")  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_kept(text: str) -> None:
    assert requirement(text).broken(result()) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("return@3/255>=401", "return@3/255>=401: return is 400"),
        ("gwc@3/255>=1", "gwc@3/255>=1: gwc was not measured"),
        ("lower@0.5>=1", "lower@0.5>=1: lower was not measured"),  # an estimate is no bound
        ("radius>=0.1", "radius>=0.1: radius was not measured"),
        ("acr@0.2>=0", "acr@0.2>=0: acr was not measured"),
    ],
)
def test_broken(text: str, says: str) -> None:
    assert requirement(text).broken(result()) == says


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sign", [">=", "<=", ">", "<"])
def test_a_requirement_on_something_not_finite_is_broken(value: float, sign: str) -> None:
    found = result()
    found.levels[0].box = {"width": value}
    broken = requirement(f"width@3/255{sign}0").broken(found)
    assert broken is not None
    assert "width is" in broken


def test_numbers_may_begin_with_a_dot() -> None:
    assert (requirement("return@.05>=400").radius, requirement("return@.05≥.5").limit) == (0.05, 0.5)


NONSENSE = ("", "return@.>=1", "return@0.1=>1",
            "return", "return@0.1", "return@x>=1", "reward@0.1>=1", "nominal@0.1>=1", "acr@1/0>=1", "return@0.1==3",
            "return@0.1>=__import__('os')", f"return@{400 * '9'}>=1")  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_not_understood(text: str) -> None:
    with pytest.raises(BadInput, match="a requirement"):
        requirement(text)


def test_held_out_each_half_is_judged_by_the_attack_that_the_other_half_chose() -> None:
    """On starts 0 and 2 a is the strongest, so 1 and 3 are judged by it; there b is, which judges 0 and 2."""
    a = Played("a", 0.1, "a", (0.0, 100.0, 10.0, 110.0), (1,) * 4)
    b = Played("b", 0.1, "b", (100.0, 0.0, 120.0, 10.0), (1,) * 4)
    level = Level(0.1, {"a": a, "b": b})
    assert level.worst is a
    held_out = level.held_out
    assert held_out is not None
    assert held_out["mean"] == (100.0 + 110.0 + 100.0 + 120.0) / 4
    assert level.to_json()["held_out"] == held_out
    assert Level(0.1, {"a": a}).held_out == {"mean": a.mean, "sem": a.sem}  # nothing to choose
    assert Level(0.1, {"a": Played("a", 0.1, "a", (5.0,), (5,))}).held_out is None
