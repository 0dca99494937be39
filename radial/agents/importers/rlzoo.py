"""Reads what RL Baselines3 Zoo leaves beside an agent: its settings (YAML) and the statistics of `VecNormalize`.

The settings name Python objects (`!!python/object/apply:collections.OrderedDict`). Nothing is constructed: the YAML is
composed to nodes, tags are ignored, and lists of pairs are read as the mappings they stand for.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from radial.agents.importers.vecnormalize import beside
from radial.core.data import BadInput
from radial.core.text import clean

LARGEST = 1 << 18  # bytes of a YAML file
MOST_NODES, DEEPEST, LONGEST = 20_000, 60, 500
NO_STATISTICS = "none"  # in place of a path: there are none
SETTINGS, ARGUMENTS = "config.yml", "args.yml"
STATISTICS = ("vecnormalize.pkl", "vec_normalize.pkl")
KNOWN_WRAPPERS = ("AtariWrapper", "AtariPreprocessing", "Monitor", "ActionNoiseWrapper", "DelayedRewardWrapper",
                  "ActionSmoothingWrapper", "PlotActionWrapper")  # fmt: skip
OF_TIME = ("TimeFeatureWrapper", "TimeAwareObservation")


@dataclass(frozen=True)
class ZooSettings:
    """How an agent was trained, as far as the files beside it say.

    source      the file that says so; None: there is none
    normalized  whether observations were normalised; None: not said
    stack       frames or vectors stacked by VecFrameStack
    wrappers    names of the env's wrappers
    env         its id
    unread      why a file of such a name could not be read: it may be about something else
    """

    source: Path | None = None
    normalized: bool | None = None
    stack: int = 1
    wrappers: tuple[str, ...] = ()
    env: str | None = None
    unread: tuple[str, ...] = ()

    def recipe(self) -> dict[str, str]:
        """What it adds to the recipe on an agent's card."""
        return {} if self.env is None else {"env_id": self.env}


def folders_of(path: Path) -> list[Path]:
    """Where files of an agent's zip may lie: beside it, and in a folder named by it or by its env."""
    stems = [path.stem, *(part for part in (path.stem.partition("-")[2], path.parent.name.rpartition("_")[0]) if part)]
    found = [path.parent, *(path.parent / stem for stem in stems)]
    found += (
        sorted(each for each in path.parent.glob("*-v[0-9]*") if each.is_dir()) if path.stem == "best_model" else []
    )
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def statistics_of(path: Path) -> Path | None:
    """The pickled `VecNormalize` of an agent's zip, beside it or in such a folder; None: there is none."""
    near = beside(path)
    if near is not None:
        return near
    return next((f / name for f in folders_of(path) for name in STATISTICS if (f / name).is_file()), None)


def trained(path: Path) -> ZooSettings:
    """The settings in `config.yml` and `args.yml`."""
    unread: list[str] = []
    settings, source = _first(path, SETTINGS, unread)
    arguments, _ = _first(path, ARGUMENTS, unread)
    env = arguments.get("env")
    env = env if isinstance(env, str) and len(env) < LONGEST and env.isprintable() else None
    if source is None:
        return ZooSettings(env=env, unread=tuple(unread))
    stack = settings.get("frame_stack", 1)
    return ZooSettings(
        source, _normalized(settings), stack if type(stack) is int and stack > 0 else 1,
        tuple(_wrappers(settings.get("env_wrapper"))), env, tuple(unread),
    )  # fmt: skip


def check_wrappers(path: Path, told: ZooSettings, pictures: bool) -> list[str]:
    """Refuse what changes observations and is not done here; returns notes about other wrappers."""
    last = [name.rpartition(".")[2] for name in told.wrappers]
    for name in last:
        if name in OF_TIME:
            raise BadInput(f"{path}: it was trained with {name}, which is not supported: rr.wrap takes the network")
    if told.stack > 1 and not pictures:
        why = f"trained with frame_stack {told.stack} on vectors, which is not supported"
        raise BadInput(f"{path}: {why}: rr.wrap takes the network")
    others = [name for name in last if name not in KNOWN_WRAPPERS]
    said = clean(", ".join(others), keep="")[:200]
    return [*told.unread, *([f"trained with {said}, which is not applied here"] if others else [])]


def _normalized(settings: dict[str, Any]) -> bool | None:
    """Whether observations were: `normalize` is true, false, or settings that say so, as a mapping or a text."""
    told, more = settings.get("normalize"), settings.get("normalize_kwargs")
    for each in (told, more):
        words = _literal(each) if isinstance(each, str) else each
        if isinstance(words, dict) and isinstance(words.get("norm_obs"), bool):
            return bool(words["norm_obs"])
    if told is None:
        return None  # the agent's own file may tell
    return told is not False and told != "False"


def _literal(text: str) -> Any:
    """A text such as "{'norm_obs': False}" or "dict(norm_obs=False)" as data; anything else as it is."""
    if len(text) > LONGEST:
        return text
    try:
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "dict" and not tree.args:
            return {each.arg: ast.literal_eval(each.value) for each in tree.keywords if each.arg is not None}
        return ast.literal_eval(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return text


def _wrappers(told: Any) -> list[str]:
    """Names of wrappers: a text, a list of texts, or of mappings from a name to its arguments."""
    if isinstance(told, str):
        return [told]
    if isinstance(told, dict):
        return [name for name in told if isinstance(name, str)]
    return [name for each in told for name in _wrappers(each)] if isinstance(told, list) else []


# --------------------------------------------------------------------------------------------------------- inert YAML


def _first(path: Path, name: str, unread: list[str]) -> tuple[dict[str, Any], Path | None]:
    """The first such file near the agent; one that cannot be read is added to `unread`."""
    for file in (folder / name for folder in folders_of(path)):
        if file.is_file():
            try:
                return read_settings(file), file
            except BadInput as error:
                unread.append(clean(str(error), keep="")[:300])
    return {}, None


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file as plain data: numbers, words, truth values, lists, mappings; no tag has an effect."""
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise BadInput(f"{path} has more than {LARGEST} bytes")
    try:
        root = yaml.compose(text.decode(), Loader=yaml.SafeLoader)
        found = _Inert().read(root)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        why = (str(error).splitlines() or [""])[0][:100]
        raise BadInput(f"{path} is not readable YAML: {why}") from None
    pairs = _pairs(found)
    if pairs is None:
        raise BadInput(f"{path} must hold a mapping")
    return pairs


@dataclass
class _Inert:
    """Nodes as plain data, in bounds: aliases count each time they are met."""

    seen: int = field(default=0)

    def read(self, node: Any, depth: int = 0) -> Any:
        self.seen += 1
        if self.seen > MOST_NODES or depth > DEEPEST:
            raise ValueError("it is too large or nested too deeply")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(each, depth + 1) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            return {str(self.read(key, depth + 1)): self.read(value, depth + 1) for key, value in node.value}
        return None


def _scalar(node: yaml.ScalarNode) -> Any:
    """A number, a truth value or a text, by YAML's own tag for it."""
    kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), str(node.value)
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind == "null":
        return None
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text


def _pairs(found: Any) -> dict[str, Any] | None:
    """A mapping, or the list of pairs that stands for one: OrderedDict is written as [[[name, value], …]]."""
    if isinstance(found, dict):
        return found
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        return _pairs(found[0])
    if isinstance(found, list) and all(isinstance(each, list) and len(each) == 2 for each in found):
        return {str(name): value for name, value in found}
    return None
