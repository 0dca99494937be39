"""Attacks by name at the public door: `rr.evaluate(agent, env, "pgd", …)`.

Evaluation itself takes attacks as objects and knows none of them; what it exports is wrapped here.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from radial.attacks import ATTACKS
from radial.core.agent import Attack
from radial.core.data import BadInput
from radial.core.text import nearest
from radial.evaluation.play import Fittable, evaluate

P = ParamSpec("P")
R = TypeVar("R")


def attack_called(name: str) -> Attack | Fittable:
    """A new attack of this name in `ATTACKS`."""
    if name not in ATTACKS:
        raise BadInput(f"attack must be one of {', '.join(ATTACKS)}, got {name!r}{nearest(name, ATTACKS)}")
    return ATTACKS[name]()


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
