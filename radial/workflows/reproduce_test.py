"""Filling a paper's table: which agents, which cells, what is played and what is not played again.

`evaluate` is replaced by a closed form here: an agent of seed s scores 4000 + 100·s − 10,000·ε, ± 10.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.policies import GaussianAgent
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent, save
from radial.attacks import ATTACKS
from radial.attacks.gradient import Critic, RandomNoise
from radial.core.agent import Card
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.play import Evaluation
from radial.recipes.recipe import RECIPES, Cell, recipe
from radial.recipes.tables import CLEAN, TABLES, Column, label_of, table
from radial.reports.markdown import markdown
from radial.runs.files import Corrupt
from radial.workflows import protocol
from radial.workflows.protocol import SEED, Book, EvaluatedAgent
from radial.workflows.reproduce import Entry, changed_settings, reproduce
from radial.workflows.seeds import add_to_zoo, card_config, finished, how_to_train, median_seed, selection_column

PAPER = Path(__file__).parents[3] / "shared" / "paper"
ENGINE = {"backend": "gymnasium", "version": "1.2.3", "simulator": "mujoco 3.3.7"}


def fake_evaluate(agent: Any, env: EnvSpec, attack: Any, radius: float, episodes: int, seed: int, **more: Any) -> Any:
    mean = 4000.0 + 100 * agent.card.seed - 10_000 * radius
    returns = tuple(mean + 10 * (-1) ** i for i in range(episodes))
    if hasattr(attack, "fit") and not hasattr(attack, "aimed"):  # one that aims would play for real
        attack = attack.fit(agent, env, 7)
    return Evaluation(
        more["name"], str(env), {}, ENGINE, repr(attack), radius, float("inf"), seed, episodes, False, episodes,
        returns, (1000,) * episodes, 0.1,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, float]]:
    """An empty folder with an empty zoo; and a list of what was played."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    monkeypatch.setattr(protocol, "engine_of", lambda env: ENGINE)
    calls: list[tuple[str, str, float]] = []

    def evaluate(agent: Any, env: EnvSpec, attack: Any, radius: float, *rest: Any, **more: Any) -> Any:
        calls.append((more["name"], "none" if attack is None else type(attack).__name__, radius))
        return fake_evaluate(agent, env, attack, radius, *rest, **more)

    monkeypatch.setattr(protocol, "evaluate", evaluate)
    monkeypatch.setitem(ATTACKS, "rs", Critic)  # the real one would learn for a minute
    monkeypatch.setattr(protocol, "adversary_for", lambda *_: RandomNoise())
    monkeypatch.setitem(protocol.CERTIFICATES, "reach", (certified("reach", [0.25]), {"bound": "crown"}))
    return calls


def agent_of(name: str, seed: int, folder: str | Path, **changes: Any) -> None:
    """A small untrained agent that says it is of this recipe."""
    agent = GaussianAgent((3,), 2, (4,))
    agent.initialize(torch.Generator().manual_seed(seed))
    config = recipe(name).config
    agent.card = replace(
        Card(config.env, {"name": name, "config": card_config(config)}, seed, config.total_steps, "a" * 40), **changes
    )
    save(agent, folder)


# ------------------------------------------------------------------------------------------------------------ the data


CSV = {
    "mujoco": "mujoco", "mujoco-compounding": "mujoco_compounding", "atari": "atari", "atari-margin": "atari_margin",
    "atari-bounds": "atari_bound_method", "procgen": "procgen_deterministic",
    "procgen-stochastic": "procgen_stochastic",
}  # fmt: skip


def name_in_csv(column: Column) -> str:
    """Such as pgd_1_255; in the MuJoCo files the columns are told by their order."""
    return "nominal" if column == CLEAN else f"{column.attack}_{round(column.radius * 255)}_255"


def numbers_in_csv(line: dict[str, str], columns: tuple[Column, ...]) -> list[float | None]:
    """Mean and SEM of each column, None where there is none."""
    if "env" in line:
        return [float(text) for name, text in line.items() if name not in ("env", "agent", "levels")]
    texts = [line.get(name_in_csv(column) + end) for column in columns for end in ("", "_sem")]
    return [float(text) if text else None for text in texts]


def name_of_agent(line: dict[str, str]) -> str:
    """In ProcGen an agent stands in two rows."""
    agent = list(line.values())[1]
    return f"{agent} ({line['levels']})" if "levels" in line else agent


@pytest.mark.parametrize("name", CSV)
def test_the_numbers_are_the_papers(name: str) -> None:
    path = PAPER / f"{CSV[name]}.csv"
    if not path.exists():
        pytest.skip(f"the paper's numbers are not here ({path})")
    with path.open() as file:
        told = {
            (next(iter(line.values())), name_of_agent(line)): numbers_in_csv(line, table(name).columns)
            for line in csv.DictReader(file)
        }
    ours = {
        (row.task, row.agent.removesuffix(" (likelihood)").replace("SA-PPO (convex)", "SA-PPO")): [
            number
            for cell in row.paper
            for number in (cell.mean, cell.sem)
            if name != "mujoco" or cell.mean is not None
        ]
        for row in table(name).rows
        if not row.extra
    }
    assert ours == told
    assert list(ours) == list(told)


@pytest.mark.parametrize("name", TABLES())
def test_every_row_has_a_recipe_and_a_number_for_each_column(name: str) -> None:
    for row in table(name).rows:
        assert row.recipe in RECIPES()
        assert RECIPES()[row.recipe].config.env.id.split("-")[0].lower() == row.task.lower()
        assert [(cell.attack, cell.radius) for cell in row.paper] == [(c.attack, c.radius) for c in table(name).columns]
        assert {cell.attack for cell in row.paper} <= ATTACKS.keys() | protocol.CERTIFICATES.keys()


def test_unknown_names() -> None:
    with pytest.raises(BadInput, match=r"mujoco, mujoco-compounding, .*, got 'mujco'; did you mean 'mujoco'"):
        table("mujco")
    with pytest.raises(BadInput, match="q-bias, got 'qbias'; did you mean 'q-bias'"):
        table("qbias", ["q-bias"])
    with pytest.raises(BadInput, match=r"did you mean 'hopper'.*walker2d-ppo"):
        table("mujoco").chosen(["hoper"])
    assert {row.task for row in table("mujoco").chosen(["Hopper", "walker2d-ppo"])} == {"Hopper", "Walker2d"}


# ------------------------------------------------------------------------------------------------------------ one cell


def test_match_is_two_combined_standard_errors() -> None:
    facts = {"key": {}, "returns": [110.0, 90.0] * 50}  # 100 ± 1, by hand
    score = protocol.CellResult.of(facts)
    assert (score.mean, score.sem) == (100, pytest.approx(1))
    for paper, sem, match in (
        (102.8, 1.0, "within"),
        (102.9, 1.0, "below"),
        (97.1, 1.0, "above"),
        (110, 5.0, "within"),
    ):
        assert Entry(CLEAN, Cell("none", 0, paper, sem), score).match == match
    assert Entry(CLEAN, Cell("none", 0, 1, 1), None).match is None
    assert Entry(CLEAN, Cell("none", 0, 100), score).match is None  # no error, no judgement
    assert Entry(CLEAN, Cell("none", 0), score).match is None


def test_a_key_names_everything_the_returns_depend_on() -> None:
    agent_of("hopper-ppo", 0, "a")
    agent_of("hopper-ppo", 1, "b")
    one, other = EvaluatedAgent("a", Path("a")), EvaluatedAgent("b", Path("b"))
    mad = Column("mad", 0.075)
    key = one.key(mad, 50)
    assert key["weights"] == json.loads(Path("a/card.json").read_text())["sha256"]
    assert (key["env"], key["engine"]) == ("mujoco/Hopper-v4 (backend=gymnasium)", ENGINE)
    assert (key["seed"], key["episodes"], key["radius"]) == (SEED, 50, 0.075)
    keys = [key, other.key(mad, 50), one.key(mad, 49), one.key(CLEAN, 50), one.key(Column("mad", 0.15), 50)]
    assert len({protocol.hashed(key) for key in keys}) == 5
    assert EvaluatedAgent("elsewhere", Path("a")).key(mad, 50) == key  # the same agent under another name


def certified(metric: str, values: list[float]) -> Any:
    """Stands for `gwc` or `acr`: an object that knows its JSON, and tells what it was called with."""

    def measure(agent: Any, env: EnvSpec, radius: float, **more: Any) -> Any:
        name = "rates" if metric == "acr" else "returns"
        mean = {"mean": values[0]} if metric == "reach" else {}
        facts = {
            "metric": metric,
            name: values,
            "engine": ENGINE,
            "episodes": more["episodes"],
            "bound": more["bound"],
        } | mean
        return type("Found", (), {"to_json": lambda self: facts})()

    return measure


def test_certificates_are_columns_whose_key_names_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (("gwc", [3.0, 5.0]), ("acr", [0.5, 0.75])):
        monkeypatch.setitem(protocol.CERTIFICATES, name, (certified(name, values), protocol.CERTIFICATES[name][1]))
    agent_of("pong-dqn", 0, "a")
    subject = EvaluatedAgent("a", Path("a"))
    greedy, rate = (subject.evaluate(Column(name, 1 / 255), 2) for name in ("gwc", "acr"))
    assert (greedy.mean, rate.mean) == (4.0, 0.625)
    assert greedy.sem == pytest.approx(1 / 2**0.5)
    key = subject.key(Column("gwc", 1 / 255), 2)
    assert "bound='ibp'" in key["attack_settings"]
    assert "rule='bounds'" in key["attack_settings"]
    assert "Search(" in subject.key(Column("acr", 1 / 255), 2)["attack_settings"]
    monkeypatch.setitem(protocol.CERTIFICATES, "gwc", (certified("gwc", []), {"bound": "crown", "rule": "bounds"}))
    assert subject.key(Column("gwc", 1 / 255), 2) != key
    assert protocol.CellResult.of(json.loads(json.dumps(rate.facts))).mean == 0.625  # as it is read from a file


def test_a_certificate_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ones, on CartPole with an agent that knows nothing."""
    agent = QAgent((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.card = Card(EnvSpec("classic", "CartPole-v1"))
    save(agent, "a")
    subject = EvaluatedAgent("a", Path("a"))
    for name in ("gwc", "acr"):
        score = subject.evaluate(Column(name, 0.001), 2)
        assert score.key == protocol.hashed(subject.key(Column(name, 0.001), 2))
        assert score.facts["bound"] == "ibp"
        assert score.facts["arithmetic"] == "outward-rounded"
    assert 0 <= score.mean <= 1


def test_labels() -> None:
    labels = [Column(*pair).label for pair in (("none", 0.0), ("mad", 0.075), ("pgd", 3 / 255), ("acr", 1 / 255))]
    assert labels == ["clean", "MAD 0.075", "PGD 3/255", "ACR 1/255"]


def test_keys_in_files_stay_whatever_people_read() -> None:
    keys = [Column(*pair).key for pair in (("none", 0.0), ("mad", 0.075), ("pgd", 3 / 255), ("acr", 1 / 255))]
    assert keys == ["nominal", "MAD 0.075", "PGD 3/255", "ACR 1/255"]
    assert [label_of(key) for key in keys] == ["clean", "MAD 0.075", "PGD 3/255", "ACR 1/255"]


def test_an_attack_that_learns_learns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    class Learner:
        def fit(self, agent: Any, env: EnvSpec, seed: int) -> Any:
            fitted.append(seed)
            return self

    monkeypatch.setitem(ATTACKS, "learner", Learner)  # type: ignore[arg-type]
    agent_of("hopper-ppo", 0, "a")
    subject = EvaluatedAgent("a", Path("a"))
    for radius in (0.1, 0.2):
        subject.evaluate(Column("learner", radius), 2)
    assert fitted == [7]


# ----------------------------------------------------------------------------------------------------------- the table


def test_missing_agents_are_empty_cells_and_a_note(played: list[Any]) -> None:
    agent_of("hopper-ppo", 1, "zoo/hopper-ppo")
    result = reproduce(table("mujoco"), Path("results"), episodes=4)
    assert len(result.lines) == 9 + 5  # no extra row without an agent, but those of released files
    assert played == [
        ("zoo/hopper-ppo", "none", 0.0), ("zoo/hopper-ppo", "MAD", 0.0375), ("zoo/hopper-ppo", "MAD", 0.075),
        ("zoo/hopper-ppo", "MAD", 0.15), ("zoo/hopper-ppo", "Critic", 0.075),
    ]  # fmt: skip
    by = {line.row.recipe: line for line in result.lines if line.row.file is None}
    found = [entry.ours and entry.ours.mean for entry in by["hopper-ppo"].entries]
    assert found[:5] + found[8:] == pytest.approx([4100, 3725, 3350, 2600, 3350, 0.25])
    assert found[5:8] == [None, None, None]
    assert "--only hopper-ppo --learned" in str(by["hopper-ppo"].note)
    missing = by["walker2d-radial-ppo"]
    assert [entry.ours for entry in missing.entries] == [None] * 9
    assert "zoo/walker2d-radial-ppo" in str(missing.note)
    assert "radial train walker2d-radial-ppo" in str(missing.note)
    facts = json.loads(Path("results/mujoco.json").read_text())
    cell = next(row for row in facts["rows"] if row["recipe"] == "hopper-ppo")["cells"][2]
    assert (cell["paper"], cell["match"]) == ({"mean": 1524.2, "sem": 146.3}, "above")
    assert len(facts["evaluations"][cell["ours"]["evaluation"]]["returns"]) == 4
    assert facts == result.to_json()


def test_the_released_form_is_shown_where_there_is_an_agent() -> None:
    agent_of("hopper-radial-ppo-released", 0, "zoo/hopper-radial-ppo-released")
    result = reproduce(table("mujoco"), Path("results"), episodes=2)
    ours = [line.row.recipe for line in result.lines if line.row.extra and line.row.file is None]
    assert ours == ["hopper-radial-ppo-released"]
    named = reproduce(table("mujoco"), Path("results"), episodes=2, only=["walker2d-radial-ppo-released"])
    assert [line.row.task for line in named.lines if line.row.extra and not line.row.file] == ["Walker2d", "Hopper"]


def test_released_agents_are_rows_of_their_own_where_their_files_are(played: list[Any], tmp_path: Path) -> None:
    """Evaluated in place under their own name; where a file is missing the row says so."""
    agent_of("hopper-ppo", 3, "hers")
    (tmp_path / "models" / "radial").mkdir(parents=True)

    def read(path: Any, env: Any = None, *rest: Any, **more: Any) -> Any:
        agent = load_agent("hers" if Path(path).suffix == ".model" else path)
        agent.card = replace(agent.card, env=env, source=Path(path).name) if env else agent.card
        return agent

    (tmp_path / "models" / "radial" / "hopper.model").write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "load_agent", read)
        result = reproduce(table("mujoco"), Path("results"), episodes=2, released=tmp_path / "models", learned=True)
    rows = {line.row.agent: line for line in result.lines if line.row.file}
    there = rows["RADIAL-PPO, released agent, re-scored"]
    assert there.agent is not None
    assert (there.agent.name, there.differs, there.agent.changed) == ("hopper.model", (), ())
    assert all(entry.ours for entry in there.entries)
    assert ("hopper.model", "RandomNoise", 0.075) in played
    assert "sa_ppo/ppo-hopper-median.model is not here" in str(rows["PPO, released agent, re-scored"].note)
    assert there.to_json()["file"] == "radial/hopper.model"

    count = len(played)
    elsewhere = reproduce(table("mujoco"), Path("results"), episodes=2)  # where the files are not
    row = next(line for line in elsewhere.lines if line.row.file == "radial/hopper.model")
    assert row == there
    assert len(played) == count
    fewer = reproduce(table("mujoco"), Path("results"), episodes=1)  # nothing is known with so many
    row = next(line for line in fewer.lines if line.row.file == "radial/hopper.model")
    assert [entry.ours for entry in row.entries] == [None] * 9
    assert "radial/hopper.model is not here" in str(row.note)


def test_what_is_finished_is_not_played_again(played: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    agent_of("hopper-ppo", 1, "zoo/hopper-ppo")
    stop, evaluate = RuntimeError("the power went out"), protocol.evaluate

    def third_time(*values: Any, **more: Any) -> Any:
        if len(played) == 2:
            raise stop
        return evaluate(*values, **more)

    monkeypatch.setattr(protocol, "evaluate", third_time)
    with pytest.raises(RuntimeError, match="power"):
        reproduce(table("mujoco"), Path("results"), episodes=4)
    assert len(json.loads(Path("results/mujoco.json").read_text())["evaluations"]) == 2
    monkeypatch.setattr(protocol, "evaluate", evaluate)

    def times(**more: Any) -> int:
        played.clear()
        reproduce(table("mujoco"), Path("results"), **{"episodes": 4, **more})
        return len(played)

    assert times() == 3  # the other three
    assert times() == 0
    assert times(episodes=5) == 5
    assert times() == 0  # those of 4 episodes are still there
    assert times(fresh=True) == 5
    agent_of("hopper-ppo", 2, "zoo/hopper-ppo")
    assert times() == 5  # another agent of the same name


def test_only_some_rows_are_played_and_the_others_show_what_is_known(played: list[Any]) -> None:
    for name in ("hopper-ppo", "walker2d-ppo", "halfcheetah-ppo"):
        agent_of(name, 0, f"zoo/{name}")
    reproduce(table("mujoco"), Path("results"), episodes=2, only=["hopper"])
    result = reproduce(table("mujoco"), Path("results"), episodes=2, only=["walker2d-ppo"])
    assert {name for name, *_ in played} == {"zoo/hopper-ppo", "zoo/walker2d-ppo"}
    by = {line.row.recipe: line for line in result.lines if line.row.file is None}
    assert all(by[name].entries[at].ours for name in ("hopper-ppo", "walker2d-ppo") for at in (0, 1, 2, 3, 4, 8))
    assert "--only halfcheetah-ppo" in str(by["halfcheetah-ppo"].note)
    assert [line.row.recipe for line in result.only(["walker2d-ppo"]).lines] == ["walker2d-ppo"]


def test_two_tables_at_once_keep_each_others_cells() -> None:
    """The second was opened before the first saved anything."""
    agent_of("hopper-ppo", 0, "a")
    subject, path = EvaluatedAgent("a", Path("a")), Path("results/mujoco.json")
    first, second = Book(path, episodes=2), Book(path, episodes=2)
    first.measure(subject, CLEAN)
    second.measure(subject, Column("mad", 0.1))
    assert len(json.loads(path.read_text())["evaluations"]) == 2


@pytest.mark.parametrize("damage", ["{", '{"evaluations": 3}', '{"evaluations": {"x": {"key": {}, "returns": [1]}}}'])
def test_a_damaged_file_of_results_is_refused(damage: str) -> None:
    Path("results").mkdir()
    Path("results/mujoco.json").write_text(damage)
    with pytest.raises(Corrupt, match=r"mujoco\.json"):
        reproduce(table("mujoco"), Path("results"))
    assert Path("results/mujoco.json").read_text() == damage


def test_an_agent_in_the_wrong_place_is_refused() -> None:
    agent_of("walker2d-ppo", 0, "zoo/hopper-ppo")
    with pytest.raises(BadInput, match=r"zoo/hopper-ppo must act in mujoco/Hopper-v4"):
        reproduce(table("mujoco"), Path("results"))
    assert not Path("results").exists()


def test_other_settings_than_the_recipes_are_named() -> None:
    config = {**card_config(recipe("hopper-ppo").config), "policy_rate": 1.0}
    agent_of("hopper-ppo", 0, "zoo/hopper-ppo", recipe={"name": "hopper-ppo", "config": config})
    result = reproduce(table("mujoco"), Path("results"), episodes=2)
    line = next(line for line in result.lines if line.agent)
    assert line.differs[-1] == "It was trained when the recipe had other settings: policy_rate."
    assert line.differs[:-1] == recipe("hopper-ppo").differs


def test_one_agent_is_played_on_its_levels_and_on_all(played: list[Any]) -> None:
    agent_of("fruitbot-ppo", 1, "zoo/fruitbot-ppo")
    result = reproduce(table("procgen"), Path("results"), episodes=2)
    assert len(result.lines) == 12  # no extra row without an agent
    on_train, on_all = (line for line in result.lines if line.agent)
    assert (on_train.row.agent, on_all.row.agent) == ("PPO (train)", "PPO (eval)")
    assert len(played) == 8
    facts = [entry.ours.facts["key"]["env"] for line in (on_train, on_all) for entry in line.entries if entry.ours]
    assert facts[0] == "procgen/fruitbot (distribution_mode=easy, split=train)"
    assert facts[4] == "procgen/fruitbot (split=test)"
    assert [entry.paper.mean for entry in on_all.entries] == [26.09, 22.53, 13.51, 8.51]
    assert result.to_json()["rows"][1]["options"] == {"split": "test"}
    assert "no agent zoo/jumper-ppo" in str(result.lines[-4].note)
    page = markdown(result.report())
    assert page.count("| zoo/fruitbot-ppo ") == 1
    assert "(fruitbot-ppo, fruitbot-ppo)" not in page


def test_sampled_actions_are_another_result(played: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    agent_of("fruitbot-ppo", 1, "zoo/fruitbot-ppo")
    sampled: list[bool] = []
    evaluate = protocol.evaluate
    monkeypatch.setattr(
        protocol, "evaluate", lambda *given, **more: sampled.append(more["stochastic"]) or evaluate(*given, **more)
    )
    reproduce(table("procgen-stochastic"), Path("results"), episodes=2)
    reproduce(table("procgen"), Path("results"), episodes=2)
    assert sampled == [True] * 8 + [False] * 8
    subject = EvaluatedAgent("a", Path("zoo/fruitbot-ppo"))
    assert subject.key(Column("none", 0.0, True), 2) == {**subject.key(CLEAN, 2), "stochastic": True}


def test_agents_of_more_and_more_levels(tmp_path: Path) -> None:
    for name in ("fruitbot-ppo", "fruitbot-10-levels-ppo"):
        agent_of(name, 0, f"zoo/{name}")
    result = reproduce(table("procgen-levels"), Path("results"), episodes=2)
    found = {(line.row.levels, line.row.agent): line for line in result.lines}
    assert sorted({levels for levels, _ in found if levels is not None}) == [10, 50, 100, 200]
    assert found[10, "PPO (train)"].entries[0].ours is not None
    assert found[50, "PPO (eval)"].entries[0].ours is None
    assert [entry.paper.mean for entry in found[10, "PPO (eval)"].entries] == [None] * 4
    assert found[200, "PPO (eval)"].entries[3].paper.mean == 8.51
    assert "PPO (train), 10 levels" in markdown(result.report())


# ------------------------------------------------------------------------------------------------------- several seeds


def test_the_lower_median() -> None:
    assert median_seed({0: 10.0, 1: 30.0, 2: 20.0}) == 2
    assert median_seed({0: 10.0, 1: 30.0, 2: 20.0, 3: 40.0}) == 2  # the second of four
    assert median_seed({5: 1.0}) == 5
    assert median_seed({3: 7.0, 1: 7.0, 2: 7.0}) == 2  # equal scores: by seed
    with pytest.raises(BadInput):
        median_seed({})


def test_of_trained_seeds_the_median_fills_the_table(played: list[Any]) -> None:
    runs = [Path(f"runs/hopper-ppo-seed{seed}") for seed in (0, 1, 2)]
    for seed, run in enumerate(runs):
        agent_of("hopper-ppo", seed, run / "agent")
        assert finished(run, "hopper-ppo", seed)
    result = reproduce(table("mujoco"), Path("results"), only=["hopper-ppo"], runs={"hopper-ppo": runs}, episodes=2)
    agent = next(line.agent for line in result.lines if line.agent)
    assert (agent.name, agent.seed) == ("runs/hopper-ppo-seed1", 1)
    assert [agent.seeds[str(seed)]["MAD 0.075"]["mean"] for seed in (0, 1, 2)] == pytest.approx([3250, 3350, 3450])
    assert len(played) == 5 * 3  # every seed in every column; a certificate is not played here
    facts = json.loads(Path("results/mujoco.json").read_text())
    row = next(row for row in facts["rows"] if row["ours"])
    assert row["ours"]["seeds"].keys() == {"0", "1", "2"}


def test_every_seed_in_every_column_where_a_table_asks(played: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gwc", "acr"):
        monkeypatch.setitem(protocol.CERTIFICATES, name, (certified(name, [1.0, 0.5]), {"bound": "ibp"}))
    runs = [Path(f"run{seed}") for seed in (0, 1, 2)]
    for seed, run in enumerate(runs):
        agent_of("cartpole-radial-dqn", seed, run / "agent")
    whole = table("cartpole-dqn")
    result = reproduce(whole, Path("results"), runs={"cartpole-radial-dqn": runs}, episodes=2)
    line = next(line for line in result.lines if line.agent)
    assert line.agent is not None
    assert (line.agent.seed, list(line.agent.seeds["0"])) == (1, [column.key for column in whole.columns])
    assert {attack for _, attack, _ in played} == {"none", "PGD", "StrongPGD"}
    assert [entry.match for entry in line.entries] == [None] * 5
    assert json.loads(Path("results/cartpole-dqn.json").read_text())["rows"][0]["cells"][0]["paper"]["mean"] is None


def test_q_agents_are_compared_under_pgd_and_with_the_episodes_of_their_paper() -> None:
    assert selection_column(recipe("hopper-ppo")) == Column("mad", 0.075)
    assert selection_column(recipe("pong-dqn")) == Column("pgd", 1 / 255)
    assert selection_column(recipe("fruitbot-radial-ppo")) == Column("pgd-procgen", 1 / 255)
    agent_of("pong-dqn", 0, "run/agent")
    results = add_to_zoo([Path("run")])["results"]
    assert list(results)[:2] == ["nominal", "PGD 1/255"]
    assert results["protocol"]["episodes"] == 20
    assert table("atari").episodes == 20


def test_large_networks_are_scored_and_kept_in_half_precision() -> None:
    agent_of("pong-dqn", 0, "run/agent")
    card = load_agent("run").card
    agent = QAgent((1, 84, 84), 3)
    agent.card = card
    save(agent, "run/agent")
    add_to_zoo([Path("run")])
    assert Path("zoo/pong-dqn/weights.safetensors").stat().st_size < 7_500_000
    run, kept = EvaluatedAgent("run", Path("run")), EvaluatedAgent("zoo", Path("zoo/pong-dqn"))
    assert run.sha256 != kept.sha256
    run.round_to(torch.float16)
    assert run.sha256 == kept.sha256


def test_seeds_may_start_from_different_agents() -> None:
    made_by = {"name": "pong-radial-dqn", "config": card_config(recipe("pong-radial-dqn").config)}
    for seed in (0, 1):
        agent_of("pong-radial-dqn", seed, f"run{seed}/agent", recipe={**made_by, "init": f"{seed}" * 16})
        assert finished(Path(f"run{seed}"), "pong-radial-dqn", seed)
    assert add_to_zoo([Path("run0"), Path("run1")], episodes=2)["seed"] == 0
    assert "--init runs/pong-dqn-seed0" in how_to_train(recipe("pong-radial-dqn"))


def test_a_setting_that_was_unset_since_is_named_once() -> None:
    """The zoo's agent was trained when the recipe said uniform replay by α = 0."""
    today = card_config(recipe("pong-small-radial-dqn").config)
    before = {**today, "prioritised": {"type": "Prioritised", "alpha": 0.0, "offset": 1e-5}, "batch": 31}
    assert changed_settings(today, before) == ("batch", "prioritised")
    assert changed_settings(today, {**today, "td": {**today["td"], "double": not today["td"]["double"]}}) == (
        "td.double",
    )
    assert changed_settings(today, today) == ()
    agent_of("pong-small-radial-dqn", 0, "zoo/pong-small-radial-dqn", recipe={"name": "x", "config": before})
    result = reproduce(table("atari"), Path("results"), episodes=1, only=["freeway-dqn"])
    line = next(line for line in result.lines if line.agent)
    assert line.differs[-1].endswith("settings: batch, prioritised.")


def test_a_setting_that_is_younger_than_an_agent_is_no_deviation() -> None:
    known = card_config(recipe("hopper-sa-ppo-convex").config)
    known["objective"] = {key: value for key, value in known["objective"].items() if key != "anchored"}
    older = {"name": "hopper-sa-ppo-convex", "config": known}
    agent_of("hopper-sa-ppo-convex", 0, "zoo/hopper-sa-ppo-convex", recipe=older)
    line = next(line for line in reproduce(table("mujoco"), Path("results"), episodes=1).lines if line.agent)
    assert line.agent is not None
    assert line.agent.changed == ()


def test_a_run_that_is_older_than_a_setting_is_still_finished() -> None:
    known = card_config(recipe("pong-dqn").config)
    older = {key: value for key, value in known.items() if key != "exploration_length"}
    agent_of("pong-dqn", 0, "run/agent", recipe={"name": "pong-dqn", "config": older})
    assert finished(Path("run"), "pong-dqn", 0)
    agent_of("pong-dqn", 0, "run/agent", recipe={"name": "pong-dqn", "config": older | {"gone": 1}})
    with pytest.raises(BadInput, match="holds another run"):
        finished(Path("run"), "pong-dqn", 0)


def test_a_run_of_something_else_is_not_taken_for_finished() -> None:
    assert not finished(Path("runs/none"), "hopper-ppo", 0)
    agent_of("hopper-ppo", 0, "run/agent")
    for name, seed in (("hopper-ppo", 1), ("walker2d-ppo", 0)):
        with pytest.raises(BadInput, match="run holds another run"):
            finished(Path("run"), name, seed)


def test_the_median_joins_the_zoo_with_all_scores_on_its_card() -> None:
    runs = [Path(f"run{seed}") for seed in (4, 2, 3, 5)]
    for run in runs:
        agent_of("hopper-ppo", int(run.name[3:]), run / "agent")
    added = add_to_zoo(runs, episodes=4)
    assert (added["run"], added["name"]) == ("run3", "hopper-ppo")
    card = load_agent("zoo/hopper-ppo").card
    assert (card.seed, card.commit, card.recipe["name"]) == (3, "a" * 40, "hopper-ppo")
    assert card.results["nominal"] == {"mean": 4300.0, "sem": 5.0}
    assert card.results["MAD 0.075"]["mean"] == pytest.approx(3550)
    assert sorted(card.results["seeds"]) == ["2", "3", "4", "5"]
    asked = {"nominal", "MAD 0.0375", "MAD 0.075", "MAD 0.15", "RS 0.075", "reach 0.075"}
    assert set(card.results["seeds"]["2"]) == asked  # the table's columns, less the adversaries that learn
    assert card.results["protocol"]["episodes"] == 4
    line = next(line for line in reproduce(table("mujoco"), Path("results"), episodes=2).lines if line.agent)
    assert line.agent is not None
    assert len(line.agent.seeds) == 4
    assert line.agent.changed == ()
    with pytest.raises(BadInput, match="--replace"):
        add_to_zoo(runs, episodes=4)
    assert add_to_zoo(runs[:1], episodes=4, replace=True)["seed"] == 4


def test_runs_that_do_not_belong_together() -> None:
    agent_of("hopper-ppo", 0, "a")
    agent_of("hopper-ppo", 0, "b")
    agent_of("walker2d-ppo", 1, "c")
    agent_of("hopper-ppo", 2, "d", steps=5)
    agent_of("hopper-ppo", 3, "e", recipe={})
    for runs, says in ((["a", "b"], "both have 0"), (["a", "c"], "differ"), (["a", "d"], "differ"), (["e"], "recipe")):
        with pytest.raises(BadInput, match=says):
            add_to_zoo([Path(run) for run in runs])
    for name in ("../out", "", ".hidden", "a b"):
        with pytest.raises(BadInput, match="name must be"):
            add_to_zoo([Path("a")], name)
    assert not Path("zoo").exists()
