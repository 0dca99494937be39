"""`rr.load`: an agent by its path or its name in the zoo, with the environment it acts in.

How files are read is in `agents.saved` and `agents.importers`.
"""

from dataclasses import replace
from pathlib import Path

from radial.agents import saved
from radial.agents.convert import Loaded
from radial.agents.foreign import known_shape
from radial.agents.zoo import resolve
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import check_card_env, spec_for, spec_named, stacked


def load(agent: str | Path, env: EnvSpec | str | None = None, *, kind: str | None = None) -> Loaded:
    """An agent from its folder, from the run that trained it, from the zoo, or from a third-party checkpoint.

    Third-party checkpoints are those of the papers (.model, .pt, .pth), Stable-Baselines3 (.zip), CleanRL
    (.cleanrl_model) and ONNX files (.onnx): all read as data, nothing in them is executed. The agent's normaliser is
    frozen.

    agent  a path, the name of an agent in the zoo, or hf://user/repo[@revision] on the Hugging Face hub
    env    where it is to act, as an id or a spec; default: what the card says, or an env's id in the name of the file.
           Atari's preset, where none is named, is the one whose frames the agent takes
    kind   of an ONNX file, which does not say what its outputs are: q, categorical or gaussian
    """
    if not isinstance(agent, str | Path):
        raise BadInput(f"agent must be a path or the name of an agent in the zoo, got {agent!r}")
    if not (env is None or isinstance(env, EnvSpec | str)):
        raise BadInput(f"env must be an id such as Hopper-v4 or an EnvSpec, got {env!r}")
    path = resolve(str(agent))
    spec = spec_for(env) if isinstance(env, str) else env
    loaded = saved.load_agent(path, spec) if kind is None else saved.load_agent(path, spec, kind=kind)
    if loaded.card.env is None:
        loaded.card = replace(loaded.card, env=spec_named(path))
    elif env is None:
        check_card_env(loaded.card.env, path)
    if loaded.card.env is not None:
        loaded.card = replace(loaded.card, env=stacked(loaded.card.env, known_shape(loaded)))
    return loaded
