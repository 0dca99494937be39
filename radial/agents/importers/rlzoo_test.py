"""Files that RL Baselines3 Zoo leaves beside an agent: read as data, whatever objects they name."""

from contextlib import suppress
from pathlib import Path

import pytest

from radial.agents.importers.rlzoo import ZooSettings, check_wrappers, read_settings, statistics_of, trained
from radial.core.data import BadInput

# as rl_zoo3 writes them, with yaml.dump of an OrderedDict
CONFIG = """!!python/object/apply:collections.OrderedDict
- - - env_wrapper
    - sb3_contrib.common.wrappers.TimeFeatureWrapper
  - - frame_stack
    - 4
  - - n_timesteps
    - 100000.0
  - - normalize
    - {normalize}
  - - policy
    - MlpPolicy
"""
ARGUMENTS = """!!python/object/apply:collections.OrderedDict
- - - algo
    - ppo
  - - env
    - Pendulum-v1
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The place of a zip, with settings in a folder named by the env."""
    (tmp_path / "Pendulum-v1").mkdir()
    (tmp_path / "Pendulum-v1/config.yml").write_text(CONFIG.format(normalize="true"))
    (tmp_path / "Pendulum-v1/args.yml").write_text(ARGUMENTS)
    return tmp_path / "Pendulum-v1.zip"


def test_settings_of_the_zoo(agent: Path) -> None:
    told = trained(agent)
    assert (told.normalized, told.stack, told.env) == (True, 4, "Pendulum-v1")
    assert told.wrappers == ("sb3_contrib.common.wrappers.TimeFeatureWrapper",)
    with pytest.raises(BadInput, match=r"trained with TimeFeatureWrapper, which is not supported: rr\.wrap"):
        check_wrappers(agent, told, pictures=False)
    with pytest.raises(BadInput, match="frame_stack 4 on vectors"):
        check_wrappers(agent, ZooSettings(stack=4), pictures=False)
    assert check_wrappers(agent, ZooSettings(stack=4, wrappers=("x.AtariWrapper", "y.Odd")), pictures=True) == [
        "trained with Odd, which is not applied here"
    ]


def test_a_file_of_that_name_that_is_no_such_is_noted(agent: Path) -> None:
    (agent.parent / "config.yml").write_text("- 1\n")  # another program's
    told = trained(agent)
    assert told.normalized  # the next one is
    assert "config.yml must hold a mapping" in told.unread[0]


@pytest.mark.parametrize(
    ("normalize", "observations"),
    [
        ("true", True), ("false", False), ("dict(norm_obs=False, norm_reward=True)", False),
        ("\"{'norm_obs': True}\"", True), ("\"{'norm_obs': False, 'norm_reward': True}\"", False),
        ("norm_obs: false", False),
    ],
)  # fmt: skip
def test_what_was_normalised(agent: Path, normalize: str, observations: bool) -> None:
    (agent.parent / "Pendulum-v1/config.yml").write_text(CONFIG.format(normalize=normalize))
    assert trained(agent).normalized is observations


def test_statistics_beside_the_zip_or_in_the_folder_of_the_env(agent: Path) -> None:
    assert statistics_of(agent) is None
    inside = agent.parent / "Pendulum-v1/vecnormalize.pkl"
    inside.write_bytes(b"")
    for name in ("Pendulum-v1.zip", "best_model.zip", "ppo-Pendulum-v1.zip"):
        assert statistics_of(agent.with_name(name)) == inside
    agent.with_name("vec_normalize.pkl").write_bytes(b"")
    assert statistics_of(agent) == agent.with_name("vec_normalize.pkl")


HOSTILE = (
    "!!python/object/apply:os.system [touch {marker}]",
    "!!python/object/new:subprocess.Popen [[touch, {marker}]]",
    "a: !!python/name:os.system",
    'a: !!python/object/apply:eval [\'open("{marker}", "w")\']',
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_is_constructed(tmp_path: Path, text: str) -> None:
    marker, file = tmp_path / "marker", tmp_path / "config.yml"
    file.write_text(text.replace("{marker}", str(marker)))
    with suppress(BadInput):
        read_settings(file)
    assert not marker.exists()


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))


@pytest.mark.parametrize("text", [BOMB, "[" * 5_000, "a: [1", "- 1\n- 2\n", "x", "\x00", "&a [*a]", ""])
def test_damaged_files_are_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"config\.yml (is not readable YAML|must hold a mapping)") as refused:
        read_settings(file)
    assert len(str(refused.value).splitlines()) == 1
