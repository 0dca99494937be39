"""Reads the zip files of Stable-Baselines3 and sb3-contrib. Nothing in them is unpickled.

Weights come from the torch archive inside, the architecture from their shapes (`sb3_policies`) and the plain fields of
`data` (`sb3_facts`); the pickled ones (spaces, schedules, buffers) are never looked at.
"""

import io
from pathlib import Path

from radial.agents.foreign import WrappedAgent
from radial.agents.importers.archive import file_source, open_zip, read_archive, untrusted
from radial.agents.importers.inert import refuse
from radial.agents.importers.parts import Parts
from radial.agents.importers.rlzoo import NO_STATISTICS, ZooSettings, check_wrappers, statistics_of, trained
from radial.agents.importers.sb3_facts import Facts, facts_of
from radial.agents.importers.sb3_policies import policy_of
from radial.agents.importers.sb3_settings import plain_settings
from radial.agents.importers.storages import TENSOR_BYTES
from radial.agents.importers.vecnormalize import read_vecnormalize
from radial.agents.preprocessing import RunningScale
from radial.agents.weights import strict_json
from radial.core.agent import Card
from radial.core.data import BadInput
from radial.core.text import clean

DATA = 64 << 20  # bytes of the JSON
WEIGHTS_SIZE = 2 * TENSOR_BYTES  # bytes of the weights
SILENT = ("SAC", "TQC", "TD3", "DDPG")  # files of these keep raw observations with and without VecNormalize


def read_sb3(path: Path, vecnormalize: str | Path | None = None) -> WrappedAgent:
    """The agent of a `.zip`, with the statistics of its `VecNormalize`.

    vecnormalize  the file of the statistics; "none": there are none; None: those near the file, see `rlzoo`
    """
    with untrusted(path), path.open("rb") as file:
        archive = open_zip(file)
        members = {member.filename: member for member in archive.infolist()}
        for name, limit in (("data", DATA), ("policy.pth", WEIGHTS_SIZE)):
            if name not in members:
                refuse(f"it is not one of Stable-Baselines3: it has no member '{name}'")
            if members[name].file_size > limit:
                refuse(f"its member '{name}' has more than {limit} bytes")
        text, weights = archive.read("data"), archive.read("policy.pth")
    facts = facts_of(path, strict_json(path, text))
    parts = Parts(path, read_archive(path, file=io.BytesIO(weights)))
    agent, algorithm = policy_of(path, parts, facts)
    parts.finish()
    told = trained(path)
    notes = _normalize(path, agent, facts, told, vecnormalize, silent=algorithm in SILENT)
    agent.card = Card(
        env=None,
        recipe={
            "name": f"{algorithm} of Stable-Baselines3", "notes": notes, "settings": plain_settings(facts.fields),
            **told.recipe(),
        },
        seed=facts.whole("seed"), steps=facts.whole("num_timesteps") or 0, source=file_source(path),
    )  # fmt: skip
    return agent


def _normalize(
    path: Path, agent: WrappedAgent, facts: Facts, told: ZooSettings, given: str | Path | None, silent: bool
) -> list[str]:
    """Put the statistics in front of the network; returns notes for the card. Missing ones are not guessed.

    silent  the file cannot tell whether there were any
    """
    notes = check_wrappers(path, told, facts.picture)
    if given is not None and str(given) == NO_STATISTICS:
        return notes
    stats = statistics_of(path) if given is None else Path(given)
    if stats is None:
        on_policy = "gae_lambda" in facts.fields  # the others keep these observations in any case
        seen = on_policy and facts.fields.get("_last_original_obs") is not None
        if told.normalized or (seen and told.normalized is None):
            raise BadInput(
                f"{path}: it was trained with VecNormalize, whose statistics are missing: pass --vecnormalize PATH "
                "(in Python vecnormalize=), or none if only rewards were normalised"
            )
        if silent and told.normalized is None and not facts.picture:
            notes.append("taken as trained without VecNormalize, which its file cannot tell: see --vecnormalize")
        return notes
    if not stats.is_file():
        raise BadInput(f"vecnormalize must be a file saved by VecNormalize, or none; there is no {stats}")
    scale: RunningScale | None = read_vecnormalize(stats)
    if scale is None:
        return notes
    if agent.observation_shape is None or scale.mean.shape != agent.observation_shape:
        raise BadInput(f"{stats} must fit the agent: its statistics have shape {tuple(scale.mean.shape)}")
    agent.door = scale
    return [*notes, f"observations are normalised by {clean(stats.name, '')}"]
