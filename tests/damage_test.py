"""Files with random damage, in brief; `make proof` does it ten million times."""

import damage
import pytest

from radial.agents import saved, weights
from radial.core.data import BadInput
from radial.runs import checkpoint


@pytest.mark.parametrize("rounds", [250, pytest.param(25_000, marks=pytest.mark.nightly)])
def test_what_radial_wrote_is_read_whole_or_refused(rounds: int) -> None:
    assert damage.own_files(rounds, seed=0) == 4 * rounds


@pytest.mark.parametrize("rounds", [50, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_what_others_wrote_is_read_whole_or_refused(rounds: int) -> None:
    assert damage.imports(rounds, seed=0) == 6 * rounds + rounds // 10


def test_a_check_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check for finite numbers, and with a refusal of two lines."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "check_tensors", lambda tensors: None)
        with pytest.raises(AssertionError, match="not finite"):
            damage.own_files(2_000, seed=0)

    def refuse(*arguments: object) -> None:
        raise BadInput("one line\nand another")

    monkeypatch.setattr(saved, "read_tensors", refuse)
    assert saved.read_tensors is not weights.read_tensors
    with pytest.raises(AssertionError, match="more than one line"):
        damage.own_files(20, seed=0)
