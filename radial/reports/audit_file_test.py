"""An audit.json made to do harm is refused in one line; an honest one passes, and becomes a page."""

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radial.commands.report import report
from radial.core.data import BadInput
from radial.reports.audit_file import check_audit
from radial.reports.page import LARGEST_PAGE, render
from radial.reports.page_test import audited

Facts = dict[str, Any]


@pytest.mark.parametrize("frames", [False, True])
def test_an_honest_audit_passes(frames: bool) -> None:
    check_audit(audited(frames=frames))
    check_audit(audited() | {"trace": None})


def put(*path: str | int, value: Any) -> Callable[[Facts], None]:
    def change(facts: Facts) -> None:
        at: Any = facts
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


HOSTILE: dict[str, Callable[[Facts], None]] = {
    "6 MB note": put("notes", value=["x" * 6_000_000]),
    "many notes": put("notes", value=["x"] * 100_000),
    "notes text": put("notes", value="x"),
    "verdict list": put("verdict", value=["x"]),
    "verdict long": put("verdict", value="x" * 6_000_000),
    "agent object": put("agent", value={"a": 1}),
    "engine list": put("engine", value=[]),
    "engine long": put("engine", value={"a": "x" * 6_000_000}),
    "left out": put("left_out", value={"pgd": 3}),
    "mean text": put("nominal", "mean", value="6"),
    "mean huge": put("nominal", "mean", value=1e300),
    "levels many": put("levels", value=[audited()["levels"][0]] * 1_000),
    "radius text": put("levels", 0, "radius", value="0.1"),
    "starts text": put("levels", 0, "bracket", "starts", value="<b>"),
    "format true": put("format", value=True),
    "picture remote": put("trace", "pictures", "clean", "images", 0, value="https://example.org/a.png"),
    "picture svg": put("trace", "pictures", "clean", "images", 0, value="data:image/svg+xml;base64,AAAA"),
    "picture quote": put("trace", "pictures", "clean", "images", 0, value='data:image/png;base64,AA" onerror="x'),
    "pictures unordered": put("trace", "pictures", "attacked", "at", value=[0, 4, 2]),
    "pictures ragged": put("trace", "pictures", "attacked", "at", value=[0, 2]),
    "pictures empty": put("trace", "pictures", "attacked", value={"at": [], "images": []}),
    "pictures text": put("trace", "pictures", value="x"),
    "pictures many": put("trace", "pictures", "clean", "at", value=list(range(100_000))),
    "trace text": put("trace", value="abc"),
    "trace reward text": put("trace", "reward", value="aaaa"),
    "trace nominal reward text": put("trace", "nominal", "reward", value="a" * 6),
    "trace nominal list": put("trace", "nominal", value=[]),
    "trace verdict": put("trace", "verdicts", value=["<img>"] * 4),
    "trace ragged": put("trace", "scores", value=[[1.0, 2.0]]),
    "trace score text": put("trace", "scores", value=[["1", "2"]] * 4),
    "trace action text": put("trace", "action", value=["0"] * 4),
    "trace action unnamed": put("trace", "action", value=[7] * 4),
    "trace first changed": put("trace", "first_changed", value="2"),
    "trace radius": put("trace", "radius", value=None),
    "trace empty": put("trace", "reward", value=[]),
    "trace features": put("trace", "features", value="angle"),
    "trace pictures": put("trace", "picture", value=True),
    "trace remote picture": lambda facts: facts.update(
        trace=audited(frames=True)["trace"] | {"frames": ["http://evil/a.png"] * 4}
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_audits_are_one_line(case: str, tmp_path: Path) -> None:
    facts = copy.deepcopy(audited())
    HOSTILE[case](facts)
    (tmp_path / "audit.json").write_text(json.dumps(facts))
    begun = time.monotonic()
    with pytest.raises(BadInput, match=r"audit\.json is not an audit of this version") as caught:
        report((str(tmp_path),), out=tmp_path / "page")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert time.monotonic() - begun < 5


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(json.dumps(audited() | {"notes": ["\ud800"]}))
    with pytest.raises(BadInput, match="surrogate"):
        report((str(tmp_path),), out=tmp_path / "page")


def test_the_writer_ends_where_no_episode_can_be_shortened() -> None:
    facts = audited()
    facts["notes"] = ["x" * (LARGEST_PAGE + 1_000_000)]
    facts["trace"]["nominal"]["reward"] = "a" * 6  # not a list: it is never shortened
    assert "It is not robust." in render([facts])
    facts = audited()
    facts["trace"]["features"] = ["x" * (LARGEST_PAGE + 1)]
    facts["trace"]["nominal"]["reward"] = "a" * 6
    assert "It is not robust." in render([facts])
