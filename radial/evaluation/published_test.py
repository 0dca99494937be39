"""The papers' own agents, read from their files and scored by our protocol: the numbers must be theirs.

Hopper was measured once on EnvPool's Hopper-v4, 50 episodes (mean ± standard error); a seed of ours may differ by
chance only. FruitBot's numbers are the paper's, of 1000 episodes.
"""

import importlib.util
import math
import os
from pathlib import Path

import pytest

from radial.agents.saved import load_agent
from radial.attacks import ATTACKS
from radial.core.data import EnvSpec
from radial.evaluation.certificates import Search, acr, gwc
from radial.evaluation.play import evaluate

MODELS = Path(os.environ.get("RADIAL_MODELS") or Path(__file__).resolve().parents[3] / "shared" / "models")
HOPPER = EnvSpec("mujoco", "Hopper-v4", {"backend": "envpool"})

pytestmark = [
    pytest.mark.skipif(not MODELS.is_dir(), reason=f"the published agents are not at {MODELS}"),
    pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="pip install 'radial-rl[envpool]'"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attack", "radius", "mean", "sem"),
    [("none", 0.0, 3497.0, 52.0), ("mad", 0.075, 3042.0, 107.0)],  # the README beside the file
)
def test_radials_own_hopper(attack: str, radius: float, mean: float, sem: float) -> None:
    found = evaluate(load_agent(MODELS / "radial" / "hopper.model"), HOPPER, ATTACKS[attack](), radius, episodes=50)
    assert abs(found.mean - mean) < 3 * math.hypot(sem, found.sem), str(found)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "nominal", "worst"),
    [  # five episodes on Gymnasium gave 1881, 3425, 3497 nominal
        ("ppo-hopper-median", (1700.0, 2400.0), 1800.0),
        ("sappo-convex-hopper-median", (3200.0, 3700.0), 3000.0),
        ("sappo-sgld-hopper-median", (3300.0, 3750.0), 3300.0),
    ],
)
def test_sa_ppos_median_hoppers(file: str, nominal: tuple[float, float], worst: float) -> None:
    agent = load_agent(MODELS / "sa_ppo" / f"{file}.model")
    clean = evaluate(agent, HOPPER, episodes=50)
    assert nominal[0] < clean.mean < nominal[1], str(clean)
    under = evaluate(agent, HOPPER, ATTACKS["mad"](), 0.075, episodes=50)
    assert under.mean < worst, str(under)


def test_the_plain_agent_falls_under_a_strong_attack() -> None:
    agent = load_agent(MODELS / "sa_ppo" / "ppo-hopper-median.model")
    clean = evaluate(agent, HOPPER, episodes=5)
    under = evaluate(agent, HOPPER, ATTACKS["mad"](), 0.15, episodes=5)
    assert clean.mean > 1400
    assert under.mean < 0.75 * clean.mean


# ------------------------------------------------------------------------------------------------------------ ProcGen

qt = pytest.mark.skipif(importlib.util.find_spec("PyQt5") is None, reason="pip install 'radial-rl[procgen]'")
FRUITBOT = EnvSpec("procgen", "fruitbot", {"split": "train"})
TABLE = {  # mean and standard error at 0, 1, 3 and 5 of 255, levels 0 … 199, the likeliest action
    "FruitBot_ppo": {0: (30.20, 0.23), 1: (25.72, 0.33), 3: (15.56, 0.38), 5: (8.79, 0.35)},
    "FruitBot_radial_ppo": {0: (28.03, 0.24), 1: (27.93, 0.25), 3: (27.84, 0.26), 5: (27.50, 0.26)},
}


@qt
@pytest.mark.nightly
@pytest.mark.parametrize("pixels", [0, 1, 3, 5])
@pytest.mark.parametrize("file", TABLE)
def test_radials_own_fruitbots(file: str, pixels: int) -> None:
    agent, (mean, sem) = load_agent(MODELS / "procgen" / f"{file}.pt"), TABLE[file][pixels]
    attack = ATTACKS["pgd-procgen" if pixels else "none"]()
    episodes = 16 if pixels else 200  # an attacked one takes thirty times as long; `radial reproduce procgen` plays all
    found = evaluate(agent, FRUITBOT, attack, pixels / 255, episodes=episodes)
    assert abs(found.mean - mean) < 3 * math.hypot(sem, found.sem), str(found)


@qt
def test_radials_own_fruitbots_in_short() -> None:
    """Eight episodes: 30 and 28, with a spread of 7 each."""
    for file in TABLE:
        found = evaluate(load_agent(MODELS / "procgen" / f"{file}.pt"), FRUITBOT, episodes=8)
        assert abs(found.mean - TABLE[file][0][0]) < 4 * 7 / math.sqrt(8), str(found)


@qt
def test_what_is_proven_of_radials_own_fruitbots() -> None:
    """Nobody published this: interval bounds say nothing about the plain agent and nearly all about the robust one."""
    quick = Search(restarts=1, steps=2)
    rates, worst = [], []
    for file in TABLE:
        agent = load_agent(MODELS / "procgen" / f"{file}.pt")
        rates.append(acr(agent, FRUITBOT, 1 / 255, episodes=4, horizon=10, search=quick).mean)
        worst.append(gwc(agent, FRUITBOT, 1 / 255, episodes=4, horizon=5))
    assert rates[0] < 0.05
    assert rates[1] > 0.7
    assert worst[0].open_steps > 4 * worst[1].open_steps
