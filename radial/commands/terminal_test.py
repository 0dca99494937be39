"""Text from files reaches the terminal without its escapes."""

import json
import warnings

import pytest
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, warnings_said

EVIL = "agent\x1b[2J\x1b]0;title\x07\x9b31m\u202e"


def test_nothing_from_a_file_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    with warnings_said():
        warnings.warn(EVIL, UserWarning, stacklevel=1)
    table = Table("name")
    table.add_row(EVIL)
    print_table(table)
    print_json({"name": EVIL})
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "agent" in text
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_json_still_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({EVIL: [EVIL, "ε"]})
    assert json.loads(capsys.readouterr().out) == {EVIL: [EVIL, "ε"]}
