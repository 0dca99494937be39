"""The parts that every loop with a replay shares: when something is due, the guide's look, and how a run is resumed."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from radial.core.agent import Agent
from radial.runs.run import Run, derived_seed
from radial.training.ramp import ROWS, Guide, restore_guide
from radial.training.replay import Prioritised, Replay
from radial.training.replay_disk import ReplayFolder
from radial.training.rollouts import Returns


class Restorable(Protocol):
    """A learner, as far as it is resumed."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""


def passed(every: int, before: int, now: int) -> int:
    """How many multiples of `every` lie in (before, now]."""
    return now // every - before // every


def look(
    guide: Guide | None, prioritised: Prioritised | None, actor: Agent, replay: Replay, returns: Returns, step: int,
    seed: int,
) -> dict[str, float]:  # fmt: skip
    """Let the guide watch observations of the replay, drawn with a generator of their own."""
    if guide is None or not len(replay):
        return {}
    beta = None if prioritised is None else prioritised.beta(step)
    rng = torch.Generator().manual_seed(derived_seed(seed, "watch", step))
    sample = replay.sample(ROWS, rng, beta=beta, device=next(actor.network.parameters()).device)
    return guide.look(step, actor, actor.prepare(sample.obs), returns.shared())


def restore(
    run: Run, learner: Restorable, replay: Replay, returns: Returns, generators: Mapping[str, torch.Generator],
    folder: ReplayFolder, guide: Guide | None, agent: Agent,
) -> int:  # fmt: skip
    """Restore everything from a checkpoint; return its step."""
    assert run.restored is not None
    tensors, state = run.restored
    learner.restore(tensors)
    named = {name.removeprefix("replay."): tensor for name, tensor in tensors.items() if name.startswith("replay.")}
    folder.load(replay, state["replay"], named)
    for name, generator in generators.items():
        generator.set_state(tensors[name])
    restore_guide(guide, agent, tensors, state)
    returns.restore(state)
    return int(state["step"])
