"""An episode played again shows the states of the first time, whatever the env; what cannot be shown says why."""

from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from radial.core.data import EnvSpec
from radial.envs import offscreen
from radial.envs.film import AtariScene, Film, Take, film
from radial.envs.make import make_env, spec_for
from radial.envs.offscreen import NotRendered, draws, working_way


def played(spec: EnvSpec, steps: int, episode: int = 0, seed: int = 3) -> tuple[Take, list[torch.Tensor]]:
    """Random actions in env `episode` of a vector env, until its episode ends; and the observations."""
    rng = torch.Generator().manual_seed(0)
    world, actions, rewards, seen = make_env(spec, 1, seed, numbers=[episode]), [], [], []
    try:
        obs = world.reset()
        for _ in range(steps):
            space: Any = world.actions
            if hasattr(space, "n"):
                action = torch.randint(space.n, (1,), generator=rng)
            else:
                action = torch.rand(1, space.size, generator=rng) * 2 - 1
            seen.append(obs[0].clone())
            step = world.step(action)
            actions.append(action[0].tolist())
            rewards.append(float(step.score[0]))
            obs = step.obs
            if bool(step.ended[0]):
                break
    finally:
        world.close()
    return Take(spec, seed, episode, actions, rewards), seen


def check(seen: Film, steps: int) -> None:
    assert seen.note is None
    assert seen.at[0] == 0
    assert seen.at[-1] == steps
    assert list(seen.at) == sorted(set(seen.at))
    assert all(shot.ndim == 3 and shot.dtype == np.uint8 and max(shot.shape) <= 64 for shot in seen.pictures)
    assert any(not np.array_equal(a, b) for a, b in zip(seen.pictures, seen.pictures[1:], strict=False))


@pytest.mark.skipif(find_spec("pygame") is None, reason="classic control is drawn by pygame")
def test_every_third_state_and_the_end() -> None:
    take, _ = played(spec_for("CartPole-v1"), 200)
    seen = film(take, every=3, side=64)
    steps = len(take.actions)
    check(seen, steps)
    assert seen.at == (*range(0, steps, 3), steps)
    assert seen.pictures[0].shape == (42, 64, 3)
    assert film(take, side=64).at == (*range(0, steps, 2), steps)  # 50 steps per second, at most 30 pictures


@pytest.mark.skipif(find_spec("pygame") is None, reason="classic control is drawn by pygame")
def test_any_episode_of_a_vector_env_can_be_shown() -> None:
    many, world = make_env(spec_for("CartPole-v1"), 3, 3), make_env(spec_for("CartPole-v1"), 1, 3, numbers=[2])
    assert torch.equal(many.reset()[2:], world.reset())
    many.close()
    world.close()
    take, _ = played(spec_for("CartPole-v1"), 20, episode=2)
    check(film(take, side=64), len(take.actions))


@pytest.mark.skipif(find_spec("Box2D") is None, reason="needs Box2D")
def test_box2d_repeats_itself_while_it_is_watched() -> None:
    take, _ = played(spec_for("LunarLander-v3"), 150)
    check(film(take, every=20, side=64), len(take.actions))


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs MuJoCo")
def test_mujoco_without_a_display() -> None:
    try:
        working_way(None, display=False)
    except NotRendered as error:
        assert "libosmesa6" in str(error)  # noqa: PT017  the test goes on where there is OpenGL
        pytest.skip("no OpenGL here")
    take, _ = played(EnvSpec("mujoco", "Hopper-v4", {"backend": "gymnasium"}), 30)
    check(film(take, every=10, side=64), len(take.actions))


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs MuJoCo")
def test_a_way_that_cannot_draw_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offscreen, "draws", lambda way: False)
    monkeypatch.setattr(offscreen, "working_way", working_way.__wrapped__)
    take, _ = played(EnvSpec("mujoco", "Hopper-v4", {"backend": "gymnasium"}), 2)
    with pytest.raises(NotRendered, match="apt-get install libosmesa6"):
        film(take)
    assert not draws("nonsense")
    monkeypatch.setattr(offscreen, "draws", lambda way: True)
    with pytest.raises(NotRendered, match="backend gymnasium"):
        film(Take(EnvSpec("mujoco", "Hopper-v4", {"backend": "envpool"}), 0, 0, [], []))


@pytest.mark.skipif(find_spec("ale_py") is None, reason="needs ale-py")
@pytest.mark.parametrize("preset", ["radial-dqn", "radial-a3c", "stack4"])
def test_an_emulators_screen(preset: str) -> None:
    """The whole screen, in the very game that was played: rewards agree, and the cut-out is the observation."""
    spec = EnvSpec("atari", "Pong", {"preset": preset})
    take, observed = played(spec, 80)
    scene = AtariScene(take, 320)
    scene.begin()
    for action, reward, obs in zip(take.actions, take.rewards, observed, strict=True):
        assert scene.look().shape == (210, 160, 3)
        if preset == "radial-a3c":  # the mean of 2 × 2 pixels and three colours
            assert float(obs.mean()) == pytest.approx(scene.look()[34:194].mean(), abs=1e-3)
        assert scene.act(action) == reward
    scene.close()
    assert -1.0 in take.rewards  # a point was played
    if preset == "radial-a3c":
        check(film(take, every=10, side=64), 80)


class Restless(gymnasium.Env[Any, Any]):
    """Rewards that no seed repeats."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    made = 0

    def __init__(self, render_mode: str | None = None, blind: bool = False) -> None:
        self.render_mode, self.blind = render_mode, blind
        Restless.made += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.zeros(2, np.float32), float(self.made if self.count == 3 else 1), self.count == 5, False, {}

    def render(self) -> Any:
        if self.blind:
            raise OSError("no screen here")
        return np.full((8, 8, 3), self.count, np.uint8)


def test_pictures_end_where_the_env_does_not_repeat_itself() -> None:
    gymnasium.register("Restless-v0", Restless)
    try:
        take, _ = played(EnvSpec("gymnasium", "Restless-v0"), 5)
        seen = film(take)
        assert seen.at == (0, 1, 2)
        assert seen.note == "the env did not repeat itself at step 2: its pictures end there"
        assert [int(shot[0, 0, 0]) for shot in seen.pictures] == [0, 1, 2]
        blind = Take(EnvSpec("gymnasium", "Restless-v0", {"blind": True}), 0, 0, take.actions, take.rewards)
        with pytest.raises(NotRendered, match="Restless-v0 cannot be rendered: no screen here"):
            film(blind)
        with pytest.raises(NotRendered, match="no time for pictures"):
            film(take, seconds=0.0)
    finally:
        gymnasium.registry.pop("Restless-v0")


def test_an_env_without_pictures_says_so() -> None:
    class Dark(Restless):
        def __init__(self) -> None:
            super().__init__()

    gymnasium.register("Dark-v0", Dark)
    try:
        with pytest.raises(NotRendered, match="Dark-v0 cannot be rendered"):
            film(Take(EnvSpec("gymnasium", "Dark-v0"), 0, 0, [0], [1.0]))
    finally:
        gymnasium.registry.pop("Dark-v0")
