"""ProcGen: the levels that are played, what a seed gives, how an episode ends, and what is said where Qt is missing.

New golden steps for a new engine are added by `python -m radial.envs.procgen_test`; the old ones stay.
"""

import ctypes
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from radial.core.data import BadInput, Discrete, EnvSpec
from radial.envs import procgen
from radial.envs.make import make_env
from radial.envs.procgen import ALL, GAMES, Levels, levels_of

GOLDEN = Path(__file__).with_name("golden_procgen.json")
MISSING = any(importlib.util.find_spec(package) is None for package in ("envpool", "PyQt5"))
installed = pytest.mark.skipif(MISSING, reason="pip install 'radial-rl[procgen]'")


def spec(game: str = "fruitbot", **options: int | str) -> EnvSpec:
    return EnvSpec("procgen", game, options)


# -------------------------------------------------------------------------------------------------------- the levels


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({}, Levels("easy", 0, 200)),
        ({"split": "train"}, Levels("easy", 0, 200)),
        ({"split": "test", "distribution_mode": "hard"}, Levels("hard", 0, ALL)),
        ({"num_levels": 50}, Levels("easy", 0, 50)),
        ({"num_levels": 10, "start_level": 200}, Levels("easy", 200, 10)),
    ],
)
def test_the_splits_and_levels_of_ones_own(options: dict[str, int | str], levels: Levels) -> None:
    assert levels_of(spec(**options)) == levels


def test_levels_in_words() -> None:
    assert str(levels_of(spec())) == "easy, levels 0 … 199"
    assert str(levels_of(spec(split="test"))) == "easy, all levels"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "valid"}, "option split must be train or test, got 'valid'"),
        ({"num_levels": 0}, r"option num_levels must be an integer ≥ 1 \(all levels there are: split test\), got 0"),
        ({"num_levels": -5}, "option num_levels must be an integer ≥ 1"),
        ({"num_levels": True}, "option num_levels must be an integer ≥ 1"),
        ({"num_levels": 9, "start_level": -1}, "option start_level must be an integer ≥ 0, got -1"),
        ({"start_level": 9}, "option start_level needs num_levels"),
        ({"num_levels": 2**31}, r"start_level \+ num_levels must be at most 2147483647, got 2147483648"),
        ({"split": "test", "num_levels": 9}, "give split or num_levels, not both"),
        ({"split": "test", "start_level": 9}, "give split or start_level, not both"),
        ({"distribution_mode": "esay"}, "option distribution_mode must be easy or hard or extreme or .*, got 'esay'"),
        ({"distribution_mode": "memory"}, "option distribution_mode of fruitbot must be easy or hard, got 'memory'"),
        ({"levels": 9}, "options of suite procgen are distribution_mode, split, num_levels, start_level, got 'levels'"),
    ],
)
def test_levels_that_cannot_be_meant(options: dict[str, int | str], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        make_env(spec(**options), 1, 0)
    assert "\n" not in str(caught.value)


def test_the_nearest_game_is_named() -> None:
    with pytest.raises(BadInput, match="'fruitbot-test'; use 'fruitbot' with the option split='test'"):
        make_env(EnvSpec("procgen", "fruitbot-test", {}), 1, 0)
    with pytest.raises(BadInput, match="procgen has no environment 'fruitbots'; did you mean 'fruitbot'"):
        make_env(spec("fruitbots"), 1, 0)


def seen(which: EnvSpec, steps: int = 400, num_envs: int = 16) -> list[int]:
    """The levels of the episodes that random play begins, in the order of their first steps; from the pool itself."""
    pool = make_env(which, num_envs, seed=0, threads=1)._native
    rng = np.random.default_rng(0)
    levels = pool.reset()[1]["level_seed"].tolist()
    begins = np.zeros(num_envs, dtype=np.bool_)
    for _ in range(steps):
        _, _, terminated, truncated, info = pool.step(rng.integers(0, 15, num_envs, dtype=np.int32))
        levels += info["level_seed"][begins].tolist()
        begins = terminated | truncated
    pool.close()
    return levels


@installed
def test_the_train_split_has_levels_0_to_199_and_the_test_split_all() -> None:
    train, test = seen(spec()), seen(spec(split="test"))
    assert 0 <= min(train) <= max(train) < 200
    assert len(train) > 60
    assert len(set(train)) > 40
    assert max(test) > 200_000_000
    assert sum(level < 200 for level in test) == 0  # of 2³¹ levels
    assert set(seen(spec(num_levels=3, start_level=1000), 50)) == {1000, 1001, 1002}


# ----------------------------------------------------------------------------------------------------- what one sees


@installed
def test_frames_rewards_and_engine() -> None:
    env = make_env(spec("coinrun", split="test", distribution_mode="hard"), 3, seed=0, threads=1)
    obs = env.reset()
    assert (obs.shape, obs.dtype) == ((3, 3, 64, 64), torch.uint8)
    assert env.actions == Discrete(15)
    assert env.engine["backend"] == "envpool"
    assert env.engine["simulator"].endswith("hard, all levels")
    assert env.engine["simulator"].startswith("procgen ")


@installed
def test_the_stream_does_not_depend_on_threads() -> None:
    pools = [make_env(spec(), 5, seed=0, threads=threads) for threads in (1, 2)]
    assert torch.equal(*(pool.reset() for pool in pools))
    rng = torch.Generator().manual_seed(0)
    for _ in range(120):
        action = torch.randint(15, (5,), generator=rng)
        one, two = (pool.step(action) for pool in pools)
        assert torch.equal(one.obs, two.obs)
        assert torch.equal(one.score, two.score)
    assert pools[0].steps == pools[1].steps < 5 * 120  # an episode has ended by then


@installed
def test_a_level_is_the_same_game_whatever_the_seed() -> None:
    """The seed draws levels and nothing else: in one level every env shows one first frame."""
    first = [make_env(spec(num_levels=1, start_level=7), 2, seed=seed, threads=1).reset() for seed in (0, 1)]
    assert torch.equal(first[0][0], first[0][1])
    assert torch.equal(first[0], first[1])


@installed
def test_standing_still_is_cut_after_a_thousand_steps() -> None:
    env = make_env(spec("coinrun", num_levels=1), 1, seed=0, threads=1)
    env.reset()
    still = torch.tensor([4])
    for _ in range(999):
        assert not env.step(still).ended.any()
    last, after = env.step(still), env.step(still)
    assert (last.terminated.item(), last.truncated.item()) == (False, True)
    assert not after.real.item()


def thirty_steps(game: str) -> tuple[str, dict[str, list[float]]]:
    """The engine, and what 30 steps with the actions 0, 7, 14, 6, … of two envs gave."""
    env = make_env(spec(game), 2, seed=0, threads=1)
    first, scores = env.reset(), []
    for t in range(30):
        step = env.step(torch.tensor([7 * t % 15, (7 * t + 3) % 15]))
        scores.append(step.score)
    env.close()
    engine = "{backend} {version}, {simulator}".format(**env.engine)
    brightness = [frame.float().mean((0, 2, 3)) for frame in (first, step.obs)]  # of each colour
    return engine, {
        "first": [round(x, 2) for x in brightness[0].tolist()],
        "last": [round(x, 2) for x in brightness[1].tolist()],
        "score": torch.stack(scores).sum(0).tolist(),
    }


@installed
@pytest.mark.parametrize("game", GAMES)
def test_thirty_steps_are_what_they_were(game: str) -> None:
    engine, numbers = thirty_steps(game)
    golden = json.loads(GOLDEN.read_text())
    if engine not in golden:
        pytest.skip(f"no golden steps of {engine}, only of {'; '.join(golden)}")
    for name, expected in golden[engine][game].items():
        # Another Qt may draw an edge differently; another level has another brightness altogether.
        assert numbers[name] == pytest.approx(expected, abs=0.5 if name != "score" else 1e-6), name


# ---------------------------------------------------------------------------------------------------- what is missing


class NoQt:
    """`ctypes.CDLL` on a system without Qt, where a library that the package's Qt needs is missing."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def __call__(self, name: str, mode: int) -> None:
        assert mode == ctypes.RTLD_GLOBAL
        lacks = self.missing if "/" in name else name
        raise OSError(f"{lacks}: cannot open shared object file: No such file or directory")


@pytest.fixture
def qt_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package PyQt5 with two libraries, in place of what is installed."""
    folder = tmp_path / "PyQt5" / "Qt5" / "lib"
    folder.mkdir(parents=True)
    for name in procgen.QT:
        (folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "PyQt5" / "__init__.py").touch()
    return folder


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("libGL.so.1", r"cannot load libQt5Core.so.5: libGL.so.1 is missing: apt-get install libgl1$"),
        ("libgthread-2.0.so.0", r"libgthread-2.0.so.0 is missing: apt-get install libglib2.0-0$"),
        ("libstrange.so.3", r"cannot load libQt5Core.so.5: libstrange.so.3: cannot open shared object"),
    ],
)
def test_a_missing_system_library_is_named_with_its_package(
    missing: str, message: str, qt_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", NoQt(missing))
    with pytest.raises(BadInput, match=message) as caught:
        procgen._load_qt()
    assert "\n" not in str(caught.value)


def test_without_qt_the_pip_line_is_named(qt_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", NoQt("libGL.so.1"))
    (qt_in / procgen.QT[1]).unlink()
    with pytest.raises(
        BadInput, match=r"needs Qt 5: pip install 'radial-rl\[procgen\]', or apt-get install libqt5gui5"
    ):
        procgen._load_qt()


def test_without_envpool_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"suite procgen needs EnvPool: pip install 'radial-rl\[procgen\]'"):
        make_env(spec(), 1, 0)


@installed
def test_it_works_also_where_envpool_was_imported_before_qt() -> None:
    """EnvPool remembers that it found no Qt; a process that made a MuJoCo pool first must not be stuck with that."""
    code = """if True:
        import envpool, torch
        from radial.core.data import EnvSpec
        from radial.envs.make import make_env
        env = make_env(EnvSpec("procgen", "maze"), 2, 0, threads=1)
        print(tuple(env.reset().shape), bool(env.step(torch.zeros(2, dtype=torch.int64)).real.all()))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "(2, 3, 64, 64) True\n"


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for game in GAMES:
        engine, numbers = thirty_steps(game)
        golden.setdefault(engine, {})[game] = numbers
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
