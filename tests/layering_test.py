"""Who may import whom, and one meaning per name. Reads every import with ast, so an arrow cannot hide in a function.

The table is the one in docs/architecture.md.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "radial"
PAGE = ROOT / "docs" / "architecture.md"
EVERYTHING = "everything"
ALONE = {"version", "__init__", "__main__"}  # files of the package itself
EXTRA: dict[str, set[str]] = {"attacks/learned": {"training", "runs", "evaluation"}}  # adversaries that are trained
IN_CORE = {"abc", "torch", "math", "dataclasses", "enum", "typing", "collections", "numbers", "difflib", "functools"}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_test.py"))


def import_table(text: str) -> dict[str, set[str] | None]:
    """Rooms and the rooms they may import, from the page; None: all."""
    lines = text.partition("## Who may import whom")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    found: dict[str, set[str] | None] = {}
    for rooms, allowed, *_ in cells[1:]:
        for room in rooms.split(", "):
            found[room] = None if allowed == EVERYTHING else {name for name in allowed.split(", ") if name != "–"}
    return found


ALLOWED = import_table(PAGE.read_text())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from radial import x` and `from radial.bounds import layers` name a room or a module of one
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def wrong_arrows(here: str, name: str, found: set[str]) -> list[str]:
    rooms = {parts[1] for parts in (module.split(".") for module in found) if parts[0] == "radial" and len(parts) > 1}
    mine = ALLOWED[here]
    extra = EXTRA.get(str(Path(name).parent), set())
    allowed = rooms if mine is None else mine | {here} | extra
    return [f"{name} imports {other}" for other in sorted(rooms - allowed)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_the_right_way(path: Path) -> None:
    here = room_of(path)
    if here in ALONE:
        return
    assert here in ALLOWED, f"a new room '{here}' needs a row in {PAGE.name}"
    assert wrong_arrows(here, str(path.relative_to(PACKAGE)), imports(path)) == []


def test_the_check_would_notice() -> None:
    assert wrong_arrows("core", "core/x.py", {"radial.bounds.methods"}) == ["core/x.py imports bounds"]
    assert wrong_arrows("bounds", "bounds/x.py", {"radial.core.ball", "torch"}) == []
    assert wrong_arrows("attacks", "attacks/gradient.py", {"radial.training.ppo"}) != []
    assert wrong_arrows("attacks", "attacks/learned/world.py", {"radial.training.native"}) == []
    assert wrong_arrows("training", "training/x.py", {"radial.attacks.gradient"}) != []
    assert wrong_arrows("commands", "commands/x.py", {"radial.training.ppo"}) == []


def test_every_room_of_the_table_is_there() -> None:
    rooms = {room_of(path) for path in SOURCES} - ALONE
    assert rooms == set(ALLOWED)


def test_core_knows_torch_and_nothing_else() -> None:
    for path in SOURCES:
        if room_of(path) == "core":
            outside = {module.split(".")[0] for module in imports(path)} - {"radial"}
            assert outside <= IN_CORE, f"{path.name} imports {outside - IN_CORE}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_small_enough_to_hold_in_mind(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_a_gradient_step_of_radial_dqn_reads_in_four_short_files() -> None:
    step = ("training/dqn.py", "training/update.py", "objectives/q_learning.py", "losses/action_values.py")
    assert all(name in PAGE.read_text() for name in step)
    assert sum(len((PACKAGE / name).read_text().splitlines()) for name in step) <= 850


# ------------------------------------------------------------------------------------------------ one name, one meaning


def public_names(source: str) -> set[str]:
    """Classes, functions and constants of a module that do not begin with an underscore."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def shared(of: dict[str, set[str]]) -> dict[str, list[str]]:
    """Names that stand in several rooms. of: the names of each room."""
    rooms = defaultdict(set)
    for room, names in of.items():
        for name in names:
            rooms[name].add(room)
    return {name: sorted(found) for name, found in rooms.items() if len(found) > 1}


def in_rooms(names_of: object) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        if room_of(path) not in {*ALONE, "cli", "commands"}:  # a command is called as what it calls
            found[room_of(path)] |= names_of(path)  # type: ignore[operator]
    return found


def test_a_public_name_stands_in_one_room() -> None:
    assert shared(in_rooms(lambda path: public_names(path.read_text()))) == {}


def test_a_module_is_called_as_no_other_room_calls_one() -> None:
    assert shared(in_rooms(lambda path: {path.stem} - {"__init__"})) == {}


def test_the_names_would_be_noticed() -> None:
    names = public_names("A = 1\nclass B: ...\ndef c(): ...\n_d = 2\nE: int = 3\n")
    assert names == {"A", "B", "c", "E"}
    assert shared({"core": {"A", "B"}, "envs": {"B"}}) == {"B": ["core", "envs"]}
