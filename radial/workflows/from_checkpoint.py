"""An agent from a checkpoint of a run, such as `runs/x/checkpoints/best`: the config beside it says which kind it is.

What a checkpoint holds is decided by the loops in `training`; here their own set-up reads it back.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.convert import AnyAgent
from radial.core.agent import Card
from radial.core.data import BadInput
from radial.objectives.q_objectives import Plain, QDagger
from radial.runs.checkpoint import MANIFEST, ROOM, read_checkpoint
from radial.runs.config import check_stored, decode, encode
from radial.runs.files import Corrupt, read_json
from radial.runs.run import CONFIG
from radial.training import a3c, ddpg, dqn, ppo

CPU = torch.device("cpu")
RECORDED = ("seed", "init", "guide")  # what a run's config holds besides the settings


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is one checkpoint of a run."""
    return (path / MANIFEST).is_file()


def checkpoint_agent(path: Path) -> AnyAgent:
    """The agent of one checkpoint, with the env, the settings and the step on its card; its normaliser is frozen."""
    found = path.resolve()  # `best` is a link
    settings = found.parent.parent / CONFIG
    if found.parent.name != ROOM or not settings.is_file():
        raise BadInput(f"{path} is a checkpoint without its run: expected {CONFIG} two folders above it")
    table = read_json(settings)
    kind = next((each for each in _READERS if each.__name__ == table.get("type")), None)
    if kind is None:
        raise BadInput(f"{settings}: type must be one of {', '.join(each.__name__ for each in _READERS)}")
    config = decode(kind, {key: value for key, value in table.items() if key not in RECORDED}, str(settings))
    check_stored(config, str(settings))
    tensors, state = read_checkpoint(found)
    try:
        agent = _READERS[kind](config, tensors, state)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        said = (str(error).splitlines() or [""])[0][:160]
        raise Corrupt(f"{path} holds no agent that fits {settings}: {said}") from None
    steps, seed = state.get("step"), table.get("seed")
    agent.card = Card(
        env=config.env, recipe={"name": None, "config": encode(config)}, seed=seed if type(seed) is int else None,
        steps=steps if type(steps) is int else 0,
    )  # fmt: skip
    return agent.eval()


def _ppo(config: ppo.PPOConfig, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> AnyAgent:
    agent, *_ = ppo.set_up(replace(config, compile=False), 0, CPU)
    agent.load_state_dict({k.removeprefix("agent."): v for k, v in tensors.items() if k.startswith("agent.")})
    if not isinstance(agent, ImpalaAgent | ActorCritic):
        agent.normalizer.clip = float(state.get("clip", agent.normalizer.clip))
        agent.clips_actions = bool(state.get("clips_actions", False))
        agent.normalizer.freeze()
    return agent


def _dqn(config: dqn.DQNConfig, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> AnyAgent:
    small = replace(config, compile=False, replay_capacity=config.num_envs)  # nothing will be learned
    if isinstance(config.objective, QDagger):
        small = replace(small, objective=Plain())  # nor taught
    agent, learner, *_ = dqn.set_up(small, 0, CPU)
    learner.restore(tensors)
    return agent


def _ddpg(config: ddpg.DDPGConfig, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> AnyAgent:
    small = replace(config, compile=False, replay_capacity=config.num_envs)
    agent, learner, *_ = ddpg.set_up(small, 0, CPU)
    learner.restore(tensors)
    agent.normalizer.clip = float(state.get("clip", agent.normalizer.clip))
    agent.clips_actions = bool(state.get("clips_actions", False))
    agent.normalizer.freeze()
    return agent


def _a3c(config: a3c.A3CConfig, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> AnyAgent:
    training = a3c.set_up(config, 0, CPU)
    training.model.restore(tensors)
    return training.finished()


_READERS: dict[type, Callable[[Any, Mapping[str, Tensor], Mapping[str, Any]], AnyAgent]] = {
    ppo.PPOConfig: _ppo,
    dqn.DQNConfig: _dqn,
    a3c.A3CConfig: _a3c,
    ddpg.DDPGConfig: _ddpg,
}
