"""One episode, step by step, twice: clean and under attack, with its certificates, for the page's inspector.

Plain lists and strings, ready for JSON; how they are drawn is in `reports`.
"""

import base64
import math
import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from radial.core.agent import Agent, Attack
from radial.core.data import Bounds, Continuous, Discrete, EnvSpec
from radial.envs.film import Take
from radial.envs.make import make_env
from radial.envs.wrapper import as_executed, as_trained
from radial.evaluation import statistics
from radial.evaluation.play import Evaluation, spec_of, streams
from radial.evaluation.prover import ProofCheck, Prover
from radial.workflows.audit.pictures import exactly, pictures_of, world_of
from radial.workflows.audit.result import AuditResult, Bracket, Level, Played
from radial.workflows.audit.states import chunk_of
from radial.workflows.audit.subject import default_bound
from radial.workflows.audit.units import action_names, feature_names, units_of
from radial.workflows.audit.worst import NOTHING

STEPS, STEPS_OF_FRAMES = 1000, 250  # kept at most
MOST_FILMED = 100_000  # steps of an episode that is only filmed
SEEN = ("raw", "x", "shown", "action", "reward")  # of each step
NOTICED = 0.1  # of the range of actions: a continuous action that moves farther has changed


@torch.no_grad()
def play_once(
    agent: Agent,
    spec: EnvSpec,
    attack: Attack | None,
    radius: float,
    p: float,
    seed: int,
    seconds: float = math.inf,
    episode: int = 0,
    limit: int | None = None,
    kept: Sequence[str] = SEEN,
) -> dict[str, Any]:
    """One episode of an evaluation with this seed, as far as time allows: what is seen, done and rewarded.

    episode  its number, which decides the initial state        limit  steps at most; None: what a page can hold
    kept     of each step
    """
    end = time.monotonic() + seconds
    env_seed, _, attack_seed, _ = streams(seed)
    world = as_trained(agent, make_env(spec_of(spec), 1, env_seed, numbers=[episode]))
    cut = as_executed(agent, world.actions)
    rng = torch.Generator().manual_seed(attack_seed)
    most = limit or (STEPS_OF_FRAMES if len(world.observation_shape) == 3 else STEPS)
    seen: dict[str, list[Any]] = {name: [] for name in SEEN if name in (*kept, "reward")}
    try:
        obs, first = world.reset(), torch.ones(1, dtype=torch.bool)
        while len(seen["reward"]) < most:
            x = shown = agent.prepare(obs)
            if attack is not None:
                ball = agent.ball(x, radius, p)
                attack.reset(first)
                shown = ball.project(attack.perturb(agent, ball, rng).detach())
            action = cut(agent.act(shown))
            step = world.step(action)
            for name, value in (("raw", obs), ("x", x), ("shown", shown), ("action", action)):
                if name in seen:
                    seen[name].append(value[0].clone())
            seen["reward"].append(float(step.score[0]))
            obs, first = step.obs, torch.zeros(1, dtype=torch.bool)
            if bool(step.ended[0]) or time.monotonic() > end:
                break
        return {"ended": bool(step.ended[0]), "limits": world.actions, **seen}
    finally:
        world.close()


def first_take(
    agent: Agent, spec: EnvSpec, attack: Attack | None, radius: float, seed: int, p: float = math.inf
) -> Take:
    """The first episode of an evaluation with this seed, whole, to be played again before a camera."""
    played = play_once(agent, spec, attack, radius, p, seed, limit=MOST_FILMED, kept=("action",))
    return Take(spec_of(spec), streams(seed)[0], 0, exactly(played["action"]), played["reward"])


def record(
    agent: Agent,
    spec: EnvSpec,
    attack: Attack,
    name: str,
    radius: float,
    p: float,
    prover: Prover,
    seed: int,
    seconds: float = math.inf,
    episode: int = 0,
) -> dict[str, Any]:
    """Both episodes and everything the inspector needs; `seconds` may cut them short, as far as they are bounded.

    episode  its number in an evaluation with this seed
    """
    begun = time.monotonic()
    end = begun + 0.7 * seconds  # the rest is for pictures
    nominal = play_once(agent, spec, None, 0.0, p, seed, seconds / 5, episode)
    hit = play_once(agent, spec, attack, radius, p, seed, seconds / 3, episode)
    discrete = isinstance(agent.actions, Discrete)
    clean, bounds, verdicts = _proofs(agent, hit, radius, p, prover, end)
    if len(verdicts) < len(hit["reward"]):
        hit |= {name: hit[name][: len(verdicts)] for name in SEEN} | {"ended": False}
    x, shown = torch.stack(hit["x"]), torch.stack(hit["shown"])
    with torch.no_grad():
        network = agent.choice
        cut = as_executed(agent, hit["limits"])
        scores, moved = cut(network(x)), cut(network(shown))
    picture = x.ndim == 4
    units = units_of(agent, tuple(x.shape[1:]))
    count = agent.actions.n if isinstance(agent.actions, Discrete) else agent.actions.size
    found: dict[str, Any] = {
        "attack": name, "radius": radius, "discrete": discrete, "picture": picture, "noticed": NOTICED,
        "features": [] if picture else feature_names(spec, x[0].numel()), "actions": action_names(spec, count),
        "units": None if picture or units is None else _round(units.flatten()),
        "verdicts": verdicts, "first_changed": next((i for i, v in enumerate(verdicts) if v == "attacked"), None),
        "clean_action": clean.tolist() if discrete else [_round(row) for row in clean],
        "action": exactly(hit["action"]),
        "scores": [_round(row) for row in scores], "moved": [_round(row) for row in moved],
        "lower": [_round(row, -1) for row in bounds.lower], "upper": [_round(row, 1) for row in bounds.upper],
        "reward": hit["reward"], "ended": hit["ended"], **_views(hit, radius, picture),
        "nominal": {
            "action": exactly(nominal["action"]), "reward": nominal["reward"], "ended": nominal["ended"],
            **_scenes(nominal, picture),
        },
        "world": world_of(spec_of(spec), streams(seed)[0], episode),
    }  # fmt: skip
    return found | {"pictures": pictures_of(found, seconds - (time.monotonic() - begun))}


def _scenes(episode: dict[str, Any], picture: bool) -> dict[str, Any]:
    """Clean observations: frames, or numbers in the env's units."""
    if picture:
        return {"frames": [_png(obs) for obs in episode["x"]]}
    return {"raw": [_round(obs) for obs in episode["raw"]]}


def _views(hit: dict[str, Any], radius: float, picture: bool) -> dict[str, Any]:
    """Clean and perturbed observations, and the difference: as pictures, or as numbers in network units."""
    if not picture:
        delta = [_round(b.double() - a.double()) for a, b in zip(hit["x"], hit["shown"], strict=True)]
        return {**_scenes(hit, picture), "delta": delta}
    amplified = [
        _png(0.5 + (b - a) / (2 * max(radius, 1e-9))) for a, b in zip(hit["x"], hit["shown"], strict=True)
    ]  # fmt: skip
    return {
        **_scenes(hit, picture),
        "shown": [_png(obs) for obs in hit["shown"]],
        "amplified": amplified,
    }


def _proofs(
    agent: Agent, hit: dict[str, Any], radius: float, p: float, prover: Prover, end: float
) -> tuple[Tensor, Bounds, list[str]]:
    """Clean actions (T, …), bounds of the outputs (T, A) and a verdict per step, for as many steps as time allows.

    Certified, attacked (falsified) or unknown; a certificate that is refuted raises `SoundnessError`.
    """
    discrete, proofs = isinstance(agent.actions, Discrete), ProofCheck(prover)
    x, done = torch.stack(hit["x"]), torch.stack(hit["action"])
    wanted, parts, verdicts = [], [], []
    size = chunk_of(x, prover)
    for part, taken in zip(x.split(size), done.split(size), strict=True):
        ball = agent.ball(part, radius, p)
        with torch.no_grad():
            clean, bounds = agent.act(part), prover.method(agent.choice, ball)
        if discrete:
            proven, changed = proofs.verdicts(agent, ball), clean != taken
            proofs.refute(clean, taken, proven, ball)
        else:
            cut = as_executed(agent, hit["limits"])
            clean, bounds = cut(clean), Bounds(cut(bounds.lower), cut(bounds.upper))
            proven, changed = _moves(clean, taken, bounds, hit["limits"])
        rows = zip(proven.tolist(), changed.tolist(), strict=True)
        verdicts += ["certified" if sure else "attacked" if moved else "unknown" for sure, moved in rows]
        wanted.append(clean)
        parts.append(bounds)
        if time.monotonic() > end:
            break
    lower, upper = torch.cat([part.lower for part in parts]), torch.cat([part.upper for part in parts])
    return torch.cat(wanted), Bounds(lower, upper), verdicts


def _moves(clean: Tensor, taken: Tensor, bounds: Bounds, actions: Continuous) -> tuple[Tensor, Tensor]:
    """Whether continuous actions cannot move by a tenth of their range in any axis, and whether they did, (T,) each."""
    span = torch.ones(actions.size)
    if actions.low is not None and actions.high is not None:
        span = torch.tensor(actions.high) - torch.tensor(actions.low)
    limit = NOTICED * span
    proven = (torch.maximum(bounds.upper - clean, clean - bounds.lower) <= limit).all(1)
    return proven, ((taken - clean).abs() > limit).any(1)


def _round(values: Tensor, outward: int = 0) -> list[float | None]:
    """Five digits are enough to draw; numbers that are not finite are null.

    outward  −1: lower bounds, none is rounded up; 1: upper bounds, none is rounded down
    """
    return [_digits(v, outward) if math.isfinite(v) else None for v in values.flatten().double().tolist()]


def _digits(value: float, outward: int) -> float:
    near = float(f"{value:.5g}")
    if outward == 0 or (near - value) * outward >= 0:
        return near
    return float(f"{near + outward * 10.0 ** (math.floor(math.log10(abs(value))) - 4):.5g}")


def _png(x: Tensor) -> str:
    """A frame (C, H, W) of shares, as a data URL: colour if it has three channels, else its last one, in grey."""
    frame = (x if x.shape[0] == 3 else x[-1:]).clamp(0, 1) * 255
    return "data:image/png;base64," + base64.b64encode(_png_file(frame.round().byte())).decode()


def _png_file(frame: Tensor) -> bytes:
    """A frame (1, H, W) or (3, H, W) uint8 as a PNG: eight bits, grey or colour, no filter."""
    channels, height, width = frame.shape
    rows = frame.permute(1, 2, 0).reshape(height, width * channels)
    filtered = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows], dim=1)  # filter 0 in front of every row
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(filtered.numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# ----------------------------------------------------------------------------------------------------- one evaluation


def traced(
    agent: Agent, spec: EnvSpec, nominal: Evaluation, found: Evaluation, name: str, attack: Attack
) -> AuditResult:
    """One evaluation as a small audit, for `radial evaluate --trace`: clean, attacked, their first episode recorded."""
    prover = Prover.of(default_bound(agent))
    clean = Played("none", 0.0, "none", nominal.returns, nominal.lengths)
    gaps = [a - b for a, b in zip(nominal.returns, found.returns, strict=True)]
    assert isinstance(found.radius, float), "a page shows one radius"
    level = Level(found.radius)
    level.attacks[name] = Played(
        name, found.radius, found.attack, found.returns, found.lengths, statistics.mean(gaps), statistics.sem(gaps)
    )
    level.bracket = Bracket(None, found.mean, "none", found.episodes, NOTHING)
    shape: tuple[int, ...] = agent.observation_shape or ()
    facts = {
        "agent": found.agent, "about": "one evaluation", "env": found.env, "env_options": dict(found.env_options),
        "engine": dict(found.engine), "episodes": found.episodes, "seed": found.seed, "p": "inf", "bound": prover.name,
        "arithmetic": prover.arithmetic, "discrete": isinstance(agent.actions, Discrete),
        "observation_shape": list(shape), "units": "network units", "budget_minutes": None,
        "features": feature_names(spec, shape[0]) if len(shape) == 1 else [],
    }  # fmt: skip
    result = AuditResult(facts, clean, [level])
    result.trace = record(agent, spec, attack, name, found.radius, found.p, prover, found.seed)
    result.verdict = f"Clean return {clean.mean:.1f}; {name} at ε = {found.radius:g} reduces it to {found.mean:.1f}."
    result.wall_seconds = nominal.wall_seconds + found.wall_seconds
    return result
