"""Who may import whom. Reads every import with ast, so an arrow against the table cannot hide inside a function."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "radial"

ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "core": set(),
    "bounds": {"core"},
    "losses": {"core"},
    "agents": {"core"},
    "envs": {"core"},
    "runs": {"core"},
    "objectives": {"core", "bounds", "losses"},
    "training": {"core", "bounds", "losses", "objectives", "agents", "envs", "runs"},
    "attacks": {"core", "bounds", "losses", "agents", "envs"},
    "evaluation": {"core", "bounds", "agents", "envs"},
    "recipes": {"core", "agents", "objectives", "training", "attacks", "envs", "runs"},
    "workflows": {
        "core",
        "bounds",
        "agents",
        "envs",
        "runs",
        "objectives",
        "training",
        "attacks",
        "evaluation",
        "recipes",
    },
    "reports": {"core"},
}
OPEN = {"cli", "commands", "__init__", "__main__"}  # may import everything
EXTRA: dict[str, set[str]] = {
    "attacks/learned.py": {"training"},
    "runs/config.py": {"objectives", "training"},  # to be mended
}
HEAVY_IN_CORE = {"abc", "torch", "math", "dataclasses", "enum", "typing", "collections", "numbers", "difflib"}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_test.py"))


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


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
    allowed = ALLOWED[here] | {here} | EXTRA.get(name, set())
    return [f"{name} imports {other}" for other in sorted(rooms - allowed)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_the_right_way(path: Path) -> None:
    here = room(path)
    if here in OPEN:
        return
    assert here in ALLOWED, f"a new room '{here}' needs a row in the table"
    assert wrong_arrows(here, str(path.relative_to(PACKAGE)), imports(path)) == []


def test_the_check_would_notice() -> None:
    assert wrong_arrows("core", "core/x.py", {"radial.bounds.methods"}) == ["core/x.py imports bounds"]
    assert wrong_arrows("bounds", "bounds/x.py", {"radial.core.ball", "torch"}) == []
    assert wrong_arrows("attacks", "attacks/learned.py", {"radial.training.ppo"}) == []


def test_core_knows_torch_and_nothing_else() -> None:
    for path in SOURCES:
        if room(path) == "core":
            outside = {module.split(".")[0] for module in imports(path)} - {"radial"}
            assert outside <= HEAVY_IN_CORE, f"{path.name} imports {outside - HEAVY_IN_CORE}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_small_enough_to_hold_in_mind(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
