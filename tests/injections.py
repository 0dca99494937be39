"""NaN and infinity put into a training at eight points, one at a time: each must stop it before anything is saved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch
import torch

from radial.core.data import Step
from radial.envs.wrapper import EnvWrapper
from radial.training import a3c, a3c_player, ddpg, dqn, ppo, ppo_update
from radial.training.a3c_test import TINY as A3C
from radial.training.ddpg_test import TINY as DDPG
from radial.training.dqn_test import TINY as DQN
from radial.training.ppo_test import TINY as PPO

NAN, INF = float("nan"), float("inf")
TRAININGS: dict[str, tuple[Any, Callable[..., Any], Any]] = {
    "dqn": (dqn, dqn.train_dqn, DQN),
    "ppo": (ppo, ppo.train_ppo, PPO),
    "a3c": (a3c, a3c.train_a3c, A3C),
    "ddpg": (ddpg, ddpg.train_ddpg, DDPG),
}
AT = 30  # the call at which the value appears: after learning has begun


class Poisoned(EnvWrapper):
    """An env that spoils one column of one step, behind the adapter that would have noticed."""

    def __init__(self, env: Any, column: str, value: float) -> None:
        super().__init__(env)
        self.column, self.value, self.count = column, value, 0

    def reset(self) -> torch.Tensor:
        obs = self.env.reset()
        if self.column == "reset":
            obs = obs.clone()
            obs[0, 0] = self.value
        return obs

    def step(self, action: torch.Tensor) -> Step:
        step = self.env.step(action)
        self.count += 1
        if self.count == AT and self.column != "reset":
            getattr(step, self.column).view(-1)[0] = self.value
        return step


@contextmanager
def _env(module: Any, column: str, value: float) -> Iterator[None]:
    make = module.make_env
    with mock.patch.object(module, "make_env", lambda *a, **k: Poisoned(make(*a, **k), column, value)):
        yield


def _at_call(spoil: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`spoil(original, *args)` at one call, the original at all others."""
    calls = iter(range(10**9))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == AT:
            return spoil(original, *args, **kwargs)
        return original(*args, **kwargs)

    return wrapped


def _spoiled(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[0] = NAN
    return tensor


def _loss(original: Any, *args: Any, **kwargs: Any) -> Any:
    loss = original(*args, **kwargs)
    return replace(loss, total=loss.total * NAN)


def _first_output(original: Any, *args: Any, **kwargs: Any) -> Any:
    first, *rest = original(*args, **kwargs)
    return _spoiled(first), *rest


def _gradient_of_adam(original: Any, parameters: Any, gradient: Any, *args: Any, **kwargs: Any) -> Any:
    return original(parameters, _spoiled(gradient), *args, **kwargs)


def _weights_after(original: Any, learner: Any, *args: Any, **kwargs: Any) -> Any:
    answer = original(learner, *args, **kwargs)
    learner.parameters.view(-1)[0] = NAN
    return answer


def _moments_before(original: Any, learner: Any, *args: Any, **kwargs: Any) -> Any:
    moments = learner.moments if isinstance(learner, a3c_player.Model) else learner.adam
    moments.second.view(-1)[0] = NAN
    return original(learner, *args, **kwargs)


# Where an update of each algorithm can be reached: the loss, the gradient, and the update itself.
LOSS = {"dqn": dqn._Losses, "ppo": ppo_update._Losses, "a3c": a3c_player._Losses, "ddpg": ddpg._Losses}
GRADIENT: dict[str, tuple[Any, str, Any]] = {
    "dqn": (dqn, "adam_", _gradient_of_adam),
    "ppo": (ppo_update, "adam", _gradient_of_adam),
    "a3c": (a3c_player.A3CLearner, "step", _first_output),
    "ddpg": (ddpg, "adam", _gradient_of_adam),
}
UPDATE: dict[str, tuple[Any, str]] = {
    "dqn": (dqn.QLearner, "learn"),
    "ppo": (ppo_update.Learner, "step"),
    "a3c": (a3c_player.Model, "apply"),
    "ddpg": (ddpg.DDPGLearner, "learn"),
}


def _patched(where: Any, attribute: str, spoil: Callable[..., Any]) -> Any:
    return mock.patch.object(where, attribute, _at_call(spoil, getattr(where, attribute)))


POINTS: dict[str, Callable[[str], Any]] = {
    "an observation": lambda name: _env(TRAININGS[name][0], "obs", NAN),
    "the first observation": lambda name: _env(TRAININGS[name][0], "reset", NAN),
    "a reward": lambda name: _env(TRAININGS[name][0], "reward", NAN),
    "an infinite reward": lambda name: _env(TRAININGS[name][0], "reward", INF),
    "the loss": lambda name: _patched(LOSS[name], "forward", _loss),
    "the gradient": lambda name: _patched(*GRADIENT[name]),
    "a weight": lambda name: _patched(*UPDATE[name], _first_output if name == "ppo" else _weights_after),
    "a moment of Adam": lambda name: _patched(*UPDATE[name], _moments_before),
}
CASES = [(name, point) for name in TRAININGS for point in POINTS]


def check_injection(name: str, point: str, folder: Path) -> None:
    """The training stops with a FloatingPointError, and no file of its folder holds NaN or infinity."""
    _, train, config = TRAININGS[name]
    said = None
    with POINTS[point](name):
        try:
            train(config, 0, out=folder, quiet=True)
        except FloatingPointError as error:
            said = str(error)
    assert said is not None, f"{name}: the training went on with NaN in {point}"
    assert "\n" not in said
    for path in folder.rglob("*.safetensors"):
        for key, tensor in safetensors.torch.load_file(path).items():
            assert bool(tensor.isfinite().all()), f"{name}, {point}: {path.name} holds {key} with NaN"
    text = "".join(path.read_text() for path in folder.rglob("*.jsonl"))
    assert "NaN" not in text
    assert "Infinity" not in text
