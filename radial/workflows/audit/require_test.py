"""Requirements as people write them in a build file."""

import pytest

from radial.core.data import BadInput
from radial.workflows.audit.require import requirement
from radial.workflows.audit.result import AuditResult, Bracket, Level, Played


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


def test_numbers_may_begin_with_a_dot() -> None:
    assert (requirement("return@.05>=400").radius, requirement("return@.05≥.5").limit) == (0.05, 0.5)


NONSENSE = ("", "return@.>=1", "return@0.1=>1",
            "return", "return@0.1", "return@x>=1", "reward@0.1>=1", "nominal@0.1>=1", "acr@1/0>=1", "return@0.1==3",
            "return@0.1>=__import__('os')", f"return@{400 * '9'}>=1")  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_not_understood(text: str) -> None:
    with pytest.raises(BadInput, match="a requirement"):
        requirement(text)
