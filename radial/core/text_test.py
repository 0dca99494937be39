import pytest

from radial.core.text import round_down


@pytest.mark.parametrize(("value", "said"), [(60 / 7, "8.5"), (8.6, "8.6"), (-0.05, "-0.1"), (500.0, "500.0")])
def test_what_is_proven_from_below_is_never_rounded_up(value: float, said: str) -> None:
    assert round_down(value) == said
    assert float(said) <= value
