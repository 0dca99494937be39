"""One episode, step by step, twice: undisturbed and under attack, with what the bounds say. What the inspector shows.

Plain lists and strings, ready for JSON; how they are drawn is the page's business.
"""

import base64
import math
import time
from typing import Any

import torch
from torch import Tensor

from radial.core.agent import Attack
from radial.core.data import Bounds, Continuous, Discrete, EnvSpec
from radial.envs.make import make_env
from radial.envs.wrapper import as_executed, as_trained
from radial.evaluation.play import spec_of, streams
from radial.evaluation.prover import Audit, Prover, ball_of, ranking
from radial.workflows.audit.png import encode
from radial.workflows.audit.units import action_names, feature_names, units_of
from radial.workflows.audit.visited import chunk_of

VECTORS, FRAMES = 1000, 250  # the most steps that are kept
SEEN = ("raw", "x", "shown", "action", "reward")  # of each step
NOTICED = 0.1  # of the range of actions: what counts as moving a continuous action


@torch.no_grad()
def play_once(
    agent: Any, spec: EnvSpec, attack: Attack | None, radius: float, p: float, seed: int, seconds: float = math.inf
) -> dict[str, Any]:
    """Episode 0 of an evaluation with this seed, as far as time allows: what was there, shown, done and paid."""
    end = time.monotonic() + seconds
    env_seed, _, attack_seed, _ = streams(seed)
    world = as_trained(agent, make_env(spec_of(spec), 1, env_seed))
    cut = as_executed(agent, world.actions)
    rng = torch.Generator().manual_seed(attack_seed)
    limit = FRAMES if len(world.observation_shape) == 3 else VECTORS
    seen: dict[str, list[Any]] = {name: [] for name in SEEN}
    try:
        obs, first = world.reset(), torch.ones(1, dtype=torch.bool)
        while len(seen["reward"]) < limit:
            x = shown = agent.prepare(obs)
            if attack is not None:
                ball = ball_of(agent, x, radius, p)
                attack.reset(first)
                shown = ball.project(attack.perturb(agent, ball, rng).detach())
            action = cut(agent.act(shown))
            step = world.step(action)
            for name, value in (("raw", obs), ("x", x), ("shown", shown), ("action", action)):
                seen[name].append(value[0].clone())
            seen["reward"].append(float(step.score[0]))
            obs, first = step.obs, torch.zeros(1, dtype=torch.bool)
            if bool(step.ended[0]) or time.monotonic() > end:
                break
        return {"ended": bool(step.ended[0]), "limits": world.actions, **seen}
    finally:
        world.close()


def record(
    agent: Any,
    spec: EnvSpec,
    attack: Attack,
    name: str,
    radius: float,
    p: float,
    prover: Prover,
    seed: int,
    seconds: float = math.inf,
) -> dict[str, Any]:
    """Both episodes and everything the inspector needs; `seconds` may cut them short, as far as they are bounded."""
    end = time.monotonic() + seconds
    nominal = play_once(agent, spec, None, 0.0, p, seed, seconds / 4)
    hit = play_once(agent, spec, attack, radius, p, seed, seconds / 2)
    discrete = isinstance(agent.actions, Discrete)
    clean, bounds, verdicts = _proofs(agent, hit, radius, p, prover, end)
    if len(verdicts) < len(hit["reward"]):
        hit |= {name: hit[name][: len(verdicts)] for name in SEEN} | {"ended": False}
    x, shown = torch.stack(hit["x"]), torch.stack(hit["shown"])
    with torch.no_grad():
        network = ranking(agent) if discrete else agent.network
        cut = as_executed(agent, hit["limits"])
        scores, moved = cut(network(x)), cut(network(shown))
    picture = x.ndim == 4
    units = units_of(agent, tuple(x.shape[1:]))
    count = agent.actions.n if isinstance(agent.actions, Discrete) else agent.actions.size
    return {
        "attack": name, "radius": radius, "discrete": discrete, "picture": picture, "noticed": NOTICED,
        "features": [] if picture else feature_names(spec, x[0].numel()), "actions": action_names(spec, count),
        "units": None if picture or units is None else _round(units.flatten()),
        "verdicts": verdicts, "first_changed": next((i for i, v in enumerate(verdicts) if v == "attacked"), None),
        "clean_action": _actions(clean), "action": _actions(torch.stack(hit["action"])),
        "scores": [_round(row) for row in scores], "moved": [_round(row) for row in moved],
        "lower": [_round(row) for row in bounds.lower], "upper": [_round(row) for row in bounds.upper],
        "reward": hit["reward"], "ended": hit["ended"], **_views(hit, radius, picture),
        "nominal": {
            "action": _actions(torch.stack(nominal["action"])), "reward": nominal["reward"], "ended": nominal["ended"],
            **_scenes(nominal, picture),
        },
    }  # fmt: skip


def _scenes(episode: dict[str, Any], picture: bool) -> dict[str, Any]:
    """What was there: frames, or numbers in the env's units."""
    if picture:
        return {"frames": [_png(obs) for obs in episode["x"]]}
    return {"raw": [_round(obs) for obs in episode["raw"]]}


def _views(hit: dict[str, Any], radius: float, picture: bool) -> dict[str, Any]:
    """What was there, what was shown, and the difference: as pictures, or as numbers in network units."""
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
    agent: Any, hit: dict[str, Any], radius: float, p: float, prover: Prover, end: float
) -> tuple[Tensor, Bounds, list[str]]:
    """What the agent wants (T, …), bounds of its outputs (T, A) and a verdict per step, for as many as time allows.

    Certified, attacked or unknown; a proof that is contradicted raises `SoundnessError`.
    """
    choice = isinstance(agent.actions, Discrete)
    network, audit = ranking(agent) if choice else agent.network, Audit(prover.method)
    x, done = torch.stack(hit["x"]), torch.stack(hit["action"])
    wanted, parts, verdicts = [], [], []
    size = chunk_of(x, prover)
    for part, taken in zip(x.split(size), done.split(size), strict=True):
        ball = ball_of(agent, part, radius, p)
        with torch.no_grad():
            clean, bounds = agent.act(part), prover.method(network, ball)
        if choice:
            proven, changed = audit.verdicts(agent, ball), clean != taken
            audit.refute(clean, taken, proven, ball)
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
    both = (torch.cat([getattr(part, side) for part in parts]) for side in ("lower", "upper"))
    return torch.cat(wanted), Bounds(*both), verdicts


def _moves(clean: Tensor, taken: Tensor, bounds: Bounds, actions: Continuous) -> tuple[Tensor, Tensor]:
    """Whether continuous actions cannot move by a tenth of their range in any axis, and whether they did, (T,) each."""
    span = torch.ones(actions.size)
    if actions.low is not None and actions.high is not None:
        span = torch.tensor(actions.high) - torch.tensor(actions.low)
    limit = NOTICED * span
    proven = (torch.maximum(bounds.upper - clean, clean - bounds.lower) <= limit).all(1)
    return proven, ((taken - clean).abs() > limit).any(1)


def _actions(action: Tensor) -> list[Any]:
    return action.tolist() if action.ndim == 1 else [_round(row) for row in action]


def _round(values: Tensor) -> list[float | None]:
    """Five digits are enough to draw; what is not finite is absent."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.flatten().double().tolist()]


def _png(x: Tensor) -> str:
    """A frame (C, H, W) of shares, as a data URL: colour if it has three channels, else its last one, in grey."""
    frame = (x if x.shape[0] == 3 else x[-1:]).clamp(0, 1) * 255
    return "data:image/png;base64," + base64.b64encode(encode(frame.round().byte())).decode()
