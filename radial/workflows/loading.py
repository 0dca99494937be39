"""`rr.load`: an agent by its path or its name in the zoo, with the environment it acts in.

How files are read is in `agents.saved` and `agents.importers`.
"""

from dataclasses import replace
from pathlib import Path

from radial.agents import saved
from radial.agents.convert import Loaded
from radial.agents.zoo import resolve
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import check_card_env, spec_for, spec_named
from radial.workflows.from_checkpoint import checkpoint_agent, is_checkpoint


def load(agent: str | Path, env: EnvSpec | str | None = None) -> Loaded:
    """An agent from its folder, from the run that trained it or one of its checkpoints, from the zoo, or a third party.

    Third-party checkpoints are those of the papers (.model, .pt), Stable-Baselines3 (.zip) and CleanRL
    (.cleanrl_model): all read as data, nothing in them is executed. The agent's normaliser is frozen.

    agent  a path, or the name of an agent in the zoo
    env    where it is to act, as an id or a spec; default: what the card says, or an env's id in the name of the file
    """
    if not isinstance(agent, str | Path):
        raise BadInput(f"agent must be a path or the name of an agent in the zoo, got {agent!r}")
    if not (env is None or isinstance(env, EnvSpec | str)):
        raise BadInput(f"env must be an id such as Hopper-v4 or an EnvSpec, got {env!r}")
    path = resolve(str(agent))
    loaded = open_agent(path, spec_for(env) if isinstance(env, str) else env)
    if loaded.card.env is None:
        loaded.card = replace(loaded.card, env=spec_named(path))
    elif env is None:
        check_card_env(loaded.card.env, path)
    return loaded


def open_agent(path: Path, env: EnvSpec | None = None) -> Loaded:
    """The agent at a path, which may be a checkpoint of a run."""
    if not is_checkpoint(path):
        return saved.load_agent(path, env)
    agent = checkpoint_agent(path)
    agent.card = agent.card if env is None else replace(agent.card, env=env)
    return agent
