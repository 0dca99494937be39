"""Fitted attacks as folders: the adversary's policy is saved like any agent, and its card says what it is for.

Nothing in such a folder is executed; a folder that holds no attack is refused in one line.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from radial.agents import saved
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.attacks.learned.adversaries import ACTS, FORMS, LearnedAttack
from radial.attacks.learned.forms import Form, Shift, Steer
from radial.attacks.learned.records import FIT_RECORD, differing, kept_settings
from radial.core import checks
from radial.core.agent import Card
from radial.core.ball import NORMS
from radial.core.data import BadInput, EnvSpec

ATTACK_FORMAT = 1
ATTACK_FOLDER = "agent"  # of a fit: the same place as the agent of a run
FACTS: dict[str, type | tuple[type, ...]] = {
    "format": int, "kind": str, "radius": (int, float, list), "p": (str, int, float), "steps": int, "sampled": bool,
    "form": dict, "weights": str, "observation_shape": list, "actions": str, "env": dict, "seed": int, "trials": list,
    "curve": list, "validation_episodes": int, "validation": dict,
}  # fmt: skip
# Attacks from before lack these.
LATER_FACTS: dict[str, type | tuple[type, ...]] = {"agent_kind": (str, type(None)), "acts": str}
_OWN = ("format", "kind", "sampled", "acts", "form", "radius", "p")  # fields of the attack; the others are its record


def save_attack(attack: LearnedAttack, folder: str | Path) -> Path:
    """Write a fitted attack, complete or not at all; load it with `load_attack`, or `--attack FOLDER`."""
    if not isinstance(attack, LearnedAttack):
        raise BadInput(f"attack must be one that SARL, PAAD or Learned fitted, got {attack!r}")
    assert isinstance(attack.form, Shift | Steer)
    env = attack.record["env"]
    facts = {
        "format": ATTACK_FORMAT, "kind": attack.kind, "sampled": attack.acts == "sampled", "acts": attack.acts,
        "form": asdict(attack.form),
        "radius": list(attack.radius) if isinstance(attack.radius, tuple) else attack.radius,
        "p": "inf" if math.isinf(attack.p) else attack.p, **attack.record,
    }  # fmt: skip
    attack.policy.card = Card(
        env=EnvSpec(env["suite"], env["id"], env["options"]),
        recipe={"name": f"attack-{attack.kind}", "attack": facts},
        seed=attack.record["seed"],
        steps=attack.steps,
    )
    return saved.save(attack.policy, folder)


def load_attack(path: str | Path) -> LearnedAttack:
    """A fitted attack from its folder, or from the folder of its fit."""
    path = Path(path)
    if (path / FIT_RECORD).is_file() and not is_fitted(path):
        raise BadInput(
            f"{path} holds an unfinished fit, or one whose {ATTACK_FOLDER}/ was removed: "
            f"`radial attack fit … --out {path} --resume` finishes it"
        )
    if not path.exists():
        raise BadInput(f"there is no attack at {path}: it must be the folder of one, or of its fit")
    policy = saved.load_agent(path)
    facts = policy.card.recipe.get("attack")
    if facts is None or not isinstance(policy, GaussianAgent | CategoricalAgent):
        raise BadInput(f"{path} holds an agent, not an attack: `radial attack fit` makes one")
    _check(path, facts)
    radius = facts["radius"]
    return LearnedAttack(
        kind=facts["kind"],
        radius=tuple(float(each) for each in radius) if isinstance(radius, list) else float(radius),
        p=math.inf if facts["p"] == "inf" else float(facts["p"]),
        steps=facts["steps"],
        acts=facts.get("acts", "sampled" if facts["sampled"] else "deterministic"),
        policy=policy,
        form=_form(path, facts["kind"], facts["form"]),
        record={name: facts[name] for name in (*FACTS, *LATER_FACTS) if name not in _OWN and name in facts},
    )


def is_fitted(folder: Path) -> bool:
    """Whether the fit in a folder has finished."""
    return (folder / ATTACK_FOLDER / saved.CARD).is_file()


def fit_folder(folder: Path, asked: Mapping[str, Any]) -> Path:
    """The folder of the fit that is asked for, begun or not: this one, or one beside it where this holds another fit.

    asked  as `asked_for` gives it
    """
    short = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
    beside = folder.with_name(f"{folder.name}-{short}")
    for each in (folder, beside):
        there = kept_settings(each)
        if there is not None and not _unlike(asked, there, is_fitted(each)):
            return each
    there = kept_settings(folder)
    if there is None and not is_fitted(folder):
        return folder
    why = "does not say with which settings its attack was fitted"
    if there is not None:
        why = f"holds a fit with other settings ({', '.join(_unlike(asked, there, is_fitted(folder)))})"
    warnings.warn(f"{folder} {why}: the one asked for is in {beside.name}", UserWarning, stacklevel=2)
    return beside


def _unlike(asked: Mapping[str, Any], there: Mapping[str, Any], finished: bool) -> list[str]:
    """The settings that differ; in which simulator a finished attack learned is no matter."""
    return differing(*(_on_any_backend(each) for each in (asked, there))) if finished else differing(asked, there)


def _on_any_backend(settings: Mapping[str, Any]) -> dict[str, Any]:
    env = settings.get("env", {})
    options = {name: value for name, value in env.get("options", {}).items() if name != "backend"}
    return {**settings, "env": {**env, "options": options}}


def is_attack(recipe: Mapping[str, Any]) -> bool:
    """Whether a card's recipe is that of an attack."""
    return "attack" in recipe and "config" not in recipe


def _check(path: str | Path, facts: Any) -> None:
    """All facts of this format, each of its type."""
    if not isinstance(facts, dict) or facts.get("format") != ATTACK_FORMAT:
        raise BadInput(f"{path}: the attack's format must be {ATTACK_FORMAT}; a newer radial may be needed")
    present = {name: kind for name, kind in LATER_FACTS.items() if name in facts}
    for name, kind in (FACTS | present).items():
        value = facts.get(name, ...)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise BadInput(f"{path}: attack.{name} is missing or of the wrong type")
    radii = facts["radius"] if isinstance(facts["radius"], list) else [facts["radius"]]
    if not radii or not all(checks.is_finite(radius) and radius >= 0 for radius in radii):
        raise BadInput(f"{path}: attack.radius must be made of finite numbers ≥ 0")
    if facts["p"] not in ("inf", *NORMS[:-1]):
        raise BadInput(f"{path}: attack.p must be 1, 2 or inf")
    if facts.get("acts", ACTS[0]) not in ACTS:
        raise BadInput(f"{path}: attack.acts must be one of {', '.join(ACTS)}")
    if facts["kind"] not in FORMS:
        raise BadInput(f"{path}: attack.kind must be one of {', '.join(FORMS)}")
    if not isinstance(facts["env"].get("id"), str):
        raise BadInput(f"{path}: attack.env must have an id")


def _form(path: str | Path, kind: str, settings: Mapping[str, Any]) -> Form:
    try:
        return FORMS[kind](**settings)
    except (TypeError, BadInput) as error:
        raise BadInput(f"{path}: attack.form is not one of {kind}: {str(error)[:100]}") from None
