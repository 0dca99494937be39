"""Kept adversaries: which fit is taken again, and which is made anew."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from radial.agents.policies import CategoricalAgent
from radial.attacks.learned.adversaries import SARL
from radial.attacks.learned.halving_test import CARTPOLE, TINY, balancing
from radial.workflows.protocol import adversary_for

SETTINGS = SARL(**{name: value for name, value in TINY.items() if name != "radius"}, steps=256)


@dataclass(frozen=True)
class Subject:
    """What is asked of an agent on a leaderboard."""

    agent: CategoricalAgent
    name: str = "zoo/balancing"
    sha256: str = "0123456789"


def fit(fits: Path, settings: SARL = SETTINGS, env: Any = CARTPOLE) -> Any:
    return adversary_for(Subject(balancing()), env, "sarl", settings, 0.5, fits)


def test_a_fit_with_the_same_settings_is_taken_again(tmp_path: Path) -> None:
    first = fit(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "balancing-01234567-sarl-0.5"
    (folder / "trials").rename(tmp_path / "moved")  # nothing is trained again
    assert fit(tmp_path).record == json.loads(json.dumps(first.record))


def test_a_fit_with_other_settings_is_not_taken(tmp_path: Path) -> None:
    fit(tmp_path)
    longer = replace(SETTINGS, steps=512)
    with pytest.warns(UserWarning, match=r"sarl-0.5 holds a fit with other settings \(steps\): the one asked"):
        found = fit(tmp_path, longer)
    assert found.steps == 512
    assert len(list(tmp_path.iterdir())) == 2
    assert fit(tmp_path, longer).steps == 512  # both are kept, and nothing is warned of twice
    assert fit(tmp_path).steps == 256
    with pytest.warns(UserWarning, match=r"other settings \(env\)"):
        fit(tmp_path, env=replace(CARTPOLE, options={"max_episode_steps": 20}))


def test_the_simulator_of_a_finished_fit_is_no_matter(tmp_path: Path) -> None:
    fit(tmp_path)
    (folder,) = tmp_path.iterdir()
    search = json.loads((folder / "search.json").read_text())
    search["settings"]["env"]["options"]["backend"] = "other"
    (folder / "search.json").write_text(json.dumps(search))
    fit(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_attack_that_does_not_say_its_settings_is_not_taken(tmp_path: Path) -> None:
    fit(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "search.json").unlink()
    with pytest.warns(UserWarning, match="does not say with which settings"):
        fit(tmp_path)
