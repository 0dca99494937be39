"""What is saved comes back exactly: the same futures, whatever came in between; and fingerprints tell states apart."""

import importlib.util
import time

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torch import Tensor

from radial.core.data import BadInput, EnvSpec
from radial.envs.cloning import Cloneable, make_cloneable
from radial.envs.make import env_seeds, make_env
from radial.envs.watchdog import Watchdog

HAVE_ALE = importlib.util.find_spec("ale_py") is not None
needs_ale = pytest.mark.skipif(not HAVE_ALE, reason="ale-py is not installed")


def atari(game: str, **options: bool | int | str) -> object:
    name = "-".join([game, *map(str, options.values())])
    return pytest.param(EnvSpec("atari", game, options), marks=needs_ale, id=name)


CASES = [
    *[pytest.param(EnvSpec("classic", id), id=id) for id in ("CartPole-v1", "Acrobot-v1")],
    pytest.param(EnvSpec("gymnasium", "MountainCar-v0", {"max_episode_steps": 20}), id="MountainCar-v0"),
    *[atari(game) for game in ("Pong", "Freeway", "BankHeist", "RoadRunner")],
    atari("RoadRunner", preset="radial-a3c"),
    atari("BankHeist", episodic_life=True),
]
contract = pytest.mark.parametrize("spec", CASES)

Future = list[tuple[Tensor, float, bool, bool]]


def play(env: Cloneable, actions: list[int]) -> Future:
    """Until the episode ends."""
    future: Future = []
    for action in actions:
        future.append(env.step(action))
        if future[-1][2] or future[-1][3]:
            break
    return future


def same(first: Future, second: Future) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in pairs)


def some_actions(env: Cloneable, steps: int, seed: int) -> list[int]:
    return torch.randint(env.actions.n, (steps,), generator=torch.Generator().manual_seed(seed)).tolist()


@contract
def test_a_restored_state_has_the_same_future(spec: EnvSpec) -> None:
    env = make_cloneable(spec, seed=3)
    first = env.reset()
    assert first.shape == env.observation_shape
    play(env, some_actions(env, 5, 0))
    state, print_there = env.save(), env.fingerprint()
    once = play(env, some_actions(env, 12, 1))
    play(env, [0]) if not (once[-1][2] or once[-1][3]) else env.reset()  # somewhere else
    env.reset()
    env.restore(state)
    assert env.fingerprint() == print_there
    again = play(env, some_actions(env, 12, 1))
    assert same(once, again)
    env.restore(state)
    env.reset()
    other = make_cloneable(spec, seed=4)
    other.reset()
    other.restore(state)  # into another env of the same spec
    assert other.fingerprint() == print_there
    assert same(once, play(other, some_actions(env, 12, 1)))
    assert torch.equal(env.reset(), env_after(spec, state))


def env_after(spec: EnvSpec, state: object) -> Tensor:
    """The second first observation after a saved state: random numbers are saved as well."""
    env = make_cloneable(spec, seed=5)
    env.reset()
    env.restore(state)
    env.reset()
    return env.reset()


@contract
def test_a_seed_is_a_stream_and_shapes_are_the_vector_envs(spec: EnvSpec) -> None:
    env, twin, vector = make_cloneable(spec, seed=1), make_cloneable(spec, seed=1), make_env(spec, 1, seed=0)
    assert torch.equal(env.reset(), twin.reset())
    assert (env.spec, env.actions, env.observation_shape) == (spec, vector.actions, vector.observation_shape)
    assert env.step(0)[0].dtype == vector.reset().dtype
    assert env.horizon is not None
    vector.close()
    env.close()


def test_cartpole_fingerprints_are_of_state_and_time() -> None:
    env = make_cloneable(EnvSpec("classic", "CartPole-v1"), seed=0)
    env.reset()
    start = env.save()
    prints = {env.fingerprint()}
    for path in ([0, 1], [1, 0], [0, 0], [1, 1], [0], [1]):
        env.restore(start)
        play(env, path)
        prints.add(env.fingerprint())
    assert len(prints) == 7
    env.restore(start)
    assert env.fingerprint() in prints


def test_the_state_of_a_time_limit_is_saved() -> None:
    env = make_cloneable(EnvSpec("classic", "Acrobot-v1", {"max_episode_steps": 3}), seed=0)
    assert env.horizon == 3
    env.reset()
    env.step(1)
    state = env.save()
    assert [step[3] for step in play(env, [1, 1, 1])] == [False, True]
    env.restore(state)
    assert [step[3] for step in play(env, [1, 1, 1])] == [False, True]
    with pytest.raises(RuntimeError, match="ended"):
        env.step(1)


@needs_ale
def test_atari_fingerprints_find_duplicates() -> None:
    """Freeway's hen stands at the bottom: stepping back changes nothing that matters, walking on does."""
    env = make_cloneable(EnvSpec("atari", "Freeway"), seed=0)
    env.reset()
    start = env.save()
    prints = []
    for path in ([0, 0], [2, 0], [0, 2, 0], [1, 0], [0, 0]):
        env.restore(start)
        play(env, path)
        prints.append(env.fingerprint())
    assert prints[0] == prints[1] == prints[4]
    assert prints[2] != prints[0], "a step later"
    assert prints[3] not in prints[:3]


@needs_ale
@pytest.mark.parametrize("preset", ["radial-dqn", "radial-a3c"])
def test_the_vector_env_goes_the_same_way(preset: str) -> None:
    """From the same seed and after the same no-ops, which the two draw differently."""
    spec = EnvSpec("atari", "RoadRunner", {"preset": preset})
    vector = make_env(spec, 1, seed=2, threads=1)
    first = vector.reset()
    pools = vector._native._games.emulators  # type: ignore[attr-defined]
    noops = int(getattr(pools, "emulators", pools).noops[0])
    env = make_cloneable(spec, env_seeds(2, 1)[0])

    class Drawn:
        def integers(self, low: int, high: int) -> int:
            assert low <= noops < high
            return noops

    env._single._rng = Drawn()  # type: ignore[attr-defined]
    assert torch.equal(env.reset(), first[0])
    for action in [3, 1, 4] + [0] * 25:
        obs, reward, terminated, truncated = env.step(action)
        step = vector.step(torch.tensor([action]))
        assert torch.equal(obs, step.obs[0])
        assert (reward, terminated, truncated) == (float(step.score), bool(step.terminated), bool(step.truncated))
    vector.close()


def test_bad_input_names_what_to_use() -> None:
    mujoco, pendulum = EnvSpec("mujoco", "Hopper-v4"), EnvSpec("classic", "Pendulum-v1")
    for spec, message in [
        (mujoco, "cannot be cloned; use suite atari or classic control"),
        (EnvSpec("gymnasium", "FrozenLake-v1"), "use suite atari or classic control"),
        (pendulum, "actions are continuous; use CartPole-v1 or Acrobot-v1"),
        (EnvSpec("gymnasium", "MountainCarContinuous-v0"), "actions are continuous"),
        (EnvSpec("classic", "CartPole-v2"), "did you mean 'CartPole-v1'"),
        (EnvSpec("atari", "Pong", {"preset": "stack4"}), "preset radial-dqn or radial-a3c"),
        (EnvSpec("atari", "Pong", {"backend": "envpool"}), "use backend ale"),
    ]:
        with pytest.raises(BadInput, match=message) as caught:
            make_cloneable(spec, seed=0)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="seed must be an integer"):
        make_cloneable(EnvSpec("classic", "CartPole-v1"), seed=-1)
    env = make_cloneable(EnvSpec("classic", "CartPole-v1"), seed=0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(0)
    env.reset()
    for action in (2, -1, 0.0, True):
        with pytest.raises(BadInput, match="action must be an integer in 0 … 1"):
            env.step(action)  # type: ignore[arg-type]


def test_steps_and_making_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow step, then a slow constructor; a process that hangs would be ended."""
    ended: list[str] = []
    monkeypatch.setattr(Watchdog, "_end", lambda dog: ended.append(dog.what))
    spec = EnvSpec("classic", "CartPole-v1")
    env = make_cloneable(spec, 0, timeout=0.1)
    env.reset()
    assert not ended
    monkeypatch.setattr(CartPoleEnv, "step", lambda *_: time.sleep(0.4))
    with pytest.raises(TypeError):
        env.step(0)
    env.close()
    assert set(ended) == {"a step or reset of classic/CartPole-v1"}
    ended.clear()
    monkeypatch.setattr("radial.envs.cloning.CloneableClassic", lambda *_: time.sleep(0.4))
    make_cloneable(spec, 0, timeout=0.02)
    assert set(ended) == {"making classic/CartPole-v1"}
