"""Atari as the papers preprocess it: what a plain reference gives, and what it always gave (golden hashes).

New hashes for a new engine are added by `python -m radial.envs.atari_test`; the old ones stay.
"""

import hashlib
import importlib.util
import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from radial.core.data import BadInput, Discrete, EnvSpec, Step, VecEnv
from radial.envs.atari_frames import GAMES, PRESETS, ROMS, halve_grey, halve_mean
from radial.envs.make import env_seeds, make_env, spec_for

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="ale-py is not installed")
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="envpool is not installed")

GOLDEN = Path(__file__).with_name("golden_atari.json")
SHIFT = {"Pong": 10, "Freeway": 0, "BankHeist": 0, "RoadRunner": 20}
Pixels = NDArray[np.uint8]


def make(game: str, num_envs: int = 1, seed: int = 0, **options: bool | int | str) -> Any:
    return make_env(EnvSpec("atari", game, options), num_envs, seed, threads=1)


def emulators(env: Any) -> Any:
    return env._native._games.emulators


def some_actions(env: VecEnv, steps: int, seed: int = 7) -> Tensor:
    assert isinstance(env.actions, Discrete)
    return torch.randint(env.actions.n, (steps, env.num_envs), generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------- the papers' preprocessing, one frame at a time


def raw_game(game: str, seed: int, noops: int) -> Any:
    """An emulator after its no-ops."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(GAMES[game]))
    ale.reset_game()
    for _ in range(noops):
        ale.act(0)
    return ale


def warp_dqn(rgb: Pixels, shift: int) -> Pixels:
    """Grey in 15-bit fixed point, 4 black columns left and right, from row 21 + shift, 2×2 means, ½ up: OpenCV's."""
    r, g, b = (rgb[:, :, c].astype(np.int64) for c in range(3))
    grey = (9798 * r + 19235 * g + 3735 * b + 2**14) // 2**15
    wide = np.pad(grey, ((0, 0), (4, 4)))[21 + shift : 189 + shift]
    return ((wide.reshape(84, 2, 84, 2).sum(axis=(1, 3)) + 2) // 4).astype(np.uint8)


def warp_a3c(rgb: Pixels) -> NDArray[np.float64]:
    return rgb[34:194].mean(axis=2).reshape(80, 2, 80, 2).mean(axis=(1, 3))


def reference(ale: Any, pooled: int, actions: list[int]) -> Iterator[tuple[Pixels, float, bool, int]]:
    """Colours (210, 160, 3), score, game over, lives, after each action of four frames."""
    buttons = ale.getMinimalActionSet()
    last: deque[Pixels] = deque(maxlen=pooled)
    for action in actions:
        score = 0.0
        for _ in range(4):
            score += ale.act(buttons[action])
            last.append(ale.getScreenRGB())
            if ale.game_over():
                break
        yield np.maximum.reduce(list(last)), score, ale.game_over(), ale.lives()


@pytest.mark.parametrize(("game", "steps"), [("Pong", 320), ("Freeway", 60), ("BankHeist", 60), ("RoadRunner", 100)])
def test_the_dqn_frames_are_the_papers(game: str, steps: int) -> None:
    env = make(game, num_envs=2, seed=3)
    first, actions = env.reset()[1], some_actions(env, steps)
    fire = [] if game == "Freeway" else [1, 2]  # pressed by the reset
    ale = raw_game(game, env_seeds(3, 2)[1], emulators(env).noops[1])
    shown = warp_dqn(ale.getScreenRGB(), SHIFT[game])
    expected = reference(ale, 2, fire + actions[:, 1].tolist())
    for _ in fire:
        shown = warp_dqn(next(expected)[0], SHIFT[game])
    assert np.array_equal(first[0], shown)
    scores = 0.0
    for t, (rgb, score, over, _) in enumerate(expected):
        step = env.step(actions[t])
        assert (float(step.score[1]), bool(step.terminated[1])) == (score, over)
        assert float(step.reward[1]) == max(-1.0, min(1.0, score))
        if over:  # the native pool does not look at the frame that ends a game
            break
        assert np.array_equal(step.obs[1, 0], warp_dqn(rgb, SHIFT[game]))
        scores += abs(score)
    assert scores > 0 or game != "Pong"


@pytest.mark.parametrize("episodic_life", [False, True])
def test_the_a3c_frames_are_the_papers(episodic_life: bool) -> None:
    env = make("RoadRunner", preset="radial-a3c", episodic_life=episodic_life)
    first, actions = env.reset(), torch.zeros(120, dtype=torch.int64)  # who stands still is run over
    assert env.actions == Discrete(18)
    ale = raw_game("RoadRunner", env_seeds(0, 1)[0], emulators(env).emulators.noops[0])
    pressed = list(reference(ale, 3, [1, 2]))
    np.testing.assert_allclose(first[0, 0], warp_a3c(pressed[-1][0]), rtol=1e-6)
    lives, lost = pressed[-1][3], 0
    for action in actions:
        step = env.step(action[None])
        [(rgb, score, over, left)] = reference(ale, 3, [int(action)])
        assert float(step.score) == score
        if over:
            assert step.terminated.all()
            break
        if left < lives:  # a no-op, then FIRE and the action after it, in the same game
            lost += 1
            after = list(reference(ale, 3, [0, 1, 2]))[-1][0]
            if episodic_life:
                assert step.terminated.all()
                np.testing.assert_allclose(step.obs[0, 0], warp_a3c(rgb), rtol=1e-6)
                step = env.step(action[None])
                assert not step.real.any()
            np.testing.assert_allclose(step.obs[0, 0], warp_a3c(after), rtol=1e-6)
        else:
            np.testing.assert_allclose(step.obs[0, 0], warp_a3c(rgb), rtol=1e-6)
        assert not step.ended.any()
        lives = left
    assert lost == 2  # of three
    assert over


def test_halving_by_hand() -> None:
    frame = np.zeros((1, 168, 160, 3), dtype=np.uint8)
    frame[0, 0, 0] = frame[0, 0, 1] = 1  # grey 1, 1, 0, 0: the mean ½ goes up
    frame[0, 2, 2] = (255, 0, 0)  # red is 76.25 of 255: 76, and a fourth of it is 19
    half = halve_grey(frame)[0]
    assert (half[0, 2], half[1, 3], half.sum()) == (1, 19, 20)  # behind the two black columns
    assert halve_mean(frame[:, :160])[0, 1, 1] == np.float32(255 / 12)


def test_the_grey_of_the_brightest_colours_is_not_the_brightest_grey() -> None:
    """Why colours are asked of the pool: red and then grey is pinkish, and brighter than both."""
    red, road = np.array([167, 26, 26]), np.array([142, 142, 142])
    weights = np.array([0.299, 0.587, 0.114])
    assert round(np.maximum(red, road) @ weights) == 149
    assert max(round(red @ weights), round(road @ weights)) == 142


# ------------------------------------------------------------------------------------------------------ the episodes


def run(env: Any, actions: Tensor) -> list[Step]:
    env.reset()
    steps = [env.step(action) for action in actions]
    env.close()
    return steps


def test_a_time_limit_cuts_and_shows_the_frame_of_its_own_step() -> None:
    cut, whole = make("Freeway", max_episode_steps=5), make("Freeway")
    actions = torch.ones(7, 1, dtype=torch.int64)
    cut_steps, whole_steps = run(cut, actions), run(whole, actions)
    assert [bool(step.truncated) for step in cut_steps] == [False] * 4 + [True, False, False]
    assert [bool(step.real) for step in cut_steps] == [True] * 5 + [False, True]
    assert not any(bool(step.terminated) for step in cut_steps)
    for t in range(5):
        assert torch.equal(cut_steps[t].obs, whole_steps[t].obs)
    assert cut.steps == 6


@pytest.mark.parametrize("episodic_life", [False, True])
def test_a_game_that_is_over_begins_again(episodic_life: bool) -> None:
    actions = torch.tensor([[3] if t % 10 == 0 else [0] for t in range(105)])
    steps = run(make("RoadRunner", episodic_life=episodic_life), actions)
    ends = [t for t, step in enumerate(steps) if bool(step.terminated)]
    assert len(ends) == (3 if episodic_life else 1)  # who hardly moves is run over, three times
    assert [t for t, step in enumerate(steps) if not bool(step.real)] == [t + 1 for t in ends]


def test_one_to_thirty_no_ops() -> None:
    pools, noops = emulators(make("Freeway")), []
    for _ in range(100):
        pools.reset(np.arange(1))
        noops.append(int(pools.noops[0]))
    assert min(noops) >= 1
    assert max(noops) <= 30
    assert len(set(noops)) > 20


def test_transposed_is_x_first() -> None:
    actions = torch.zeros(3, 1, dtype=torch.int64)
    plain, swapped = run(make("Freeway"), actions), run(make("Freeway", transpose=True), actions)
    for a, b in zip(plain, swapped, strict=True):
        assert torch.equal(a.obs.transpose(2, 3), b.obs)
        assert b.obs.is_contiguous()


def test_threads_change_nothing() -> None:
    spec = EnvSpec("atari", "RoadRunner", {"max_episode_steps": 6})
    envs = [make_env(spec, 3, 1, threads=threads) for threads in (1, 2)]
    actions = some_actions(envs[0], 15)
    one, two = (run(env, actions) for env in envs)
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.score, b.score)


def test_four_frames_side_by_side() -> None:
    env = make("Pong", preset="stack4")
    first, step = env.reset(), env.step(torch.zeros(1, dtype=torch.int64))
    assert first.shape == (1, 4, 84, 84)
    assert (first.dtype, env.actions) == (torch.uint8, Discrete(6))
    assert torch.equal(step.obs[:, :3], first[:, 1:])
    assert first[0, :3].sum() == 0


@needs_envpool
def test_envpool_shows_the_same_frames() -> None:
    env = make("Freeway", backend="envpool")
    first, actions = env.reset(), some_actions(env, 40)
    ale = raw_game("Freeway", env_seeds(0, 1)[0], 0)
    noops = 0
    while not np.array_equal(warp_dqn(ale.getScreenRGB(), 0), first[0, 0]):
        noops += ale.act(0) + 1
        assert noops <= 30
    assert noops >= 1
    for action, (rgb, score, _, _) in zip(actions, reference(ale, 2, actions[:, 0].tolist()), strict=True):
        step = env.step(action)
        assert np.array_equal(step.obs[0, 0], warp_dqn(rgb, 0))
        assert float(step.score) == score
    assert env.engine["backend"] == "envpool"


@needs_envpool
@pytest.mark.parametrize("options", [{}, {"preset": "radial-a3c"}, {"preset": "stack4"}, {"max_episode_steps": 3}])
def test_envpool_keeps_the_contract(options: dict[str, Any]) -> None:
    env, twin = (make("RoadRunner", 2, backend="envpool", **options) for _ in range(2))
    actions = some_actions(env, 10)
    for a, b in zip(run(env, actions), run(twin, actions), strict=True):
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.real, b.real)


# ---------------------------------------------------------------------------------------------------- ids and options


def test_ids_and_actions() -> None:
    from ale_py import roms

    assert set(ROMS) == set(roms.get_all_rom_ids())
    assert spec_for("Pong") == spec_for("PongNoFrameskip-v4") == EnvSpec("atari", "Pong")
    for game, n in {"Pong": 4, "Freeway": 3, "BankHeist": 6, "RoadRunner": 6, "Breakout": 4}.items():
        env = make(game)
        assert env.actions == Discrete(n)
        assert env.observation_shape == (1, 84, 84)
        env.close()


def test_the_engine_says_what_was_run() -> None:
    import ale_py

    engine = make("Pong").engine
    assert engine["backend"] == "ale"
    assert engine["version"] == ale_py.__version__
    assert engine["simulator"] == f"ALE {ale_py.__version__}, its ROM pong, radial-dqn, frame skip 4, sticky 0"


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("Pung", {}, "atari has no environment 'Pung'; did you mean 'Pong'?"),
        ("Pong", {"preset": "dqn"}, "option preset must be radial-dqn or radial-a3c or stack4, got 'dqn'"),
        ("Pong", {"backend": "gymnasium"}, "option backend must be ale or envpool"),
        ("Pong", {"transpose": 1}, "option transpose must be true or false"),
        ("Pong", {"episodic_life": "no"}, "option episodic_life must be true or false"),
        ("Pong", {"max_episode_steps": 0}, "option max_episode_steps must be an integer ≥ 1"),
        ("Pong", {"sticky": 0.25}, "options of suite atari are preset, backend, max_episode_steps"),
    ],
)
def test_bad_input_is_one_line(id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message.replace("?", r"\?")) as caught:
        make(id, **options)
    assert "\n" not in str(caught.value)


def test_a_bad_action_never_reaches_the_emulator() -> None:
    env = make("Pong")
    env.reset()
    for action in (torch.tensor([4]), torch.tensor([-1]), torch.tensor([0.0]), torch.tensor([0, 0])):
        with pytest.raises(BadInput, match="action must"):
            env.step(action)
    env.step(torch.tensor([3]))


def test_a_missing_package_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[atari\]'"):
        make("Zaxxon")  # not seen before: what is known of a game is kept


@needs_envpool
def test_a_missing_envpool_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[envpool\]'"):
        make("Pong", backend="envpool")


# -------------------------------------------------------------------------------------------------------- golden data


def golden_run(game: str, preset: str) -> tuple[str, dict[str, str | float]]:
    """The engine, and hashes of what a game gave from seed 0 after 0, 10 and 40 steps of action t mod n."""
    env = make(game, preset=preset)
    assert isinstance(env.actions, Discrete)
    obs, seen, score = env.reset(), {}, 0.0
    for t in range(41):
        if t in (0, 10, 40):
            seen[f"frames after {t}"] = hashlib.sha256(obs.numpy().tobytes()).hexdigest()[:16]
        step = env.step(torch.tensor([t % env.actions.n]))
        obs, score = step.obs, score + float(step.score.sum())
    return "{backend} {version}".format(**env.engine), {**seen, "score": score}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("game", SHIFT)
def test_frames_are_what_they_were(game: str, preset: str) -> None:
    engine, numbers = golden_run(game, preset)
    golden = json.loads(GOLDEN.read_text())
    if engine not in golden:
        pytest.skip(f"no golden frames of {engine}, only of {'; '.join(golden)}")
    assert numbers == golden[engine][f"{game} {preset}"]


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for game in SHIFT:
        for preset in PRESETS:
            engine, numbers = golden_run(game, preset)
            golden.setdefault(engine, {})[f"{game} {preset}"] = numbers
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


def test_random_starts_differ_where_noops_leave_four_games_and_are_the_same_twice() -> None:
    def starts(**options: int) -> list[bytes]:
        env = make_env(EnvSpec("atari", "Pong", options=options), 8, 0)
        try:
            return [frame.numpy().tobytes() for frame in env.reset()]
        finally:
            env.close()

    plain, random = starts(), starts(random_start=30)
    assert len(set(plain)) <= 4
    assert len(set(random)) >= 6
    assert starts(random_start=30) == random
    with pytest.raises(BadInput, match="random_start"):
        make_env(EnvSpec("atari", "Pong", options={"random_start": -1}), 1, 0)
