"""The stages of `make proof`: each runs proofs of `tests/` unit by unit, with seeds derived from the unit's number.

How stages are run, resumed and reported is in `proof`.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # of children

import torch  # noqa: E402

MESSAGE = 300  # characters of a violation


class NotInstalled(Exception):
    """A stage needs a package that is not here; the report says so."""


@dataclass(frozen=True)
class Stage:
    """One proof: `run(index)` checks the unit of that number and returns how many instances it held.

    goal         instances for a release        unit  instances counted for a unit that fails
    independent  units are random draws, so that 0 failures in n of them bound the rate by 3/n; False: a list of cases
    every        and so are their instances, each drawn for itself
    """

    what: str
    goal: Callable[[], int]
    run: Callable[[int], int]
    unit: int = 1
    independent: bool = True
    every: bool = False


# --------------------------------------------------------------------------------------------------- the bounds, §4


def _kind(index: int) -> tuple[str, int]:
    from proofs import every_kind

    kinds = every_kind()
    return kinds[index % len(kinds)], 100_000 + index // len(kinds)


def random_points(index: int) -> int:
    """Points in a random ball lie inside all bounds of a random network."""
    from proofs import check_sampling

    return check_sampling(*_kind(index), points=125, batch=16)


def attained(index: int) -> int:
    """Bounds that are reached at a corner hold there."""
    from proofs import check_attained

    check_attained(index)
    return 1


def pgd(index: int) -> int:
    """PGD does not cross a bound."""
    from proofs import check_attacks

    return check_attacks(*_kind(index), states=50, steps=50, restarts=20)


def exact(index: int) -> int:
    """No bound is tighter than the exact one."""
    from exact_test import check_exact

    check_exact(10_000 + index)
    return 1


def verdicts(index: int) -> int:
    """No verdict of ours disagrees with the exact solver's."""
    from second_opinion_test import check_verdicts

    return check_verdicts(10_000 + index)["instances"]


def lirpa(index: int) -> int:
    """auto_LiRPA gives the same bounds, in float64 and float32."""
    from oracle_test import check_agreement, load_lirpa

    try:
        module = load_lirpa()
    except ImportError:
        raise NotInstalled("auto_LiRPA is not installed: `make test-oracle` installs it") from None
    for dtype in (torch.float64, torch.float32):
        check_agreement(module, 1_000 + index, dtype)
    return 1


def planted(index: int) -> int:
    """A hidden counterexample is never certified away."""
    from exact_test import check_planted

    check_planted(1_000 * (index // 60 + 1) + index % 60)  # 60 of each of 3 seeds
    return 1


@cache
def _mutants() -> list[str]:
    from mutation_test import MUTANTS

    return list(MUTANTS)


def mutation(index: int) -> int:
    """A bug planted in the bounds is noticed."""
    from mutation_test import check_mutant

    check_mutant(_mutants()[index])
    return 1


def nested(index: int) -> int:
    """A larger ball has larger bounds."""
    from proofs import check_nested

    return check_nested(*_kind(index))


def gradient(index: int) -> int:
    """The gradient of a bound is that of finite differences."""
    from proofs import check_gradient

    check_gradient(*_kind(index))
    return 1


# -------------------------------------------------------------------------------------- files and settings, §5


def fuzz(index: int) -> int:
    """Any value anywhere in a config, any text after --set: a config, or one line."""
    import hypothesis
    from hypothesis import HealthCheck, given, settings

    from radial.recipes.recipe_test import CHANGES, TEXTS, check_changed_config, check_set_text

    count = 0

    def counted(check: Callable[..., None]) -> Callable[..., None]:
        def one(drawn: tuple[Any, ...]) -> None:
            nonlocal count
            count += 1
            check(*drawn)

        return one

    rules = settings(max_examples=250, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    for check, drawn in ((check_changed_config, CHANGES), (check_set_text, (TEXTS,))):
        test = given(hypothesis.strategies.tuples(*drawn))(counted(check))
        hypothesis.seed(index)(rules(test))()
    return count


def damaged(index: int) -> int:
    """Damaged cards, weights, manifests and tensors: read whole, with finite numbers, or refused in one line."""
    from damage import own_files

    return own_files(2_500, seed=1_000 + index)


def damaged_imports(index: int) -> int:
    """Damaged files of the papers, of Stable-Baselines3 and of CleanRL, likewise."""
    from damage import imports

    return imports(500, seed=1_000 + index)


# ----------------------------------------------------------------------------------------- faults in training, §6


def kills(algorithm: str, backend: str, index: int) -> int:
    """A run that is killed again and again ends as one that was left alone, bit for bit."""
    from kills import kill_and_compare, missing

    if (package := missing(backend)) is not None:
        raise NotInstalled(f"{package} is not installed")
    return kill_and_compare(algorithm, backend, seed=index)


def injection(index: int) -> int:
    """NaN or infinity at one point stops the training before anything is saved."""
    import injections

    with tempfile.TemporaryDirectory() as folder:
        injections.check_injection(*injections.CASES[index], Path(folder) / "run")
    return 1


# ------------------------------------------------------------------------------------------ lists of cases, by pytest


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "nightly or not nightly"]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)


@cache
def cases(files: tuple[str, ...], chosen: str) -> list[str]:
    """The ids of the tests in some files."""
    found = _pytest("--collect-only", *files, *(("-k", chosen) if chosen else ()))
    ids = [line for line in found.stdout.splitlines() if "::" in line]
    if found.returncode or not ids:
        raise RuntimeError(f"pytest found no tests in {', '.join(files)}: {found.stdout[-MESSAGE:]}")
    return ids


BATCH = 100  # tests per unit
FAILED = ("failure", "error")


def listed(files: tuple[str, ...], chosen: str, index: int) -> int:
    """A batch of the tests in some files passes."""
    ids = cases(files, chosen)[BATCH * index : BATCH * (index + 1)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        ended = _pytest(f"--junitxml={report}", *ids)
        suite = next(ElementTree.parse(report).iter("testsuite"))
    wrong = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    told = [(case.get("name"), each.get("message", "")) for case in suite for each in case if each.tag in FAILED]
    assert wrong == 0, f"{wrong} of {len(ids)}: " + "; ".join(f"{name}: {message[:150]}" for name, message in told)
    assert ended.returncode == 0, ended.stdout[-MESSAGE:]
    assert int(suite.get("tests", 0)) == len(ids), f"{suite.get('tests')} of {len(ids)} ran"
    return len(ids) - int(suite.get("skipped", 0))


def _cases(what: str, *files: str, chosen: str = "") -> Stage:
    return Stage(what, lambda: len(cases(files, chosen)), partial(listed, files, chosen), BATCH, independent=False)


def _kills(algorithm: str, backend: str) -> Stage:
    words = f"kills of {algorithm.upper()} in {'EnvPool' if backend == 'envpool' else backend}, resumed bit for bit"
    return Stage(words, lambda: 200, partial(kills, algorithm, backend), 10)


IMPORTERS = "radial/agents/importers"
# In the order in which they are run: what is soon complete comes first.
STAGES: dict[str, Stage] = {
    "nan": Stage("injections of NaN, 8 points × 3 algorithms", lambda: 24, injection, independent=False),
    "nested": Stage("bounds of nested balls", lambda: 10**5, nested, 144),
    "gradients": Stage("gradients against finite differences", lambda: 500, gradient),
    "auto-lirpa": Stage("networks bounded by auto_LiRPA as well", lambda: 200, lirpa),
    "planted": Stage("planted counterexamples, 60 × 3 seeds", lambda: 180, planted),
    "degenerate": _cases("cases of degenerate input", "radial/bounds/certify_test.py", "radial/core/ball_test.py"),
    "mutations": Stage(
        "bugs planted in the bounds, all to be caught", lambda: len(_mutants()), mutation, independent=False
    ),
    "damage-imports": Stage(
        "files of others with random damage: .model, .pt, Stable-Baselines3, CleanRL",
        lambda: 10**5,
        damaged_imports,
        3_050,
        every=True,
    ),
    "kills-a3c-gymnasium": _kills("a3c", "gymnasium"),
    "kills-dqn-gymnasium": _kills("dqn", "gymnasium"),
    "kills-ppo-gymnasium": _kills("ppo", "gymnasium"),
    "kills-ppo-envpool": _kills("ppo", "envpool"),
    "pgd": Stage("states attacked by PGD, 50 steps, 20 restarts", lambda: 20_000, pgd, 50),
    "verdicts": Stage("verdicts against the exact MILP", lambda: 2_000, verdicts),
    "kills-dqn-ale": _kills("dqn", "ale-py"),
    "kills-dqn-envpool": _kills("dqn", "envpool"),
    "kills-a3c-ale": _kills("a3c", "ale-py"),
    "kills-a3c-envpool": _kills("a3c", "envpool"),
    "faults": _cases(
        "cases of faults: kills while saving, full disks, signals, hung workers",
        "radial/runs/checkpoint_test.py",
        "radial/runs/run_test.py",
        "radial/training/a3c_workers_test.py",
        "radial/training/a3c_signals_test.py",
        "radial/envs/watchdog_test.py",
    ),
    "configs": Stage("fuzzed configs and settings", lambda: 10**5, fuzz, 500),
    "exact": Stage("bounds against the exact MILP", lambda: 10_000, exact),
    "hostile": _cases(
        "cases of the hostile corpus",
        f"{IMPORTERS}/hostile_test.py",
        f"{IMPORTERS}/hostile_foreign_test.py",
        f"{IMPORTERS}/restricted_test.py",
    ),
    "attained": Stage("networks whose bounds are attained, at the corners", lambda: 20_000, attained),
    "points": Stage("random points inside the bounds of random networks", lambda: 10**7, random_points, 2_000),
    "damage-files": Stage(
        "files of ours with random damage: card, weights, manifest, tensors", lambda: 10**7, damaged, 10_000, every=True
    ),
}
