"""`radial attack fit`: train an adversary against an agent, and save it for `radial evaluate --attack`.

The adversaries are in `attacks.learned`.
"""

from functools import partial
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from radial.commands.parsing import parse_norm
from radial.commands.scaling import HERE, Scaled
from radial.commands.terminal import print_json, print_table, say, warnings_said
from radial.core.checks import check_whole
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for

BY = {
    "deterministic": "by its best action", "sampled": "by its sample", "noise": "as noise: it learned nothing worse",
}  # fmt: skip
KINDS = ("best", "sarl", "paad", "linear")


def fit_attack(
    agent: tyro.conf.Positional[str],
    radius: str,
    out: str,
    kind: str = "best",
    env: str | None = None,
    steps: int | None = None,
    seed: int = 0,
    p: str = "inf",
    restarts: int | None = None,
    resume: bool = False,
    scaling: Scaled = HERE,
    json: bool = False,
) -> None:
    """Train an adversary against an agent that acts deterministically, with the negative of its reward.

    Candidates are compared on validation episodes of their own; evaluate the result on others:
    radial evaluate AGENT --attack DIR --radius R [--p P]. SIGINT and SIGTERM save before they stop.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL.
        radius: perturbation radius ε in network units, such as 0.075 or 3/255.
        out: the folder of the fit, new, empty or that of a fit: its trials, and the attack in agent/.
        kind: sarl (a policy over perturbations), paad (a director over the agent's actions), linear (such a director,
            a linear one, by the cross-entropy method), or best: the first two at several learning rates, by successive
            halving, and the third on vectors.
        env: an environment's id, such as Hopper-v4; default: the one the agent was trained in.
        steps: env steps of all trainings together; default: 1,200,000, for best 2,400,000, for linear 400,000.
        seed: random seed.
        p: of the norm: 1, 2 or inf.
        restarts: trainings of each setting with different seeds; default: 4, for best 1.
        resume: resume the fit in that folder; with --on ray a fit that is there is resumed anyway.
        scaling: where jobs run.
        json: print one JSON object instead of a table.
    """
    from radial.agents.saved import check_target
    from radial.attacks.learned.adversaries import PAAD, SARL, Learned, LinearDirector
    from radial.attacks.learned.records import FIT_RECORD, check_fit_folder
    from radial.attacks.learned.stored import ATTACK_FOLDER, save_attack
    from radial.commands.measure import keep_freed_memory
    from radial.core.text import nearest
    from radial.envs.make import example_for
    from radial.evaluation.play import spec_of
    from radial.recipes.recipe import parse_radius
    from radial.workflows.loading import load

    if kind not in KINDS:
        raise BadInput(f"kind must be one of {', '.join(KINDS)}, got {kind!r}{nearest(kind, KINDS)}")
    given: dict[str, Any] = {"radius": parse_radius(radius), "p": parse_norm(p), "steps": steps, "restarts": restarts}
    made = {"best": Learned, "sarl": SARL, "paad": PAAD, "linear": LinearDirector}[kind]
    if given["radius"] == 0:
        raise BadInput(f"radius must be > 0 for an adversary that learns: there is nothing to learn at {radius}")
    check_whole("seed", seed, 0)
    settings = made(**{name: value for name, value in given.items() if value is not None})
    place = scaling.place()
    resume = resume or place.on == "ray"
    if not out:
        raise BadInput("--out must be a folder, got ''")
    folder = Path(out).absolute()
    if (folder / FIT_RECORD).exists() and not resume:
        raise BadInput(f"{out} already holds a fit; use --resume to resume it or another --out")
    check_fit_folder(folder, "--out")
    check_target(folder / ATTACK_FOLDER)
    loaded = load(agent, env)
    one_thread_for(loaded.observation_shape)
    where = loaded.card.env
    if where is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    keep_freed_memory()
    with warnings_said():
        attack = settings.fit(
            loaded, spec_of(where), seed, out=folder, resume=resume, quiet=False, storage=scaling.storage,
            each=None if place.is_here else partial(place.each, say=say),
        )  # fmt: skip
        save_attack(attack, folder / ATTACK_FOLDER)
    more = ("" if p == "inf" else f" --p {p}") + ("" if env is None else f" --env {env}")
    say(f"the attack is in {out}: radial evaluate {agent} --attack {out} --radius {radius}{more}")
    record = attack.record
    if json:
        print_json({"agent": agent, "attack": repr(attack), "kind": attack.kind, "acts": attack.acts, **record})
        return
    table = Table("trial", "round", "steps", "return in validation", title=f"{attack.kind} against {agent}")
    for trial in record["trials"]:
        result = "cut: its episodes are too long" if trial["validation"] is None else f"{trial['validation']:.1f}"
        table.add_row(trial["name"], str(trial["round"]), f"{trial['steps']:,}", result)
    table.add_row(f"the attack, {BY[attack.acts]}", "", f"{attack.steps:,}",
                  f"{min(record['validation'].values()):.1f}")  # fmt: skip
    print_table(table)
