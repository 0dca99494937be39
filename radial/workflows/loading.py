"""`load`: an agent by where it lies or by its name in the zoo, and where it is to act.

How files are read is in `agents.checkpoints` and `agents.importers`.
"""

from dataclasses import replace
from pathlib import Path

from radial.agents import saved as checkpoints
from radial.agents.convert import Loaded
from radial.agents.zoo import resolve
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import spec_for, spec_named


def load(agent: str | Path, env: EnvSpec | str | None = None) -> Loaded:
    """An agent from its folder, from the run that trained it, from the zoo, or from a file of others.

    Others are the papers (.model, .pt), Stable-Baselines3 (.zip) and CleanRL (.cleanrl_model): all read as data,
    nothing in them is executed. Its normaliser is frozen.

    agent  a path, or the name of an agent in the zoo
    env    where it is to act, as an id or a spec; default: what the card says, or an env's id in the name of the file
    """
    if not isinstance(agent, str | Path):
        raise BadInput(f"agent must be a path or the name of an agent in the zoo, got {agent!r}")
    if not (env is None or isinstance(env, EnvSpec | str)):
        raise BadInput(f"env must be an id such as Hopper-v4 or an EnvSpec, got {env!r}")
    path = resolve(str(agent))
    loaded = checkpoints.load_agent(path, spec_for(env) if isinstance(env, str) else env)
    if loaded.card.env is None:
        loaded.card = replace(loaded.card, env=spec_named(path))
    return loaded
