"""The package as a newcomer meets it: it imports, quickly; its commands work; its documents tell the truth."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import radial as rr
from radial import cli

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORT_NAMES = {
    "stable-baselines3": "stable_baselines3",
    "ale-py": "ale_py",
    "pytest-xdist": "xdist",
    "myst-parser": "myst_parser",
}


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[\[<>=! ]", requirement)[0] for requirement in requirements]


def test_every_declared_dependency_imports() -> None:
    """Resolving is not importing: a dependency can install and still fail at import."""
    declared = names(PROJECT["dependencies"]) + names(PROJECT["optional-dependencies"]["dev"])
    declared += names(PROJECT["optional-dependencies"]["report"])
    for name in declared:
        if name not in ("radial-rl", "ruff", "mypy"):
            importlib.import_module(IMPORT_NAMES.get(name, name))


def test_extras_are_complete() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {"atari", "mujoco", "envpool", "procgen", "report", "sb3", "onnx", "hub", "all", "dev"} == set(extras)
    assert "mujoco>=3.3,<4" in extras["mujoco"]
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_import_brings_in_nothing_heavy() -> None:
    """torch and gymnasium, and no more: the front door must open in a moment."""
    heavy = ("envpool", "mujoco", "matplotlib", "tyro", "scipy", "ray", "tensorboard")
    code = f"import sys, radial; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_names_exist_and_are_documented() -> None:
    for name in rr.__all__:
        assert getattr(rr, name) is not None
        if name not in ("METHODS", "__version__"):
            assert getattr(rr, name).__doc__


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "radial", *arguments], capture_output=True, text=True, timeout=120)


def test_help_and_version() -> None:
    assert "bench" in run("--help").stdout
    assert run("version").stdout.strip() == rr.__version__
    assert json.loads(run("version", "--json").stdout) == {"radial": rr.__version__}
    assert "--json" in run("bench", "bounds", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bench", "bounds", "--threads", "0"), "threads must be ≥ 1, got 0"),
        (("bench", "bounds", "--networks", "resnet"), "networks must be among nature-dueling"),
        (("bench", "bounds", "--device", "quantum"), "device must be cpu or cuda"),
        (("bench", "bounds", "--nope"), "--nope"),
        (("bench",), "bounds"),
        ((), "bench"),
    ],
)
def test_bad_command_lines_end_with_code_2(arguments: tuple[str, ...], says: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_bench_bounds_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["bench", "bounds", "--json", "--networks", "mlp-64x64", "--threads", "1"])
    report = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in report["rows"]}
    assert set(rows) == {"plain", "ibp", "crown-ibp", "crown", "sound ibp"}
    assert rows["plain"]["forward_ratio"] == rows["plain"]["train_ratio"] == 1.0
    assert all(row["forward_ms"] > 0 for row in rows.values())
    assert report["machine"]["threads"] == 1


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_in_documents_run(path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, path.name, "exec"), namespace)


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_files_named_in_documents_exist(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"\]\(((?!http|#|mailto)[^)#]+)\)", text):
        assert (path.parent / name).exists(), f"{path.name} links to {name}"
    for name in re.findall(r"`((?:radial|tests|examples|benchmarks|docs)/[\w/.-]+\.\w+)`", text):
        assert (ROOT / name).exists() or (ROOT / "radial" / name).exists(), f"{path.name} names {name}"


def test_readme_names_its_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
