"""Audits of agents whose robustness can be worked out by hand: one linear layer, CartPole cut to twenty steps."""

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from radial.agents.foreign import wrap
from radial.agents.policies import CategoricalAgent
from radial.agents.preprocessing import Frames, RunningScale
from radial.agents.saved import save
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, EnvSpec
from radial.evaluation.certificates import Terms
from radial.evaluation.prover import Prover, SoundnessError
from radial.evaluation.worst_case import AbsoluteWorstCase, Start
from radial.workflows.audit.audit import assert_robust, audit
from radial.workflows.audit.budget import Clock, OutOfTime
from radial.workflows.audit.result import AuditResult, Level, Played
from radial.workflows.audit.states import Visited, certified, certified_radius, falsified
from radial.workflows.audit.suite import masking
from radial.workflows.audit.worst import bracket, lifted

CARTPOLE = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 20})
PENDULUM = EnvSpec("classic", "Pendulum-v1", {"max_episode_steps": 10})
WEIGHTS = torch.tensor([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]])  # push where the pole falls


def linear(weight: torch.Tensor) -> nn.Sequential:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return nn.Sequential(layer)


def balancer(**more: Any) -> Any:
    return wrap(linear(WEIGHTS), "categorical", observation_shape=(4,), **more)


@pytest.fixture(scope="module")
def result() -> AuditResult:
    return audit(balancer(), CARTPOLE, [0.01, 0.4], episodes=3, budget=None, attacks=["pgd", "random"], name="balancer")


def test_both_sides_of_the_bracket(result: AuditResult) -> None:
    assert result.nominal.returns == (20.0, 20.0, 20.0)
    for level in result.levels:
        assert level.bracket is not None
        assert level.worst is not None
        assert level.bracket.kind == "certified"
        assert level.bracket.lower is not None
        assert level.bracket.lower <= level.worst.mean <= result.nominal.mean
        assert level.worst.mean == min(played.mean for played in level.attacks.values())
    assert result.levels[1].worst.mean < 20  # type: ignore[union-attr]  a push the wrong way, again and again


def test_attacks_are_paired(result: AuditResult) -> None:
    for played in result.levels[1].attacks.values():
        gaps = [20 - reached for reached in played.returns]
        assert played.gap == pytest.approx(sum(gaps) / 3)


def test_shares_and_radii_by_hand(result: AuditResult) -> None:
    """The action holds up to |margin| / ‖w₁ − w₀‖₁ = |2(θ + θ̇/2)| / 3."""
    small, large = (level.acr for level in result.levels)
    assert small is not None
    assert large is not None
    assert small["distinct_actions"] == 2  # it pushes to both sides
    assert small["mean"] >= large["mean"]
    assert small["certified"] + small["attacked"] + small["unknown"] == small["states"] == 60
    found = result.certified_radius
    assert found is not None
    assert 0 < found["least"] <= found["median"] <= found["most"] < 1
    share = found["mean"]
    assert (small["mean"] > 0.5) == (found["median"] > 0.01)
    assert result.to_json()["certified_radius"]["mean"] == share


def test_certified_radius_against_the_closed_form() -> None:
    agent = balancer()
    x = 0.2 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    true = (agent.scores(x)[:, 1] - agent.scores(x)[:, 0]).abs() / 3
    visited = Visited(x, torch.zeros(50, dtype=torch.int64), 50)
    found = certified_radius(agent, visited, 1.0, math.inf, Prover.of("crown"), Clock(None))
    assert (found <= true).all()
    close = true > 2e-4
    assert (found[close] >= true[close] / 1.17).all()


def test_units_of_the_env() -> None:
    door = RunningScale(torch.zeros(4), torch.tensor([4.0, 1.0, 0.25, 1.0]), clip=10.0, tiny=0.0, count=9.0)
    found = audit(balancer(prepare=door), CARTPOLE, 0.1, episodes=1, budget=None, attacks=["random"], trace=False)
    assert found.levels[0].env_units == pytest.approx([0.2, 0.1, 0.05, 0.1])
    assert "no value function" in found.left_out["critic"]


def test_continuous_actions_by_hand() -> None:
    """A linear mean moves by ε·‖w‖₁ either way; torques lie in ±2."""
    agent = wrap(linear(torch.tensor([[0.05, 0.1, 0.1]])), "gaussian", observation_shape=(3,), clips_actions=True)
    found = audit(agent, PENDULUM, 0.1, episodes=2, budget=None, attacks=["pgd"])
    box = found.levels[0].box
    assert box is not None
    assert box["relative"]
    assert box["width"] == pytest.approx(2 * 0.1 * 0.25 / 4, rel=1e-3)
    assert box["corner"] == "by distance"
    bracket = found.levels[0].bracket
    assert bracket is not None
    assert (bracket.kind, bracket.lower) == ("heuristic", box["corner_return"])
    assert found.trace is not None
    assert not found.trace["discrete"]


def test_the_recorded_episode(result: AuditResult) -> None:
    trace = result.trace
    assert trace is not None
    steps = len(trace["reward"])
    assert trace["radius"] == 0.4
    assert steps == sum(trace["reward"]) == len(trace["verdicts"]) == len(trace["raw"]) == len(trace["lower"])
    for verdict, wanted, done in zip(trace["verdicts"], trace["clean_action"], trace["action"], strict=True):
        assert (verdict == "attacked") == (wanted != done)
    assert trace["features"][2] == "pole angle"
    assert len(trace["nominal"]["reward"]) == 20
    assert max(abs(v) for row in trace["delta"] for v in row) <= 0.4 * (1 + 1e-6)


def test_the_verdict_is_words(result: AuditResult) -> None:
    assert result.verdict.startswith("Clean return 20.0 ± 0.0. Not robust: at ε = 0.4 pgd")
    assert "No clear effect of any attack up to ε = 0.01." in result.verdict
    assert "Certified actions: " in result.verdict
    assert "mean certified radius 0." in result.verdict
    assert "mean return from these 3 starts below" in result.verdict


@pytest.mark.parametrize("attacks", [[], ["none"], "none"])
def test_without_an_attack_there_are_still_proofs(attacks: Any) -> None:
    found = audit(balancer(), CARTPOLE, np.float32(0.01), episodes=1, budget=None, attacks=attacks)
    assert found.levels[0].attacks == {}
    assert found.levels[0].radius == pytest.approx(0.01)
    assert "No attack was asked for." in found.verdict
    assert "ertified: at ε = 0.01 no adversary can bring the return from this one start below" in found.verdict


def test_single_texts_are_lists_of_one() -> None:
    settings: dict[str, Any] = {"episodes": 1, "budget": None, "trace": False}
    found = audit(balancer(), CARTPOLE, 0.1, attacks="random", require="return@0.2>=1", **settings)
    assert [level.radius for level in found.levels] == [0.1, 0.2]
    assert list(found.levels[0].attacks) == ["random"]


def test_agents_of_the_zoo_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path))
    agent = CategoricalAgent((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    save(agent, tmp_path / "known")
    found = audit("known", CARTPOLE, 0.1, episodes=1, budget=None, attacks="random", trace=False)
    assert found.facts["agent"] == "known"
    with pytest.raises(BadInput, match=r"no agent 'knwon'.*did you mean 'known'\?"):
        audit("knwon", CARTPOLE, 0.1)


def test_a_budget_is_honoured_and_cuts_are_listed() -> None:
    clock = Clock(1000.0)
    assert clock.run("first", lambda: 1) == 1
    clock.end = clock.begun
    assert clock.run("second", lambda: 2) is None
    assert clock.cuts([]) == ["second"]
    with pytest.raises(OutOfTime):
        clock.tick()
    with pytest.raises(BadInput, match="budget is too small"):
        audit(balancer(), CARTPOLE, 0.1, budget=1e-9)


def lower_bounds(*lower: float) -> AbsoluteWorstCase:
    """Certified returns of several starts."""
    terms = Terms("agent", "env", {}, {}, 0.1, math.inf, "ibp", "as given", None, "margins", None, 0, len(lower))
    return AbsoluteWorstCase(terms, 9, 1.0, tuple(Start(each, math.inf, math.inf, 1, ()) for each in lower), 0.0)


def test_what_is_proven_at_a_radius_holds_at_smaller_ones() -> None:
    found = lifted([lower_bounds(3.0, 3.0), None, lower_bounds(6.0)])
    assert found[1] is None
    assert [start.lower for start in found[0].starts] == [6.0, 3.0]  # type: ignore[union-attr]


def test_masked_gradients_raise_an_alarm() -> None:
    plain = (500.0, 490.0, 500.0)

    def warned(**returns: tuple[float, ...]) -> str | None:
        return masking({name.replace("_", "-"): dict(enumerate(each)) for name, each in returns.items()}, 0.1, 480.0)

    assert warned(pgd=plain, random=(100.0, 90.0, 110.0)) is not None
    assert warned(pgd=plain, random=(499.0, 490.0, 500.0)) is None
    assert warned(random=plain) is None
    assert "a search among corners (corners)" in str(warned(pgd=plain, corners=(50.0, 40.0, 60.0)))
    assert "below that under the best gradient attack (mad)" in str(
        warned(pgd=plain, mad=(490.0,) * 3, sarl=(50.0,) * 3)
    )
    assert warned(pgd=plain, mad=(90.0, 90.0, 90.0), random=(100.0, 90.0, 110.0)) is None  # a gradient found it too
    assert warned(pgd=plain, pgd_strong=(50.0, 40.0, 60.0)) is None  # restarts need gradients
    assert warned(pgd=plain, random=(100.0,)) is not None  # paired with the first of them


def test_in_a_test_suite() -> None:
    settings: dict[str, Any] = {"env": CARTPOLE, "radius": [], "episodes": 1, "budget": None, "attacks": ["random"]}
    with pytest.raises(AssertionError, match=r"return@0.5>=400: return is \d+\nnominal>21: nominal is 20"):
        assert_robust(balancer(), "return@0.5>=400", "nominal>21", "acr@0.5<=1", **settings)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"episodes": 0}, "episodes must be a whole number ≥ 1"),
        ({"budget": -1}, "budget must be a number of minutes > 0"),
        ({"radius": -0.1}, "radius must be a finite number ≥ 0"),
        ({"radius": []}, "radius must name at least one"),
        ({"radius": "0.05"}, "radius must be a finite number ≥ 0 or a list of such, got '0.05'"),
        ({"radius": ["0.05"]}, "radius must be a finite number ≥ 0, got '0.05'"),
        ({"radius": True}, "radius must be a finite number ≥ 0, got True"),
        ({"radius": object}, "radius must be a finite number ≥ 0 or a list of such"),
        ({"budget": True}, "budget must be a number of minutes > 0"),
        ({"threads": 0}, "threads must be a whole number ≥ 1"),
        ({"vecnormalize": "x.pkl"}, "this agent is loaded already"),
        ({"attacks": ["pdg"]}, r"attack 'pdg' cannot be run: known are random.*; did you mean 'pgd'\?"),
        ({"attacks": 3}, "attacks must be a list of texts, got 3"),
        ({"require": 3}, "require must be a list of texts, got 3"),
        ({"attacks": ["critic"]}, "attack 'critic' cannot be run: the agent has no value function"),
        ({"env": None}, "the agent has no environment recorded: pass env"),
        ({"env": PENDULUM}, "agent must fit the env"),
        ({"bound": "crwn"}, "did you mean 'crown'"),
        ({"require": ["return>=4"]}, "a requirement must be about one of return@RADIUS"),
    ],
)
def test_bad_input(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        audit(balancer(), **({"env": CARTPOLE, "radius": 0.1} | change))


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (None, "agent must be an agent, its path or its name in the zoo, got None"),
        (3, "agent must be an agent, its path or its name in the zoo, got 3"),
        (linear(WEIGHTS), "got Sequential; rr.wrap makes an agent of a network"),
    ],
)
def test_what_is_no_agent(agent: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        audit(agent, CARTPOLE, 0.1)


def test_attacks_are_looked_up_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radial.workflows.audit.states.visit", lambda *_, **__: pytest.fail("an episode is played"))
    for name in ("pdg", "critic"):
        with pytest.raises(BadInput, match=f"attack '{name}' cannot be run"):
            audit(balancer(), CARTPOLE, 0.1, attacks=["random", name])


class Blinking(gymnasium.Env[Any, Any]):
    """Frames that get brighter; every step pays one."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 12, 12), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros((1, 12, 12), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.full((1, 12, 12), 20 * self.count, np.uint8), 1.0, self.count == 4, False, {}


def test_pictures() -> None:
    if "Blinking-v0" not in gymnasium.registry:
        gymnasium.register("Blinking-v0", entry_point=Blinking)
    network = nn.Sequential(nn.Conv2d(1, 2, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).eval()
    agent = wrap(network, "q", Frames(1), valid_range=(0.0, 1.0))
    found = audit(agent, EnvSpec("gymnasium", "Blinking-v0"), episodes=1, budget=None, attacks=["pgd"])
    assert [level.radius for level in found.levels] == [1 / 255, 3 / 255, 5 / 255]
    with pytest.raises(BadInput, match=r"inputs lie in \[0, 1\], got 8; use 8/255"):
        audit(agent, EnvSpec("gymnasium", "Blinking-v0"), 8)
    assert found.levels[0].env_units == pytest.approx([1.0])  # one step of 255
    assert found.left_out["rs"] == "it learns on vectors, not on pictures"
    assert found.levels[0].bracket.kind == "estimate"  # type: ignore[union-attr]
    assert any("cannot be cloned" in note for note in found.notes)
    assert found.trace is not None
    assert found.trace["frames"][0].startswith("data:image/png;base64,")
    assert len(found.trace["shown"]) == len(found.trace["amplified"]) == 4


def test_what_is_not_ruled_out_is_not_what_an_attack_can_do() -> None:
    """2000 + 500x − (2000 + 500x) is 0, but not to an interval: a finished search says nothing of the upper side."""
    wide = torch.tensor([[0.05, 0.1, 1.0, 0.5], [-0.05, -0.1, -1.0, -0.5], [500.0, 0, 0, 0], [500.0, 0, 0, 0]])
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).eval()
    with torch.no_grad():
        network[0].weight.copy_(wide)
        network[0].bias.copy_(torch.tensor([0.0, 0.0, 2000.0, 2000.0]))
        network[2].weight.copy_(torch.tensor([[0.0, 1.0, 1.0, -1.0], [1.0, 0.0, 0.0, 0.0]]))
    agent = wrap(network, "categorical", observation_shape=(4,))
    found = audit(agent, CARTPOLE, 0.001, episodes=2, budget=None, attacks=["random"], bound="ibp", trace=False)
    (level,) = found.levels
    assert level.bracket is not None
    assert (level.bracket.kind, level.bracket.says) == ("certified", "the search was finished")
    assert level.bracket.lower is not None
    assert level.bracket.lower < 12 < level.bracket.upper == 20  # type: ignore[operator]


def test_a_guess_that_an_attack_refutes_gives_way_to_it() -> None:
    played = Played("pgd", 0.1, "pgd", (4.0, 6.0), (4, 6))
    level = Level(0.1, {"pgd": played}, gwc={"mean": 9.0, "episodes": 2})
    found = bracket(level, None)
    assert (found.lower, found.upper, found.kind) == (5.0, 5.0, "estimate")
    assert "an attack did worse than its 9.0" in found.says
    level.gwc = {"mean": 3.0, "episodes": 2}
    assert (bracket(level, None).lower, bracket(level, None).upper) == (3.0, 5.0)


def test_both_bounds_are_means_over_the_same_starts() -> None:
    """Two of three episodes have a certificate: the attack that counts is the strongest on those two."""
    attacks = {
        "pgd": Played("pgd", 0.1, "pgd", (8.0, 8.0, 1.0), (8, 8, 1)),
        "mad": Played("mad", 0.1, "mad", (6.0, 8.0, 9.0), (6, 8, 9)),
    }
    level = Level(0.1, attacks)
    found = bracket(level, lower_bounds(3.0, 5.0))
    assert (found.lower, found.upper, found.starts, found.to_json()["gap"]) == (4.0, 7.0, 2, 3.0)
    alone = bracket(level, lower_bounds(3.0))
    assert (alone.lower, alone.upper, alone.starts, alone.to_json()["gap"]) == (3.0, 6.0, 1, 3.0)
    with pytest.raises(SoundnessError, match=r"mad at ε = 0.1 returned 6.0, below the certified 7.0"):
        bracket(level, lower_bounds(7.0))


def test_a_refuted_certificate_names_the_bound_that_gave_it() -> None:
    def liar(network: nn.Module, ball: Ball, rows: torch.Tensor | None = None) -> Bounds:
        assert rows is not None
        return Bounds(torch.ones(rows.shape[:2]), torch.ones(rows.shape[:2]) * 2)

    agent, x = balancer(), 0.01 * torch.ones(3, 4)
    visited, prover, clock = Visited(x, torch.zeros(3, dtype=torch.int64), 3), Prover.of(liar), Clock(None)
    proven = certified(agent, visited, 0.1, math.inf, prover, clock)
    assert proven.all()
    with pytest.raises(SoundnessError, match=r"liar certified action 1 at radius 0.1"):
        falsified(agent, visited, 0.1, math.inf, proven, prover, 0, clock)


def test_one_start_is_not_said_to_be_several() -> None:
    told: list[str] = []
    audit(balancer(), CARTPOLE, 0.01, episodes=1, budget=None, attacks=[], trace=False, progress=told.append)
    (line,) = (text for text in told if "certified return" in text)
    assert line.endswith("certified return at ε = 0.01: ≥ 20.0 (1 start)")


class Plain:
    """An agent without inheritance: the documented parts and nothing else."""

    observation_shape = (4,)

    def __init__(self) -> None:
        inner = balancer()
        self.network, self.actions = inner.network, inner.actions

    def prepare(self, obs: torch.Tensor) -> torch.Tensor:
        return obs.float()

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x)  # type: ignore[no-any-return]

    def act(self, x: torch.Tensor, rng: torch.Generator | None = None) -> torch.Tensor:
        return self.scores(x).argmax(-1)


def test_an_agent_without_inheritance_is_audited_as_well() -> None:
    settings: dict[str, Any] = {"episodes": 2, "budget": None, "attacks": ["pgd"]}
    plain, ours = (audit(agent, CARTPOLE, 0.4, name="it", **settings).to_json() for agent in (Plain(), balancer()))
    assert plain["about"] == "Plain"
    for key in ("nominal", "verdict", "certified_radius"):
        assert plain[key] == ours[key]
    assert plain["levels"][0]["bracket"] == ours["levels"][0]["bracket"]
    assert "value function" in plain["left_out"]["critic"]


def test_an_action_beyond_the_box_is_not_moved_by_what_the_box_cuts_off() -> None:
    """Means of 200 in a box of ±2 are 2, whatever is done to them: certified, and nothing changes."""
    agent = wrap(linear(torch.full((1, 3), 5.0)), "gaussian", observation_shape=(3,), clips_actions=True)
    layer: Any = agent.network[0]  # type: ignore[index]
    layer.bias = nn.Parameter(torch.full((1,), 200.0))
    found = audit(agent, PENDULUM, 0.1, episodes=1, budget=None, attacks=["mad"])
    assert found.trace is not None
    assert set(found.trace["verdicts"]) == {"certified"}
    assert found.trace["action"][0] == [2.0]
    box = found.levels[0].box
    assert box is not None
    assert (box["width"], box["corner_return"]) == (0.0, found.nominal.mean)


class Sine(nn.Module):
    """No bound rule has been written for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


def test_a_network_without_bounds_is_attacked_all_the_same() -> None:
    agent = wrap(nn.Sequential(*linear(WEIGHTS), Sine()), "categorical", actions=2, observation_shape=(4,))
    found = audit(agent, CARTPOLE, 0.1, episodes=1, budget=None, attacks=["random", "pgd"])
    assert set(found.levels[0].attacks) == {"random", "pgd"}
    assert (found.levels[0].acr, found.trace, found.levels[0].bracket.kind) == (None, None, "none")  # type: ignore[union-attr]
    assert any("nothing can be certified, and no episode is shown: no bound rule" in note for note in found.notes)


def test_a_network_that_cannot_take_what_is_shown() -> None:
    wrong = wrap(linear(torch.zeros(2, 5)), "categorical")
    with pytest.raises(BadInput, match=r"its network cannot take \(4,\) of classic/CartPole-v1"):
        audit(wrong, CARTPOLE, 0.1)
    with pytest.raises(BadInput, match=r"must give scores of shape \(1, 2\) for one observation, got \(1, 3\)"):
        audit(wrap(linear(torch.zeros(3, 4)), "categorical", actions=2), CARTPOLE, 0.1)
