"""The settings of deep Q-learning, plain, robust and adversarial; the loop itself is in `dqn`."""

from dataclasses import dataclass, field

from radial.agents.starts import DEFAULT, check_start
from radial.core import checks
from radial.core.data import LATER, BadInput, EnvSpec
from radial.core.schedules import Constant, Linear, Schedule, settle
from radial.objectives.base import Objective
from radial.objectives.q_learning import JOINT
from radial.objectives.q_objectives import OBJECTIVES, TD, Plain
from radial.training.precision import PRECISIONS
from radial.training.replay import Prioritised

ATTACKED = ("replay", "acting", "both")  # what adversarial training perturbs


@dataclass(frozen=True)
class DQNConfig:
    """Everything that defines a training, except the seed. Defaults are those of the authors' Atari runs."""

    env: EnvSpec
    objective: Objective = field(default_factory=Plain, metadata={"kinds": OBJECTIVES})
    total_steps: int = 6_000_000  # env steps
    num_envs: int = 8
    replay_capacity: int = 200_000
    prioritised: Prioritised | None = None  # None: uniform sampling
    learning_starts: int = 50_000  # env steps before the first update
    update_every: int = 4  # env steps, summed over envs
    batch: int = 128
    target_every: int = 4_000  # env steps
    exploration: Schedule = Linear(end=0.01, first_step=0, last_step=500_000, start=1.0)  # share of the steps
    exploration_length: int = 1  # steps that an exploring action lasts; > 1 where single ones lead nowhere (Freeway)
    rate: float = 1.25e-4
    anneal: bool = False  # the rate falls linearly to 0
    adam_eps: float = 1e-8
    max_grad_norm: float | None = None  # None: do not clip
    discount: float = 0.99
    n_step: int = 1  # rewards summed before bootstrapping: rewards propagate n steps per update
    td: TD = field(default_factory=TD)
    hidden: tuple[int, ...] | None = None  # sizes of layers; None: two of 64 for vectors, the paper's for frames
    compile: bool = True  # the update to native code; False: slower, starts at once
    log_every: int = 2_000  # env steps
    checkpoint_every: int = 100_000  # env steps; environments restart there, so that a resumed run is the same run
    attack: str | None = field(default=None, metadata=LATER)  # adversarial training: the attack
    attack_radius: Schedule = field(default=Constant(0.0), metadata=LATER)
    attack_probability: float = field(default=0.0, metadata=LATER)  # of each state being attacked
    attack_on: str = field(default="replay", metadata=LATER)  # one of ATTACKED
    start: str = field(default=DEFAULT, metadata=LATER)  # of the network that decides, a key of STARTS
    precision: str = field(default="float32", metadata=LATER)  # of an update's products; one of PRECISIONS
    joint: str = field(default="none", metadata=LATER)  # passes of the online network in one batch; one of JOINT
    concurrent: bool = field(default=False, metadata=LATER)  # act and learn on two cores, with weights a round old

    def __post_init__(self) -> None:
        checks.whole(
            self, "total_steps", "num_envs", "replay_capacity", "update_every", "batch", "target_every",
            "exploration_length", "n_step", "log_every", "checkpoint_every",
        )  # fmt: skip
        checks.whole(self, "learning_starts", least=0)
        checks.positive(self, "rate", "adam_eps", "max_grad_norm")
        checks.share(self, "discount", "attack_probability")
        settle(self, "exploration", "attack_radius")
        if self.attack_on not in ATTACKED:
            raise BadInput(f"attack_on must be one of {', '.join(ATTACKED)}, got {self.attack_on!r}")
        if self.precision not in PRECISIONS:
            raise BadInput(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.joint not in JOINT:
            raise BadInput(f"joint must be one of {', '.join(JOINT)}, got {self.joint!r}")
        checks.kind(self, "concurrent", bool)
        if self.concurrent and self.attack is not None:
            raise BadInput("concurrent must be false where an attack is trained against: it needs the weights of now")
        self._check_exploration()
        checks.sizes(self, "hidden")
        check_start(self.start)
        checks.kind(self, "env", EnvSpec)
        checks.kind(self, "td", TD)
        checks.kind(self, "prioritised", Prioritised)

    def _check_exploration(self) -> None:
        for step in (0, self.total_steps):
            if not 0 <= self.exploration(step) <= 1:
                raise BadInput(f"exploration must lie in [0, 1], got {self.exploration(step):g} at step {step:,}")
