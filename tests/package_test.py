"""The package as a newcomer meets it: it imports, quickly; its commands work; its documents tell the truth."""

import ast
import importlib
import json
import os
import re
import shutil
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
    "pyyaml": "yaml",
    "pillow": "PIL",
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
    known = "atari mujoco box2d envpool procgen report sb3 onnx wandb ray hub video all dev"
    assert set(known.split()) == set(extras)
    assert "mujoco>=3.3,<4" in extras["mujoco"]
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_import_brings_in_nothing_heavy() -> None:
    """torch and gymnasium, and no more: the front door must open in a moment."""
    heavy = ("envpool", "mujoco", "matplotlib", "tyro", "scipy", "ray", "tensorboard")
    code = f"import sys, radial; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments", [["version"], ["--help"], ["train", "--help"], ["trian"], ["train", "no-recipe"], ["audit", "no-file"]]
)
def test_nobody_waits_for_torch_to_be_told_little(arguments: list[str]) -> None:
    code = f"""
import sys
from radial.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_names_are_imported_late_and_all_of_them() -> None:
    """The imports that a type checker sees and the table of late imports name the same things in the same places."""
    tree = ast.parse((ROOT / "radial" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }  # fmt: skip
    late = {name: f"{module}.{name}" for module, names in rr._HOMES.items() for name in names.split()}
    assert seen == late | rr._RENAMED
    assert set(rr.__all__) == {*seen, "__version__"}
    with pytest.raises(AttributeError, match="nonsense"):
        rr.nonsense  # noqa: B018


def test_the_wheel_brings_the_zoo(tmp_path: Path) -> None:
    for name in ("radial", "zoo"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    installed = tmp_path / "installed"
    subprocess.run([*pip, "--no-build-isolation", "--target", installed, tmp_path / "source"], check=True)
    here = {name: value for name, value in os.environ.items() if name != "RADIAL_ZOO"} | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "radial", "evaluate", "cartpole-radial-dqn", "--episodes", "1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean"] == 500.0
    assert (installed / "radial" / "_zoo" / "hopper-radial-ppo" / "card.json").is_file()


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
