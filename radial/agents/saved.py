"""Saved agents: a folder with `weights.safetensors` and `card.json`, readable by anyone and safe to take from anyone.

The state of a training in progress (optimiser, random generators, counters) is not here.
"""

import difflib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as encode

from radial.agents.convert import AGENTS, AnyAgent, Loaded, own
from radial.agents.foreign import WrappedAgent
from radial.agents.hub import origin
from radial.agents.importers import read_file
from radial.agents.importers.sb3 import read_sb3
from radial.agents.networks import ACTIVATIONS
from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent, RawAgent
from radial.agents.weights import blank_agent, blank_tensors, fill, read_tensors, strict_json
from radial.agents.zoo import CARD as CARD
from radial.core.agent import Card
from radial.core.data import BadInput, Continuous, EnvSpec
from radial.core.text import clean

CARD_FORMAT = 1
WIDER_FORMAT = 2  # the format of agents that need one of the fields in MORE
WEIGHTS = "weights.safetensors"
CARD_SIZE = 1 << 20  # bytes
LARGEST_SIZE = 1 << 20  # of a size in a card: limits the network that is built before its weights are read
FIELDS = {"format", "kind", "observation_shape", "actions", "hidden", "clip", "env", "recipe", "seed", "steps",
          "commit", "source", "results", "sha256"}  # fmt: skip
NOTES = 20
MORE = ("activation", "clips_actions")


# ----------------------------------------------------------------------------------------------------------- saving


def save(
    agent: Loaded,
    folder: str | Path,
    results: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write an agent: its weights and its card, complete or not at all; an agent that was there is then gone.

    agent    an imported one is saved as the agent it converts to
    results  replaces the card's own
    dtype    of the weights, float32 or float16; the normaliser is always float64
    """
    agent = own(agent, "agent") if isinstance(agent, WrappedAgent) else agent
    if type(agent) not in AGENTS.values():
        raise BadInput(f"agent must be one of {', '.join(cls.__name__ for cls in AGENTS.values())}, got {type(agent)}")
    if dtype not in (torch.float32, torch.float16):
        raise BadInput(f"dtype must be torch.float32 or torch.float16, got {dtype}")
    tensors = {}
    for name, tensor in agent.state_dict().items():
        tensors[name] = tensor.detach().cpu().to(dtype if tensor.dtype == torch.float32 else tensor.dtype).contiguous()
        if not tensors[name].isfinite().all():
            raise BadInput(f"agent: {name} holds NaN or infinity as {tensors[name].dtype}")
    weights = encode(tensors)
    card = _describe(agent, agent.card if results is None else replace(agent.card, results=results))
    card["sha256"] = hashlib.sha256(weights).hexdigest()
    try:
        text = json.dumps(card, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise BadInput(f"card must be JSON: {error}") from None
    folder = Path(folder)
    _read_card(folder / CARD, json.loads(text))  # never write a card that `load_agent` would refuse
    check_target(folder)
    write_folder(folder, {WEIGHTS: weights, CARD: text.encode()})
    return folder


def check_target(folder: Path) -> None:
    """Refuse, before the long work whose agent it is for, a folder that `save` could not write; writes nothing."""
    for each in (folder, _previous(folder)):
        if each.is_symlink() or (each.exists() and not each.is_dir()):
            raise BadInput(f"{each} exists and is not a saved agent; it must be a folder and no link, or not be there")
    there = next(each for each in folder.absolute().parents if each.exists())
    for each in (there, folder):
        if each.exists() and not (each.is_dir() and os.access(each, os.W_OK | os.X_OK)):
            raise BadInput(f"{each} must be a folder that can be written to: an agent is saved at {folder}")
    if folder.exists() and not (folder / CARD).is_file() and any(folder.iterdir()):
        raise BadInput(f"{folder} exists and is not a saved agent; choose another folder")


def _describe(agent: AnyAgent, card: Card) -> dict[str, Any]:
    """The card as JSON."""
    kind = next(name for name, cls in AGENTS.items() if cls is type(agent))
    actions = agent.actions
    more: dict[str, str | bool] = {}
    if isinstance(agent, GaussianAgent | CategoricalAgent | DeterministicAgent):
        more = {"activation": agent.activation, "clips_actions": agent.clips_actions}
    # A deterministic agent is younger than the wider format, and its default activation is another.
    narrow = more == {"activation": "tanh", "clips_actions": False} and not isinstance(agent, DeterministicAgent)
    wider = bool(more) and not narrow
    return {
        "format": WIDER_FORMAT if wider else CARD_FORMAT,
        "kind": kind,
        "observation_shape": list(agent.observation_shape),
        "actions": {"continuous": actions.size} if isinstance(actions, Continuous) else {"discrete": actions.n},
        "hidden": list(agent.hidden),
        "clip": None if isinstance(agent, RawAgent) else agent.normalizer.clip,
        **(more if wider else {}),
        **asdict(card),
    }


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files so that a reader, or a power cut, finds the old one or the new one, never a mixture.

    Between the last two renames only `.<name>.previous` holds the old one; `load_agent` knows.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new, previous = folder.with_name(f".{folder.name}.tmp-{os.getpid()}"), _previous(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        for name, data in files.items():
            with (new / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(new)
        if folder.exists():
            shutil.rmtree(previous, ignore_errors=True)
            folder.rename(previous)
        new.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(previous, ignore_errors=True)


def _previous(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.previous"


def _sync(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------------------------- loading


def load_agent(
    path: str | Path, env: EnvSpec | None = None, vecnormalize: str | Path | None = None, *, kind: str | None = None
) -> Loaded:
    """An agent from its folder, the run that trained it, or a third-party checkpoint; its normaliser is frozen.

    Third parties are the papers (.model, .pt, .pth), Stable-Baselines3 (.zip), CleanRL (.cleanrl_model) and any tool
    that writes ONNX (.onnx), read as data.

    env  where it is to act, if the file does not say or another is wanted
    vecnormalize  the statistics of a Stable-Baselines3 agent, if they do not lie near its file; "none": it has none
    kind  what the outputs of an ONNX file are: q, categorical or gaussian
    """
    path = Path(path)
    if vecnormalize is not None and not (path.is_file() and path.suffix == ".zip"):
        raise BadInput(f"vecnormalize is for the .zip of Stable-Baselines3, got {path}")
    try:
        agent = _import(path, kind, vecnormalize) if path.is_file() else read_folder(_agent_folder(path))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    came = origin(path)
    if came is not None:
        agent.card = replace(agent.card, source=came if agent.card.source is None else f"{came} {agent.card.source}")
    if env is not None:
        agent.card = replace(agent.card, env=env)
    return agent


def _import(path: Path, kind: str | None, vecnormalize: str | Path | None) -> Loaded:
    if path.name in (CARD, WEIGHTS):
        return read_folder(path.parent)
    return read_file(path, kind) if vecnormalize is None else read_sb3(path, vecnormalize)


def _agent_folder(path: Path) -> Path:
    """The folder with the card: the path itself, the agent of a run, or the remains of an interrupted `save`."""
    for folder in (path, path / "agent"):
        for candidate in (folder, _previous(folder)):
            if (candidate / CARD).is_file() and (candidate / WEIGHTS).is_file():
                return candidate
    if (path / "checkpoints").is_dir():
        raise BadInput(
            f"{path} is a run that has not finished: continue it with --resume, or load {path}/checkpoints/best"
        )
    if not path.exists():
        raise BadInput(f"there is no agent at {path}")
    raise BadInput(f"{path} is not an agent: expected {CARD} and {WEIGHTS} in it")


def read_folder(folder: Path) -> AnyAgent:
    """The agent of one folder: card first, then the list of tensors, then their numbers."""
    source = folder / CARD
    with source.open("rb") as file:
        text = file.read(CARD_SIZE + 1)
    if len(text) > CARD_SIZE:
        raise BadInput(f"{source} has more than {CARD_SIZE} bytes")
    data = strict_json(source, text)
    _check_fields(source, data)
    kind, sizes = _kind(source, data), _sizes(source, "observation_shape", data["observation_shape"])
    unit = "continuous" if kind in ("gaussian", "deterministic") else "discrete"
    actions = data["actions"]
    if not isinstance(actions, dict) or list(actions) != [unit]:
        raise BadInput(f'{source}: actions must be {{"{unit}": number}} for a {kind} agent')
    count = _sizes(source, "actions", [actions[unit]])[0]
    hidden, more = _sizes(source, "hidden", data["hidden"]), _activation(source, kind, data)
    expected = blank_tensors(kind, sizes, count, hidden, **more)
    clip = _clip(source, kind, data["clip"])
    card = _read_card(source, data)
    weights = folder / WEIGHTS
    tensors = read_tensors(weights, expected, data["sha256"])
    agent = blank_agent(kind, sizes, count, hidden, **more)
    fill(agent, tensors, weights)
    if not isinstance(agent, RawAgent):
        agent.normalizer.clip, agent.clips_actions = clip, data.get("clips_actions", False)
    agent.card = card
    return agent


def _activation(source: Path, kind: str, data: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the wider format, for the kinds that have them."""
    if data["format"] == CARD_FORMAT:
        return {}
    if kind not in ("gaussian", "categorical", "deterministic"):
        raise BadInput(f"{source}: format must be {CARD_FORMAT} for a {kind} agent")
    if not isinstance(data["activation"], str) or data["activation"] not in ACTIVATIONS:
        raise BadInput(f"{source}: activation must be one of {', '.join(ACTIVATIONS)}")
    if not isinstance(data["clips_actions"], bool):
        raise BadInput(f"{source}: clips_actions must be true or false")
    return {"activation": data["activation"]}


def _clip(source: Path, kind: str, clip: Any) -> float:
    """Where the normaliser cuts; an agent without one has null in its card."""
    if issubclass(AGENTS[kind], RawAgent):
        if clip is not None:
            raise BadInput(f"{source}: clip must be null for an agent without a normaliser")
        return 0.0
    if type(clip) not in (int, float) or not 0 < clip < 1e9:
        raise BadInput(f"{source}: clip must be a number > 0")
    return float(clip)


def _check_fields(source: Path, data: Any) -> None:
    """All fields of this format and no others."""
    if not isinstance(data, dict):
        raise BadInput(f"{source} must be a JSON object")
    if type(data.get("format")) is not int or data["format"] not in (CARD_FORMAT, WIDER_FORMAT):
        raise BadInput(f"{source}: format must be {CARD_FORMAT} or {WIDER_FORMAT}; a newer radial may be needed")
    fields = FIELDS if data["format"] == CARD_FORMAT else FIELDS.union(MORE)
    if missing := sorted(fields - data.keys()):
        raise BadInput(f"{source}: {missing[0]} is missing")
    if unknown := sorted(data.keys() - fields):
        raise BadInput(f"{source}: unknown field {unknown[0][:60]!r}")


def _kind(source: Path, data: Mapping[str, Any]) -> str:
    kind = data["kind"]
    if isinstance(kind, str) and kind in AGENTS:
        return kind
    near = difflib.get_close_matches(kind[:60], AGENTS, 1) if isinstance(kind, str) else []
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInput(f"{source}: kind must be one of {', '.join(AGENTS)}{hint}")


def _sizes(source: Path, name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and len(value) <= 16 and all(type(v) is int and 0 < v <= LARGEST_SIZE for v in value):
        return tuple(value)
    raise BadInput(f"{source}: {name} must be made of at most 16 numbers from 1 to {LARGEST_SIZE}")


def _read_card(source: Path, data: Mapping[str, Any]) -> Card:
    """The recorded facts, each checked for its type."""
    for name in ("recipe", "results"):
        if not isinstance(data[name], dict):
            raise BadInput(f"{source}: {name} must be an object")
    _check_recipe(source, data["recipe"])
    for name in ("commit", "source"):
        if data[name] is not None:
            _text(source, name, data[name], longest=400)  # a file's name, and its hash
    seed, steps = data["seed"], data["steps"]
    if seed is not None and (type(seed) is not int or abs(seed) >= 1 << 64):
        raise BadInput(f"{source}: seed must be an integer or null")
    if type(steps) is not int or not 0 <= steps < 1 << 63:
        raise BadInput(f"{source}: steps must be an integer ≥ 0")
    return Card(
        _read_env(source, data["env"]), data["recipe"], seed, steps, data["commit"], data["source"], data["results"]
    )


def _check_recipe(source: Path, recipe: Mapping[str, Any]) -> None:
    """The parts of a recipe that are shown or used: its name, its notes, its config."""
    if recipe.get("name") is not None:
        _text(source, "recipe.name", recipe["name"])
    if not isinstance(recipe.get("config") or {}, dict):
        raise BadInput(f"{source}: recipe.config must be an object or null")
    notes = recipe.get("notes", [])
    if not isinstance(notes, list) or len(notes) > NOTES:
        raise BadInput(f"{source}: recipe.notes must be a list of at most {NOTES} lines of text")
    for note in notes:
        _text(source, "recipe.notes", note, longest=1_000)


def _read_env(source: Path, env: Any) -> EnvSpec | None:
    if env is None:
        return None
    if not isinstance(env, dict) or env.keys() != {"suite", "id", "options"} or not isinstance(env["options"], dict):
        raise BadInput(f"{source}: env must be null or have suite, id and options")
    for key, value in env["options"].items():
        _text(source, "env.options", key)
        plain = isinstance(value, bool | float | str) or (type(value) is int and abs(value) < 1 << 63)
        if not plain:
            raise BadInput(f"{source}: env.options must hold numbers, words and truth values")
        if isinstance(value, str):
            _text(source, f"env.options.{key}", value)
    return EnvSpec(_text(source, "env.suite", env["suite"]), _text(source, "env.id", env["id"]), env["options"])


def _text(source: Path, name: str, value: Any, longest: int = 300) -> str:
    """A short printable line: it will be shown on terminals."""
    if isinstance(value, str) and len(value) <= longest and clean(value, keep="") == value:
        return value
    raise BadInput(f"{source}: {name} must be a short line of text")
