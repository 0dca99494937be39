"""Attacks by name at the public door: `rr.evaluate(agent, env, "pgd", …)`, `rr.worst_of(…, attacks=["pgd", …])`.

Evaluation itself takes attacks as objects and knows none of them; what it exports is wrapped here.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from radial.attacks import ATTACKS
from radial.attacks.timing import Timed
from radial.core.agent import Attack
from radial.core.checks import brief
from radial.core.data import BadInput
from radial.core.text import nearest
from radial.evaluation.play import Fittable, evaluate
from radial.workflows.audit.suite import attacks_of

P = ParamSpec("P")
R = TypeVar("R")


def attack_called(name: str) -> Attack | Fittable:
    """A new attack of this name in `ATTACKS`."""
    if name not in ATTACKS:
        raise BadInput(f"attack must be one of {', '.join(ATTACKS)}, got {name!r}{nearest(name, ATTACKS)}")
    return ATTACKS[name]()


def names_and_objects(given: Any) -> tuple[list[str] | None, dict[str, Attack | Fittable]]:
    """The names among several attacks, None for all that apply, and the objects among them, each under its settings."""
    if given is None:
        return None, {}
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not several:
        raise BadInput("attacks must be at least one attack, or None for all that apply, got none")
    objects: dict[str, Attack | Fittable] = {}
    for each in several:
        if isinstance(each, str):
            continue
        if isinstance(each, type) or not (hasattr(each, "perturb") or hasattr(each, "fit")):
            raise BadInput(f"attacks must be names or attacks such as MAD(), got {brief(each)}")
        if isinstance(each, Timed) and hasattr(each.attack, "fit"):
            raise BadInput(f"attacks must not be Timed where they learn: pass timing, got {brief(each)}")
        label, others = repr(each), (f"{each!r} ({number})" for number in itertools.count(2))
        while objects.get(label, each) != each:  # two adversaries may have the same settings
            label = next(others)
        objects[label] = each
    return attacks_of([each for each in several if isinstance(each, str)]), objects


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose argument `attack` may also be a name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments.get("attack")
        if isinstance(given, str):
            bound.arguments["attack"] = attack_called(given)
        return function(*bound.args, **bound.kwargs)

    return call


evaluate_by_name = by_name(evaluate)
