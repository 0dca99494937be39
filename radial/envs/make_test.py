"""The contract of every suite, and the door: ids, options, seeds, missing extras."""

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor

from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Step, VecEnv
from radial.envs import make
from radial.envs.make import SUITES, check_card_env, env_seeds, example_for, make_env, spec_for, spec_named, successor

N = 3


def mujoco(backend: str, *ids: str) -> list[object]:
    """Cases that are skipped where the backend's package is missing."""
    package = {"envpool": "envpool", "gymnasium": "mujoco"}[backend]
    missing = importlib.util.find_spec(package) is None
    skip = pytest.mark.skipif(missing, reason=f"{package} is not installed")
    return [pytest.param(EnvSpec("mujoco", id, {"backend": backend}), marks=skip, id=f"{backend}-{id}") for id in ids]


def atari(backend: str, *presets: str) -> list[object]:
    """The same for Atari; of Freeway no two frames are equal."""
    missing = any(importlib.util.find_spec(package) is None for package in {"ale_py", backend.replace("ale", "ale_py")})
    skip = pytest.mark.skipif(missing, reason=f"a package of {backend} is not installed")
    specs = [EnvSpec("atari", "Freeway", {"backend": backend, "preset": preset}) for preset in presets]
    return [pytest.param(spec, marks=skip, id=f"{backend}-{spec.options['preset']}") for spec in specs]


def procgen(*specs: EnvSpec) -> list[object]:
    """The same for ProcGen, which needs Qt as well."""
    missing = importlib.util.find_spec("envpool") is None or importlib.util.find_spec("PyQt5") is None
    skip = pytest.mark.skipif(missing, reason="pip install 'radial-rl[procgen]'")
    return [pytest.param(spec, marks=skip, id=str(spec)) for spec in specs]


CASES = [
    *mujoco("envpool", *make.MUJOCO),
    *mujoco("gymnasium", "Hopper-v4", "Walker2d-v5"),
    *[pytest.param(EnvSpec("classic", id), id=id) for id in make.CLASSIC],
    *atari("ale", "radial-dqn", "radial-a3c", "stack4"),
    *atari("envpool", "radial-dqn"),
    *procgen(EnvSpec("procgen", "fruitbot"), EnvSpec("procgen", "leaper", {"split": "test"})),
    pytest.param(EnvSpec("gymnasium", "MountainCar-v0", {"max_episode_steps": 20}), id="gymnasium"),
]
DTYPES = {
    ("mujoco", None): torch.float64,
    ("atari", "radial-dqn"): torch.uint8,
    ("atari", "stack4"): torch.uint8,
    ("procgen", None): torch.uint8,
}
contract = pytest.mark.parametrize("spec", CASES)


def some_action(env: VecEnv, rng: torch.Generator) -> Tensor:
    """Random, and for vectors far beyond the box: policies are Gaussian."""
    if isinstance(env.actions, Discrete):
        return torch.randint(env.actions.n, (env.num_envs,), generator=rng)
    return 2 * torch.randn(env.num_envs, env.actions.size, generator=rng)


def run(spec: EnvSpec, seed: int, steps: int = 40, num_envs: int = N) -> list[Step]:
    env = make_env(spec, num_envs, seed)
    rng = torch.Generator().manual_seed(7)
    env.reset()
    steps_taken = [env.step(some_action(env, rng)) for _ in range(steps)]
    env.close()
    return steps_taken


def same(first: list[Step], second: list[Step]) -> bool:
    names = [field.name for field in fields(Step)]
    return all(torch.equal(getattr(a, n), getattr(b, n)) for a, b in zip(first, second, strict=True) for n in names)


def test_every_suite_is_under_contract() -> None:
    assert {case.values[0].suite for case in CASES} == set(SUITES)


@contract
def test_shapes_types_and_engine(spec: EnvSpec) -> None:
    env = make_env(spec, N, seed=0)
    first = env.reset()
    step = env.step(some_action(env, torch.Generator().manual_seed(0)))
    assert (env.spec, env.num_envs) == (spec, N)
    assert isinstance(env.actions, Discrete | Continuous)
    for obs in (first, step.obs):
        assert obs.shape == (N, *env.observation_shape)
        assert obs.dtype == DTYPES.get((spec.suite, spec.options.get("preset")), torch.float32)  # the env's own
    for value, dtype in [
        (step.reward, torch.float32),
        (step.score, torch.float32),
        (step.terminated, torch.bool),
        (step.truncated, torch.bool),
        (step.real, torch.bool),
    ]:
        assert (value.shape, value.dtype) == ((N,), dtype)
    assert step.real.all(), "the first row after a reset is a transition"
    assert set(env.engine) == {"backend", "version", "simulator"}
    assert ("mujoco 3" in env.engine["simulator"]) == (spec.suite == "mujoco")
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.step(some_action(env, torch.Generator()))


@contract
def test_a_seed_is_a_stream(spec: EnvSpec) -> None:
    once, again, other = run(spec, seed=5), run(spec, seed=5), run(spec, seed=6)
    assert same(once, again)
    assert not same(once, other)
    assert not torch.equal(once[0].obs[0], once[0].obs[1]), "envs of one pool differ"


@contract
def test_env_i_does_not_depend_on_how_many_there_are(spec: EnvSpec) -> None:
    three, two = make_env(spec, 3, seed=5).reset(), make_env(spec, 2, seed=5).reset()
    assert torch.equal(three[:2], two)


@contract
def test_the_row_after_an_end_is_marked(spec: EnvSpec) -> None:
    steps = 200 if spec.suite == "procgen" else 30  # it has no option for shorter episodes
    if spec.suite not in ("gymnasium", "procgen"):
        spec = EnvSpec(spec.suite, spec.id, {**spec.options, "max_episode_steps": 4})
    env = make_env(spec, N, seed=0)
    rng = torch.Generator().manual_seed(0)
    env.reset()
    ended, real = torch.zeros(N, dtype=torch.bool), 0
    for _ in range(steps):
        step = env.step(some_action(env, rng))
        assert torch.equal(step.real, ~ended)
        assert (step.reward[~step.real] == 0).all()
        assert not step.ended[~step.real].any()
        assert torch.equal(step.reward, step.score)
        ended = step.ended
        real += int(step.real.sum())
    assert real == env.steps < steps * N


def bad_actions(actions: Discrete | Continuous) -> list[tuple[object, str]]:
    if isinstance(actions, Discrete):
        good = torch.zeros(N, dtype=torch.int64)
        return [
            (good.numpy(), "must be a tensor"),
            (good[:-1], "must have shape"),
            (good[:, None], "must have shape"),
            (good.float(), "integer type"),
            (good + actions.n, "must be in 0 …"),
            (good - 1, "must be in 0 …"),
        ]
    good = torch.zeros(N, actions.size)
    return [
        (good.tolist(), "must be a tensor"),
        (good[:-1], "must have shape"),
        (good[:, :0], "must have shape"),
        (good.long(), "floating type"),
        (good.index_fill(0, torch.tensor([1]), torch.nan), "finite, got NaN or inf for env 1"),
        (good - torch.inf, "finite, got NaN or inf for env 0"),
    ]


@contract
def test_a_bad_action_never_reaches_the_simulator(spec: EnvSpec) -> None:
    env, twin = make_env(spec, N, seed=1), make_env(spec, N, seed=1)
    env.reset()
    twin.reset()
    for action, message in bad_actions(env.actions):
        with pytest.raises(BadInput, match=message):
            env.step(action)  # type: ignore[arg-type]
    action = some_action(env, torch.Generator().manual_seed(0))
    assert same([env.step(action)], [twin.step(action)])


@contract
def test_a_later_step_does_not_change_an_earlier_one(spec: EnvSpec) -> None:
    env = make_env(spec, N, seed=0)
    rng = torch.Generator().manual_seed(0)
    first = env.reset()
    kept = first.clone()
    step = env.step(some_action(env, rng))
    copies = {field.name: getattr(step, field.name).clone() for field in fields(Step)}
    for _ in range(5):
        env.step(some_action(env, rng))
    assert torch.equal(first, kept)
    assert all(torch.equal(getattr(step, name), value) for name, value in copies.items())
    step.reward.zero_()
    assert torch.equal(step.score, copies["score"]), "what is learned from may be scaled; what is reported stays"


def test_any_integer_and_any_float_type_will_do() -> None:
    cart, pendulum = make_env(spec_for("CartPole-v1"), 2, 0), make_env(spec_for("Pendulum-v1"), 2, 0)
    cart.reset()
    pendulum.reset()
    cart.step(torch.ones(2, dtype=torch.uint8))
    pendulum.step(torch.zeros(2, 1, dtype=torch.bfloat16))
    pendulum.step(torch.zeros(2, 1, dtype=torch.float64, requires_grad=True))
    with pytest.raises(BadInput, match="finite"):
        pendulum.step(torch.full((2, 1), 1e300, dtype=torch.float64))  # inf in the simulator's float32


# ----------------------------------------------------------------------------------------------------- the door


def test_a_bare_id_finds_its_suite() -> None:
    assert spec_for("Hopper-v4") == EnvSpec("mujoco", "Hopper-v4")
    assert spec_for("CartPole-v1") == EnvSpec("classic", "CartPole-v1")
    assert spec_for("MountainCar-v0") == EnvSpec("gymnasium", "MountainCar-v0")
    assert spec_for("fruitbot") == EnvSpec("procgen", "fruitbot")
    assert spec_for("coinrun-test") == EnvSpec("procgen", "coinrun", {"split": "test"})
    with pytest.raises(BadInput, match="unknown environment 'hoper-v4'; did you mean 'Hopper-v4'"):
        spec_for("hoper-v4")
    with pytest.raises(BadInput, match="unknown environment 'ALE/Pong-v5'; did you mean 'Pong'"):
        spec_for("ALE/Pong-v5")


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        (EnvSpec("mujico", "Hopper-v4"), {}, "suite must be one of mujoco, classic, atari, procgen, gymnasium, got"),
        (EnvSpec("mujoco", "Hoper-v4"), {}, "mujoco has no environment 'Hoper-v4'; did you mean 'Hopper-v4'"),
        (EnvSpec("mujoco", "CartPole-v1"), {}, "mujoco has no environment 'CartPole-v1'"),
        (EnvSpec("atari", "PongNoFrameskip-v4"), {}, "no environment 'PongNoFrameskip-v4'; did you mean 'Pong'"),
        (EnvSpec("gymnasium", "antigravity:CartPole-v1"), {}, "gymnasium has no environment"),  # would import it
        (EnvSpec("mujoco", "Hopper-v4", {"bakend": "x"}), {}, "are backend, max_episode_steps, got 'bakend'"),
        (EnvSpec("mujoco", "Hopper-v4", {"backend": "jax"}), {}, "backend must be envpool or gymnasium, got 'jax'"),
        (EnvSpec("classic", "CartPole-v1", {"backend": "envpool"}), {}, "are max_episode_steps, got 'backend'"),
        (EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 0}), {}, "max_episode_steps must be an integer ≥ 1"),
        (EnvSpec("classic", "CartPole-v1", {"max_episode_steps": True}), {}, "max_episode_steps must be an integer"),
        (EnvSpec("gymnasium", "MountainCar-v0", {"gravity": 2}), {}, "cannot be made with these options: TypeError"),
        (EnvSpec("gymnasium", "MountainCar-v0", {"disable_env_checker": False}), {}, "set by radial"),
        (EnvSpec("gymnasium", "MountainCar-v0", {"goal_velocity": [0]}), {}, "goal_velocity must be a bool, int"),
        (EnvSpec("gymnasium", "Blackjack-v1"), {}, r"observation space must be a Box .*got Tuple\(Discrete\(32\)"),
        (EnvSpec("classic", "CartPole-v1"), {"num_envs": 0}, "num_envs must be a whole number ≥ 1, got 0"),
        (EnvSpec("classic", "CartPole-v1"), {"num_envs": 2.0}, "num_envs must be a whole number ≥ 1, got 2.0"),
        (EnvSpec("classic", "CartPole-v1"), {"seed": -1}, "seed must be a whole number ≥ 0, got -1"),
        (EnvSpec("classic", "CartPole-v1"), {"seed": True}, "seed must be a whole number"),
        (EnvSpec("classic", "CartPole-v1"), {"threads": 0}, "threads must be a whole number ≥ 1"),
        (EnvSpec("classic", "CartPole-v1"), {"timeout": 0.0}, "timeout must be a positive number"),
        (EnvSpec("classic", "CartPole-v1"), {"timeout": float("nan")}, "timeout must be a positive number"),
        ("CartPole-v1", {}, "spec must be an EnvSpec, got 'CartPole-v1'; spec_for"),
    ],
)
def test_bad_input_is_one_line(spec: EnvSpec, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        make_env(spec, **{"num_envs": 1, "seed": 0, **arguments})
    assert "\n" not in str(caught.value)


def test_a_missing_extra_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)  # as if it were not installed
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[envpool\]'"):
        make_env(EnvSpec("mujoco", "Hopper-v4", {"backend": "envpool"}), 1, 0)

    def no_mujoco(*_: object, **__: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("MuJoCo is not installed")

    monkeypatch.setattr(gymnasium, "make", no_mujoco)
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[mujoco\]' or pip install 'radial-rl\[envpool\]'"):
        make_env(EnvSpec("mujoco", "Hopper-v4"), 1, 0)
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[mujoco\]'$"):
        make_env(EnvSpec("gymnasium", "Swimmer-v5"), 1, 0)


def test_seeds_are_what_they_always_were() -> None:
    assert env_seeds(0, 3) == [1878776328, 336614359, 1620722436]  # a changed hash would change every run
    seeds = env_seeds(1, 1000) + env_seeds(2, 1000)
    assert len(set(seeds)) == 2000
    assert 0 <= min(seeds) <= max(seeds) < 2**31


def test_where_an_agent_acts_may_be_in_the_name_of_its_file() -> None:
    assert spec_named(Path("FruitBot_ppo.pt")) == spec_named(Path("my-fruitbot.pt")) == EnvSpec("procgen", "fruitbot")
    assert spec_named(Path("CartPole-v1.zip")) == EnvSpec("classic", "CartPole-v1")
    for other in ("FruitBot_ppo.zip", "agent.pt", "maze/agent.pt"):
        assert spec_named(Path(other)) is None


@pytest.mark.parametrize(
    ("shape", "id"),
    [((4,), "CartPole-v1"), (None, "CartPole-v1"), ((3, 64, 64), "fruitbot"), ((4, 84, 84), "Pong")],
)
def test_an_example_suits_the_agent(shape: tuple[int, ...] | None, id: str) -> None:
    assert example_for(shape) == id
    assert spec_for(id).id == id


def test_an_id_that_is_gone() -> None:
    with pytest.warns(UserWarning, match="Hopper-v3 is gone: Hopper-v4 takes its place"):
        assert spec_for("Hopper-v3") == EnvSpec("mujoco", "Hopper-v4")
    assert successor("CartPole-v1") is None


@pytest.mark.parametrize(
    "options",
    [
        {"xml_file": "/etc/passwd"}, {"render_mode": "human"}, {"render_mode": "rgb_array"}, {"width": 100_000},
        {"max_episode_steps": 0}, {"continuous": "yes"}, {"gravity": 1e300}, {"map_name": "../x"}, {"anything": 1},
    ],
)  # fmt: skip
def test_a_card_must_not_set_any_option(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        check_card_env(EnvSpec("gymnasium", "Hopper-v5", options), "card.json")


def test_a_card_may_set_the_task() -> None:
    check_card_env(EnvSpec("gymnasium", "LunarLander-v3", {"continuous": True, "gravity": -5.0}), "card.json")
    check_card_env(EnvSpec("mujoco", "Hopper-v4", {"backend": "gymnasium"}), "card.json")
