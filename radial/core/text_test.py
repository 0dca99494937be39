import json

import pytest

from radial.core.text import (
    clean,
    clean_json,
    digits_down,
    has_surrogate,
    percent_down,
    round_down,
    round_up,
)


@pytest.mark.parametrize(("value", "said"), [(60 / 7, "8.5"), (8.6, "8.6"), (-0.05, "-0.1"), (500.0, "500.0")])
def test_what_is_proven_from_below_is_never_rounded_up(value: float, said: str) -> None:
    assert round_down(value) == said
    assert float(said) <= value


def test_shares_and_radii_are_rounded_down_and_upper_bounds_up() -> None:
    assert (round_down(0.9996, 3), round_down(0.7, 3), round_down(1.0, 3)) == ("0.999", "0.700", "1.000")
    assert (round_up(0.1801, 3), round_up(0.18, 3), round_up(12.01, 0)) == ("0.181", "0.180", "13")
    assert (percent_down(0.9999), percent_down(0.76), percent_down(1.0)) == ("99 %", "76 %", "100 %")
    assert (digits_down(0.0349, 2), digits_down(0.012999), digits_down(1.0), digits_down(0.0)) == (
        "0.034", "0.0129", "1", "0",
    )  # fmt: skip


@pytest.mark.parametrize(
    "evil", ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "a\rb", "\u202egpj", "\u2028", "\ud800", "\x7f"]
)
def test_a_terminal_obeys_nothing_that_a_file_says(evil: str) -> None:
    assert clean(evil, "").isprintable()
    assert "\ufffd" in clean(evil)
    spelled = clean_json(json.dumps({evil: evil}, ensure_ascii=False))
    assert spelled.isprintable()
    assert json.loads(spelled) == {evil: evil}


def test_plain_text_stays() -> None:
    text = "ε = 3/255 ± 0.1\n\tmean\u00a0return – “certified” 智"
    assert clean(text) == text
    assert json.loads(clean_json(json.dumps({"a": text, "b": "\U000e0001"}, ensure_ascii=False, indent=2)))["a"] == text


def test_half_a_character_is_found_at_any_depth() -> None:
    assert has_surrogate({"a": [1, {"b": "x\udc80"}]})
    assert has_surrogate({"\ud800": 1})
    assert not has_surrogate({"a": ["é", None, 1.5, "\U0001f600"]})
