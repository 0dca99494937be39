"""Agents in the formats of other tools: ONNX for the network, VNN-LIB for what is claimed of it.

A folder of VNN-LIB properties lets any verifier check our certificates: each asks whether some observation in a ball
makes another action at least as good, and beside each stands our own verdict.
"""

import csv
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.foreign import WrappedAgent, WrappedQ
from radial.agents.importers.onnx_graph import NOTES
from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent
from radial.agents.preprocessing import RunningScale
from radial.agents.q_agent import QAgent
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.checks import check_whole
from radial.core.data import BadInput, Continuous, EnvSpec, VecEnv, Verdict
from radial.evaluation.certificates import evaluation_env
from radial.evaluation.play import Progress, View, play
from radial.evaluation.prover import ProofCheck, check_discrete, check_in_range, check_radius
from radial.runs.files import write_atomic

FORMATS = ("onnx", "vnnlib")
NETWORK, INDEX, INSTANCES = "network.onnx", "index.json", "instances.csv"
OPSET = 18
TIMEOUT = 60  # seconds a verifier is given, in the list of instances
INPUT, OUTPUT = "X", "Y"
CLOSE = 1e-5  # how much outputs of another runtime may differ, relative to the largest


def to_onnx(network: nn.Module, shape: tuple[int, ...], path: Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write a network (1, *obs) → (1, A) as an ONNX file, with weights inside; needs the extra `onnx`.

    notes  metadata of ours
    """
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
    if notes is not None:
        import onnx

        model = onnx.load(path, load_external_data=False)
        onnx.helper.set_model_props(model, {NOTES: json.dumps(notes)})
        onnx.save(model, path)


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
    shape = _shape_of(agent)
    path = folder / NETWORK
    to_onnx(agent.choice, shape, path, notes_on(agent))
    check_outputs(agent.choice, shape, path)
    return path


def _shape_of(agent: Agent) -> tuple[int, ...]:
    """The shape of one prepared observation: the agent's own, or where it takes frames of any size, its env's."""
    if agent.observation_shape is not None:
        return agent.observation_shape
    if agent.card.env is None:
        raise BadInput("agent must know the shape of its observations to be exported: pass env")
    with evaluation_env(agent, agent.card.env, 1, 0, 1, None) as world:
        return tuple(agent.prepare(world.reset()).shape[1:])


def notes_on(agent: Agent) -> dict[str, Any]:
    """What the file needs besides the network so that `rr.load` gives the same agent: kind, and what `prepare` does."""
    discrete = "q" if isinstance(agent, QAgent | WrappedQ) else "categorical"
    kind = "gaussian" if isinstance(agent.actions, Continuous) else discrete
    return {"kind": kind, "prepare": _prepare_of(agent), "clips_actions": agent.clips_actions}


def _prepare_of(agent: Agent) -> object:
    """Division by 255, normalisation, nothing, or unknown: then the file is read with `rr.wrap` only."""
    units = agent.units()
    if units is None:
        return "unknown"
    if isinstance(agent, GaussianAgent | CategoricalAgent | DeterministicAgent) and agent.normalized:
        mean, clip = agent.normalizer.moments.mean, agent.normalizer.clip
        return {"mean": mean.tolist(), "std": units.double().tolist(), "clip": float(clip)}
    door = agent.door if isinstance(agent, WrappedAgent) else None
    if isinstance(door, RunningScale):
        return {"mean": door.mean.tolist(), "std": door.std.tolist(), "clip": float(door.clip)}
    if units.numel() == 1 and float(units) in (1.0, 255.0):
        return "frames" if float(units) == 255.0 else "as-is"
    return "unknown"


def check_outputs(network: nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """Compare the outputs of a file with those of its network, where onnxruntime is installed."""
    if find_spec("onnxruntime") is None:
        return
    import onnxruntime

    x = torch.rand((1, *shape), generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])
    with torch.no_grad():
        expected = network(x.to(next((p.device for p in network.parameters()), x.device))).cpu()
    gap = float((found - expected).abs().max())
    if gap > CLOSE * max(1.0, float(expected.abs().max())):
        raise FloatingPointError(f"{path}: onnxruntime computes outputs that differ by {gap:.1e}")


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
