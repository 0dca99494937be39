import json

import pytest

from radial.core.text import clean, clean_json, has_surrogate, round_down


@pytest.mark.parametrize(("value", "said"), [(60 / 7, "8.5"), (8.6, "8.6"), (-0.05, "-0.1"), (500.0, "500.0")])
def test_what_is_proven_from_below_is_never_rounded_up(value: float, said: str) -> None:
    assert round_down(value) == said
    assert float(said) <= value


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
