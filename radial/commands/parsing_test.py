"""What tyro refuses is one line, exit code 2, and names what was wrong."""

from pathlib import Path

import pytest

from radial.cli import main
from radial.commands.parsing import later, one_line, whole_number

BOX = """╭─ Value error ──────────────────────────────────╮
│ Error parsing --steps: no type matching INT     │
│ could be instantiated from ['nan'].             │
│                                                 │
│ Got errors:                                     │
│ - <class 'int'>: invalid literal                │
│ ─────────────────────────────────────────────── │
│ For full helptext, see radial --help            │
╰─────────────────────────────────────────────────╯
"""


def test_a_box_becomes_a_line() -> None:
    said = "error parsing --steps: no type matching INT could be instantiated from ['nan']; see radial --help"
    assert one_line(BOX) == said


def test_a_bound_command_runs_when_called() -> None:
    calls: list[int] = []

    def command(n: int) -> None:
        calls.append(n)

    run = later(command)(3)
    assert calls == []
    run()
    assert calls == [3]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "cartpole-ppo", "--steps", "nan"], "--steps"),
        (["train", "cartpole-ppo", "--seed", "abc"], "--seed"),
        (["train", "cartpole-ppo", "--step", "3"], "--steps"),
        (["nonsense"], "train, "),
        (["evalute", "x"], "did you mean 'evaluate'"),
        (["zoo", "lst"], "did you mean 'list'"),
        (["train", "cartpole-ppo", "--steps", "1.5"], "--steps"),
        (["train", "cartpole-ppo", "--steps", "1e400"], "--steps"),
        (["train"], "--algorithm"),
        (["train", "cartpole-ppo", "--algorithm", "dqn"], "--algorithm"),
        (["train", "cartpole-ppo", "--track", "wandbb"], "did you mean 'wandb'"),
        (["train", "cartpole-ppo", "--import", "no_such_module"], "no_such_module"),
        (["train", "cartpole-ppo", "--import", "a:b"], "--import takes"),
        (["zoo"], "list"),
        (["evaluate", "x", "--episodes", "1.5"], "--episodes"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert named in said.err
    assert not set(said.err) & set("│╭╮╰╯─")


def test_help_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    assert "--num-envs" in capsys.readouterr().out


def test_whole_numbers_as_people_write_them() -> None:
    assert [whole_number(text) for text in ("7", "1e5", "1_000_000", "2.5e6", "-3")] == [
        7,
        100_000,
        1_000_000,
        2_500_000,
        -3,
    ]
    for text in ("1.5", "nan", "inf", "1e-3", "", "1e99", "ten"):
        with pytest.raises(ValueError):
            whole_number(text)


def test_the_nearest_file_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "hopper.zip").touch()
    with pytest.raises(SystemExit):
        main(["evaluate", "runs/hoper.zip"])
    assert "did you mean 'runs/hopper.zip'?" in capsys.readouterr().err
