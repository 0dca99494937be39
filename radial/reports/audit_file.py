"""Checks the plain data of an `audit.json` that may come from anyone, before a page is made of it.

Every value that the page or its inspector reads has a type and a limit here; fields that neither reads are passed over.
"""

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from radial.core.data import BadInput

LONGEST_TEXT = 4_000  # characters
LONGEST_PICTURE = 1_000_000
MOST_STEPS = 100_000  # of a recorded episode
MOST_ITEMS = 1_000  # of any other list
LARGEST_NUMBER = 1e30
MOST_PICTURES = 1_000  # rendered ones of an episode
_PICTURE = re.compile(r"data:image/(?:png|webp);base64,[A-Za-z0-9+/]*={0,2}")
Check = Callable[[Any, str], None]  # a value and its name; raises BadInput


def check_audit(facts: Any) -> None:
    """Refuse data that is no audit, in one line that names the field."""
    if not isinstance(facts, Mapping) or facts.get("format") != 1 or isinstance(facts.get("format"), bool):
        raise BadInput("format must be 1")
    _AUDIT(facts, "")
    if facts.get("trace") is not None:
        _check_trace(facts["trace"])


# ----------------------------------------------------------------------------------------------------- kinds of values


def _text(value: Any, name: str) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise BadInput(f"{name} must be a text of at most {LONGEST_TEXT} characters")


def _number(value: Any, name: str) -> None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not (math.isfinite(value) and abs(value) <= LARGEST_NUMBER):
        raise BadInput(f"{name} must be a finite number")


def _count(value: Any, name: str) -> None:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadInput(f"{name} must be a whole number ≥ 0")


def _switch(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false")


def _picture(value: Any, name: str) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_PICTURE or not _PICTURE.fullmatch(value):
        raise BadInput(f"{name} must be a PNG or WebP as a data URL of at most {LONGEST_PICTURE} characters")


def _one_of(*words: str) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or value not in words:
            raise BadInput(f"{name} must be one of {', '.join(words)}")

    return check


def _or_none(inner: Check) -> Check:
    def check(value: Any, name: str) -> None:
        if value is not None:
            inner(value, name)

    return check


def _items(inner: Check, most: int = MOST_ITEMS) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise BadInput(f"{name} must be a list of at most {most} items")
        for item in value:
            inner(item, f"{name}[]")

    return check


def _named(inner: Check) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, Mapping) or len(value) > MOST_ITEMS:
            raise BadInput(f"{name} must be an object of at most {MOST_ITEMS} fields")
        for key, item in value.items():
            _text(key, name)
            inner(item, name)

    return check


def _table(**fields: Check) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            raise BadInput(f"{name} must be an object")
        for field, inner in fields.items():
            where = f"{name}.{field}" if name else field
            if field not in value:
                raise BadInput(f"{where} is missing")
            inner(value[field], where)

    return check


# ---------------------------------------------------------------------------------------------------------- the audit

_NUMBERS = _items(_or_none(_number))
_SPREAD = {"mean": _number, "sem": _number}
_PLAYED = {**_SPREAD, "attack": _text, "iqm": _number, "iqm_ci95": _items(_number, 2)}
_LEVEL = _table(
    radius=_number, env_units=_or_none(_items(_number, MOST_STEPS)), attacks=_items(_table(**_PLAYED)),
    worst=_or_none(_text), worst_return=_or_none(_number), acr=_or_none(_table(**_SPREAD)),
    gwc=_or_none(_table(**_SPREAD)), box=_or_none(_table(width=_number, relative=_switch)),
    bracket=_or_none(
        _table(lower=_or_none(_number), upper=_or_none(_number), gap=_or_none(_number), kind=_text, starts=_count)
    ),
)  # fmt: skip
_AUDIT = _table(
    agent=_text, about=_text, env=_text, engine=_named(_text), episodes=_count, seed=_count, bound=_text,
    arithmetic=_text, discrete=_switch, features=_or_none(_items(_text, MOST_STEPS)), verdict=_text,
    nominal=_table(**_PLAYED), levels=_items(_LEVEL, 100), left_out=_named(_text), notes=_items(_text),
    warnings=_items(_text), cuts=_items(_text), wall_seconds=_number,
    certified_radius=_or_none(
        _table(mean=_number, median=_number, least=_number, most=_number, states=_count, of=_count)
    ),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------- the trace

_TRACE = _table(
    attack=_text, radius=_number, discrete=_switch, picture=_switch, noticed=_number,
    features=_items(_text, MOST_STEPS), actions=_items(_text), units=_or_none(_items(_or_none(_number), MOST_STEPS)),
    first_changed=_or_none(_count), ended=_switch, nominal=_table(ended=_switch),
)  # fmt: skip
_FILM = _or_none(_table(at=_items(_count, MOST_PICTURES), images=_items(_picture, MOST_PICTURES)))
_PICTURES = _table(clean=_FILM, attacked=_FILM, note=_or_none(_text))
_ROWS = ("scores", "moved", "lower", "upper")


def _check_trace(trace: Any) -> None:
    """Both episodes: each list has an item for every step, of the kind the inspector draws."""
    _TRACE(trace, "trace")
    action: Check = _count if trace["discrete"] else _NUMBERS
    scene: dict[str, Check] = {"frames": _picture} if trace["picture"] else {"raw": _NUMBERS}
    more: dict[str, Check] = {"shown": _picture, "amplified": _picture} if trace["picture"] else {"delta": _NUMBERS}
    both: dict[str, Check] = {"reward": _number, "action": action, **scene}
    attacked = {**both, **more, **dict.fromkeys(_ROWS, _NUMBERS), "clean_action": action}
    attacked["verdicts"] = _one_of("certified", "attacked", "unknown")
    _check_steps(trace, "trace", attacked)
    _check_steps(trace["nominal"], "trace.nominal", both)
    if trace.get("pictures") is not None:  # older audits have none
        _PICTURES(trace["pictures"], "trace.pictures")
        for name in ("clean", "attacked"):
            _check_film(trace["pictures"][name], f"trace.pictures.{name}")
    if trace["discrete"]:
        taken = [*trace["action"], *trace["clean_action"], *trace["nominal"]["action"]]
        if max(taken) >= len(trace["actions"]):
            raise BadInput("trace.actions must name every action that was taken")


def _check_steps(episode: Mapping[str, Any], name: str, fields: Mapping[str, Check]) -> None:
    _table(**{field: _items(inner, MOST_STEPS) for field, inner in fields.items()})(episode, name)
    steps = len(episode["reward"])
    if not steps or any(len(episode[field]) != steps for field in fields):
        raise BadInput(f"{name} must have one item per step, and a step at least, in {', '.join(fields)}")


def _check_film(film: Any, name: str) -> None:
    """Rendered pictures: the first at step 0, each later one at a later step."""
    if film is None:
        return
    at = film["at"]
    if len(at) != len(film["images"]) or at[:1] != [0] or any(b <= a for a, b in pairwise(at)):
        raise BadInput(f"{name} must have one image for each of its steps, from 0 on and increasing")
