"""Agents in the formats of other tools: ONNX for the network, VNN-LIB for what is claimed of it.

A folder of VNN-LIB properties lets any verifier check our certificates: each asks whether some observation in a ball
makes another action at least as good, and beside each stands our own verdict.
"""

import csv
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.checks import check_whole
from radial.core.data import BadInput, EnvSpec, VecEnv, Verdict
from radial.evaluation.certificates import evaluation_env
from radial.evaluation.play import Progress, View, play
from radial.evaluation.prover import ProofCheck, check_discrete, check_in_range, check_radius
from radial.runs.files import write_atomic

FORMATS = ("onnx", "vnnlib")
NETWORK, INDEX, INSTANCES = "network.onnx", "index.json", "instances.csv"
OPSET = 18
TIMEOUT = 60  # seconds a verifier is given, in the list of instances
INPUT, OUTPUT = "X", "Y"


def to_onnx(network: nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """Write a network (1, *obs) → (1, A) as an ONNX file, with weights inside; needs the extra `onnx`."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise BadInput(f"ONNX needs {' and '.join(missing)}: pip install 'radial-rl[onnx]'")
    path.parent.mkdir(parents=True, exist_ok=True)
    example = torch.zeros((1, *shape), device=next((p.device for p in network.parameters()), None))
    with _quiet():
        torch.onnx.export(
            network, (example,), path, input_names=[INPUT], output_names=[OUTPUT], opset_version=OPSET,
            dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on packages that nobody here needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def export_network(agent: Agent, folder: Path) -> Path:
    """Write the network that decides, after `prepare`, to `network.onnx` in a folder."""
    if agent.observation_shape is None:
        raise BadInput("agent must know the shape of its observations to be exported")
    path = folder / NETWORK
    to_onnx(agent.choice, agent.observation_shape, path)
    return path


# ------------------------------------------------------------------------------------------------------- properties


@dataclass(frozen=True)
class Property:
    """One visited state: the box an adversary may choose from, the agent's action there, and our verdict."""

    state: int  # its number among all visited states
    box: tuple[Tensor, Tensor]  # (n,) each
    action: int
    actions: int
    verdict: Verdict

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"state_{self.state:06d}.vnnlib"

    def text(self, about: str = "") -> str:
        """VNN-LIB: satisfiable exactly if some point of the box makes another output at least as large."""
        lower, upper = (end.double().tolist() for end in self.box)
        lines = [f"; {about}", f"; action {self.action}, {self.verdict} by us: certified claims unsat"]
        lines += [f"(declare-const {INPUT}_{i} Real)" for i in range(len(lower))]
        lines += [f"(declare-const {OUTPUT}_{i} Real)" for i in range(self.actions)]
        for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
            lines += [f"(assert (>= {INPUT}_{i} {decimal(low)}))", f"(assert (<= {INPUT}_{i} {decimal(high)}))"]
        others = [i for i in range(self.actions) if i != self.action]
        lines += ["(assert (or", *(f"  (and (>= {OUTPUT}_{i} {OUTPUT}_{self.action}))" for i in others), "))"]
        return "\n".join(lines) + "\n"


def decimal(value: float) -> str:
    """A number to its last bit, without an exponent: not every reader of VNN-LIB takes one."""
    text = f"{value:.17g}"
    return text if "e" not in text else f"{value:.150f}".rstrip("0").rstrip(".")


def export_properties(
    agent: Agent,
    env: EnvSpec | VecEnv | str,
    radius: float,
    folder: Path,
    *,
    bound: str = "best",
    episodes: int = 1,
    states: int = 20,
    seed: int = 0,
    name: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the network and, for states drawn from clean episodes, one VNN-LIB property each; return the index.

    radius  ε in network units, p = ∞; the box of a state is cut to the valid range
    states  how many, evenly at random among the visited ones, or all of them if there are fewer
    """
    check_radius(radius, torch.inf)
    check_discrete(agent)
    check_whole("states", states, 1)
    check_in_range(agent, radius)
    proofs = ProofCheck(bound)
    visited = _visited(agent, env, episodes, states, seed, progress)
    export_network(agent, folder)
    found = [_property(agent, number, agent.ball(x.unsqueeze(0), radius), proofs) for number, x in visited]
    title = name or agent.name
    facts = {
        "agent": title, "env": env if isinstance(env, str) else str(env if isinstance(env, EnvSpec) else env.spec),
        "radius": radius, "p": "inf", "valid_range": agent.valid_range, "bound": proofs.prover.name,
        "arithmetic": proofs.prover.arithmetic, "seed": seed, "episodes": episodes, "network": NETWORK,
        "certified": sum(each.verdict is Verdict.CERTIFIED for each in found), "states": len(found),
        "properties": [
            {"file": each.file, "state": each.state, "action": each.action, "verdict": str(each.verdict)}
            for each in found
        ],
    }  # fmt: skip
    about = " ".join(f"{title} in {facts['env']}, radius {radius:g}, {proofs.prover.name}".split())
    for each in found:
        write_atomic(folder / each.file, each.text(about))
    write_atomic(folder / INSTANCES, _instances(found))
    write_atomic(folder / INDEX, json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return facts


def _instances(found: list[Property]) -> str:
    """The list of the verification competition: network, property, seconds."""
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows((NETWORK, each.file, TIMEOUT) for each in found)
    return page.getvalue()


@torch.no_grad()
def _property(agent: Agent, number: int, ball: Ball, proofs: ProofCheck) -> Property:
    """The property of one ball. Certified needs that the agent does what its network's outputs say."""
    action, scores = int(agent.act(ball.center)[0]), agent.choice(ball.center)[0]
    proven = bool(proofs.verdicts(agent, ball)[0]) and int(scores.argmax()) == action
    box = ball.box()
    ends = (box.lower.flatten().cpu(), box.upper.flatten().cpu())
    return Property(number, ends, action, len(scores), Verdict.CERTIFIED if proven else Verdict.UNKNOWN)


def _visited(
    agent: Agent, env: EnvSpec | VecEnv | str, episodes: int, count: int, seed: int, progress: Progress | None
) -> list[tuple[int, Tensor]]:
    """A sample of the states of clean episodes, with their numbers; only the sample is kept in memory."""
    kept: dict[int, tuple[int, Tensor]] = {}  # slot → number, prepared observation
    rng, seen = torch.Generator().manual_seed(seed), 0

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        nonlocal seen
        x = agent.prepare(view.obs)
        for row in view.counts.nonzero().flatten().tolist():
            slot = seen if seen < count else int(torch.randint(seen + 1, (), generator=rng))
            if slot < count:
                kept[slot] = (seen, x[row].clone())
            seen += 1
        return agent.act(x)

    with evaluation_env(agent, env, episodes, seed, 20, None) as world:
        play(world, choose, episodes, progress=progress)
    return sorted(kept.values(), key=lambda each: each[0])
