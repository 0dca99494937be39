"""The paper's figures about single agents of the zoo: GWC beside AWC and ACR on Freeway, and the bias of Q.

Tables are filled in `reproduce`; how a figure is drawn is in `reports.figures`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from radial.agents.zoo import zoo_names
from radial.core.checks import check_whole
from radial.core.data import BadInput, Step
from radial.core.text import spell_radius
from radial.envs.cloning import make_cloneable
from radial.envs.make import env_seeds, make_env
from radial.envs.wrapper import EnvWrapper
from radial.evaluation import statistics
from radial.evaluation.certificates import acr
from radial.evaluation.q_bias import q_bias
from radial.evaluation.worst_case import awc
from radial.recipes.recipe import recipe
from radial.workflows.protocol import EVALUATIONS, SEED, Book, CellResult, EvaluatedAgent, Watcher, silent
from radial.workflows.reproduce import resident
from radial.workflows.seeds import how_to_train

BOUND = "ibp"
# From where every crossing is certain to where none is: the paper's 1 … 1.5 leave a small agent AWC 0 everywhere.
RADII = tuple(pixels / 255 for pixels in (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5))
STARTS, HORIZON = 20, 80  # as in the paper
BUDGET = 10_000  # states; the paper gives up after 2,000 paths
Q_EPISODES, DISCOUNT = 5, 0.99
CROSSERS = (("freeway-radial-dqn",), ("freeway-small-radial-dqn",))
PLAYERS = (  # as in the paper; then the best that there is
    ("freeway-sa-dqn", "freeway-radial-dqn"),
    ("freeway-small-sa-dqn", "freeway-small-radial-dqn"),
    ("pong-small-dqn", "pong-small-radial-dqn"),
)


def from_zoo(choices: Sequence[Sequence[str]]) -> list[EvaluatedAgent]:
    """The agents of the first choice that the zoo has all of."""
    names = zoo_names()
    for wanted in choices:
        if all(name in names for name in wanted):
            return [resident(name) for name in wanted]
    affordable = next((wanted for wanted in choices if "-small-" in wanted[0]), choices[-1])
    missing = [name for name in affordable if name not in names]
    told = " or ".join(" and ".join(f"zoo/{name}" for name in wanted) for wanted in choices)
    raise BadInput(f"no agent {told}: {'; '.join(how_to_train(recipe(name)) for name in missing)}")


def who(agent: EvaluatedAgent) -> dict[str, Any]:
    """An agent, as a result names it."""
    card = agent.card
    return {
        "name": agent.name, "steps": card.steps, "seed": card.seed, "commit": card.commit, "sha256": agent.sha256,
        "engine": dict(agent.engine),
    }  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A figure's data, and the evaluations it rests on.

    agents   as `who` names them
    points   one for each thing that is drawn, as JSON
    """

    name: str
    title: str
    source: str
    agents: tuple[Mapping[str, Any], ...]
    protocol: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    results: tuple[CellResult, ...]
    summary: Mapping[str, Any] = field(default_factory=dict)  # of all points together

    def document(self) -> dict[str, Any]:
        """Everything but the evaluations, as JSON."""
        return {
            "figure": self.name, "title": self.title, "source": self.source, "protocol": dict(self.protocol),
            "agents": [dict(one) for one in self.agents], "points": [dict(point) for point in self.points],
            "summary": dict(self.summary),
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return {**self.document(), EVALUATIONS: {found.key: dict(found.facts) for found in self.results}}


# ------------------------------------------------------------------------------------------------- GWC, AWC, ACR


def gwc_awc_acr(
    out: Path, *, episodes: int | None = None, fresh: bool = False, watch: Watcher = silent, budget: int = BUDGET
) -> Drawn:
    """Freeway's first 80 steps from several starts: is the crossing certain? Each search is saved when it is finished.

    For each start and ε: +1 if every sequence of possible actions is rewarded within 80 steps, −1 if one is not, and 0
    for AWC if the budget ended before either was known (the authors drop those; here they are reported). GWC asks the
    same of the greedy worst case. ACR is the certified share of the steps of clean episodes up to the first reward.

    episodes  how many starts; None: the paper's 20
    """
    (agent,) = from_zoo(CROSSERS)
    starts = STARTS if episodes is None else episodes
    check_whole("episodes", starts, 1)
    book = Book(out / "gwc-awc-acr.json", fresh=fresh)
    proof = {"bound": BOUND, "arithmetic": "outward-rounded", "horizon": HORIZON}
    points, results = [], []
    for radius in RADII:
        with watch(f"{agent.name}, AWC {spell_radius(radius)}", starts) as progress:
            searched = []
            for number, seed in enumerate(env_seeds(SEED, starts)):
                key = _key(agent, "awc", **proof, radius=radius, seed=seed, budget=budget)
                searched.append(book.get(key, partial(_search, agent, key)))
                if progress is not None:
                    progress(number + 1)
        key = _key(agent, "acr until the first reward", **proof, radius=radius, seed=SEED, episodes=starts)
        with watch(f"{agent.name}, ACR {spell_radius(radius)}", starts):
            rate = book.get(key, partial(_rate, agent, key))
        points.append(_point(radius, [found.facts["starts"][0] for found in searched], rate))
        results += [*searched, rate]
    drawn = Drawn(
        "gwc-awc-acr", "GWC, AWC and ACR on Freeway", "RADIAL, figure on Freeway's first 80 steps", (who(agent),),
        {"starts": starts, "seed": SEED, "horizon": HORIZON, "bound": BOUND, "budget": budget},
        tuple(points), tuple(results), _tracking(points),
    )  # fmt: skip
    book.save(drawn.document())
    return drawn


def _tracking(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether GWC and ACR follow AWC: correlations over starts and ε with a known AWC, and over ε."""
    pairs = [(g, a) for point in points for g, a in zip(point["gwc"], point["awc"], strict=True) if a != 0]
    by_radius = [(point["gwc_share"], sum(point["awc_share"]) / 2, point["acr"]) for point in points]
    greedy, worst, rate = zip(*by_radius, strict=True)
    known = statistics.correlation(*zip(*pairs, strict=True)) if pairs else None
    return {
        "gwc_awc_of_starts": known, "starts_known": len(pairs),
        "same_answer": statistics.mean([float(g == a) for g, a in pairs]) if pairs else None,
        "gwc_awc_of_radii": statistics.correlation(greedy, worst),
        "acr_awc_of_radii": statistics.correlation(rate, worst),
    }  # fmt: skip


def _key(agent: EvaluatedAgent, measure: str, **settings: Any) -> dict[str, Any]:
    """Everything that a number depends on."""
    about = {"weights": agent.sha256, "env": str(agent.env), "engine": dict(agent.engine)}
    return {**about, "measure": measure, **settings}


def _search(agent: EvaluatedAgent, key: Mapping[str, Any]) -> CellResult:
    """AWC from one start."""
    world = make_cloneable(agent.env, key["seed"])
    try:
        found = awc(
            agent.agent, world, key["radius"], key["bound"], 1, key["seed"],
            horizon=key["horizon"], budget=key["budget"], name=agent.name,
        )  # fmt: skip
    finally:
        world.close()
    return CellResult.of({"key": dict(key), **found.to_json()})


def _rate(agent: EvaluatedAgent, key: Mapping[str, Any]) -> CellResult:
    """ACR of all starts at once."""
    world = UntilReward(make_env(agent.env, key["episodes"], key["seed"]))
    try:
        found = acr(
            agent.agent, world, key["radius"], key["bound"], key["episodes"], key["seed"],
            horizon=key["horizon"], name=agent.name,
        )  # fmt: skip
    finally:
        world.close()
    return CellResult.of({"key": dict(key), **found.to_json()})


def crossing(start: Mapping[str, Any]) -> int:
    """Whether the least return from a start is positive: +1, −1, or 0 where the search does not say."""
    if start["upper"] <= 0:
        return -1
    return 1 if start["lower"] is not None and start["lower"] > 0 else 0


def _point(radius: float, starts: Sequence[Mapping[str, Any]], rate: CellResult) -> dict[str, Any]:
    """One ε. Shares are means of (x + 1)/2, as the paper draws it; AWC's lies between two where not all is known."""
    worst = [crossing(start) for start in starts]
    greedy = [1 if start["greedy"] > 0 else -1 for start in starts]
    proven, unknown, count = worst.count(1), worst.count(0), len(worst)
    return {
        "radius": radius, "gwc": greedy, "gwc_share": statistics.mean([(x + 1) / 2 for x in greedy]), "awc": worst,
        "awc_share": [proven / count, (proven + unknown) / count], "awc_unknown": unknown, "acr": rate.mean,
        "acr_sem": rate.sem,
    }  # fmt: skip


class UntilReward(EnvWrapper):
    """A vector env whose first episodes end with their first positive reward; later episodes are not used."""

    def step(self, action: Tensor) -> Step:
        """Act in every env; a positive reward ends an episode."""
        step = self.env.step(action)
        return dataclasses.replace(step, terminated=step.terminated | (step.real & (step.score > 0)))


# --------------------------------------------------------------------------------------------------------- bias of Q


def q_biases(out: Path, *, episodes: int | None = None, fresh: bool = False, watch: Watcher = silent) -> Drawn:
    """Predicted minus realised Q along greedy episodes: SA-DQN and RADIAL-DQN on Freeway, where the zoo has both.

    episodes  of each agent; None: 5
    """
    agents = from_zoo(PLAYERS)
    count = Q_EPISODES if episodes is None else episodes
    check_whole("episodes", count, 1)
    book = Book(out / "q-bias.json", episodes=count, fresh=fresh)
    results = []
    for agent in agents:
        key = _key(agent, "q-bias", seed=SEED, episodes=count, discount=DISCOUNT)
        with watch(f"{agent.name}, bias of Q", count) as progress:
            results.append(book.get(key, partial(_bias, agent, key, progress)))
    drawn_of = ("mean", "sem", "errors", "returns", "predicted", "realised")
    points = [
        {"agent": agent.name} | {name: found.facts[name] for name in drawn_of}
        for agent, found in zip(agents, results, strict=True)
    ]
    drawn = Drawn(
        "q-bias", f"Predicted minus realised Q on {agents[0].env.id}", "RADIAL, figure on the bias of Q",
        tuple(who(agent) for agent in agents), {"episodes": count, "seed": SEED, "discount": DISCOUNT},
        tuple(points), tuple(results),
    )  # fmt: skip
    book.save(drawn.document())
    return drawn


def _bias(agent: EvaluatedAgent, key: Mapping[str, Any], progress: Callable[[int], None] | None) -> CellResult:
    found = q_bias(
        agent.agent, agent.env, key["episodes"], key["seed"], discount=DISCOUNT, name=agent.name,
        progress=progress,
    )  # fmt: skip
    return CellResult.of({"key": dict(key), **found.to_json()})


FIGURES: dict[str, Callable[..., Drawn]] = {"gwc-awc-acr": gwc_awc_acr, "q-bias": q_biases}
