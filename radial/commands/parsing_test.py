"""What tyro refuses is one line, exit code 2, and names what was wrong."""

import pytest

from radial.cli import main
from radial.commands.parsing import later, one_line

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
        (["train"], "radial train"),
        (["nonsense"], "train, "),
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
