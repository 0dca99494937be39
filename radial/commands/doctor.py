"""`radial doctor`: where the bounds of an agent's network blow up, layer by layer.

The measurement is in `evaluation.widths`.
"""

from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, warnings_said
from radial.core.errors import BadInput

if TYPE_CHECKING:
    from radial.evaluation.widths import Widths


def doctor(
    agent: tyro.conf.Positional[str],
    radius: str | None = None,
    env: str | None = None,
    kind: str | None = None,
    states: int = 256,
    seed: int = 0,
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """Print how wide the interval bounds of each layer are against the spread of its values: where do they blow up?

    A ratio far above 1 at the scores certifies nothing. `radial robustify` chooses its objective by it.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        radius: perturbation radius ε in network units, such as 0.075 or 1/255.
        env: an environment's id, such as CartPole-v1 or fruitbot; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        states: of clean episodes, over which widths are averaged and the spread is taken.
        seed: random seed.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        json: print one JSON object instead of a table.
    """
    from radial.envs.make import example_for
    from radial.evaluation.threads import one_thread_for
    from radial.evaluation.widths import widths
    from radial.recipes.recipe import parse_radius
    from radial.workflows.loading import load

    if radius is None:
        raise BadInput("doctor needs a --radius, such as 0.075 or 1/255")
    with warnings_said():
        loaded = load(agent, env, vecnormalize, kind=kind)
        one_thread_for(loaded.observation_shape)
        if loaded.card.env is None:
            near = example_for(loaded.observation_shape)
            raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
        found = widths(loaded, loaded.card.env, parse_radius(radius), states=states, seed=seed, name=agent)
    if json:
        print_json(found.to_json())
    else:
        _show(found)


def _show(found: "Widths") -> None:
    from radial.core.text import spell_radius
    from radial.evaluation.widths import HOPELESS

    table = Table(title=f"{found.agent} in {found.env}, ε = {spell_radius(found.radius)}, {found.states} states")
    for heading in ("layer", "kind", "elements", "bound width", "spread", "ratio", "growth"):
        table.add_column(heading, justify="left" if heading in ("layer", "kind") else "right")
    for layer in found.layers:
        size = "×".join(map(str, layer.shape))
        growth = "" if layer.growth is None else f"× {layer.growth:.3g}"
        table.add_row(
            layer.name, layer.kind, size, f"{layer.width:.3g}", f"{layer.spread:.3g}", f"{layer.ratio:.3g}", growth
        )
    print_table(table)
    worst = found.steepest
    verdict = "hopeless for training on bounds" if not found.ratio < HOPELESS else "within reach of training on bounds"
    say(f"ratio at the scores {found.ratio:.3g}: {verdict}; it grows most at {worst.name} ({worst.kind})")
