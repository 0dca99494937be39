"""What the reader makes of harmless files, written by pickle and torch themselves."""

import collections
import fractions
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from radial.agents.importers.archive import read_archive, read_pickle
from radial.agents.importers.inert import STORAGES, Inert, InertArray
from radial.core.data import BadInput

PLAIN = [
    None, True, -5, 300, 70_000, 2**100, -(2**70), 0.1, float("inf"), "", "Grüße", "x" * 300, b"", b"\x00\xff" * 200,
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [[1, [2]], "a"], {}, {"a": 1},
    {"a": {1: [2.5, None]}, "b": (False,)},
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:20])
def test_plain_data_is_itself(value: object, protocol: int, tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    assert read_pickle(tmp_path / "a.pkl") == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype: str, order: str, protocol: int, tmp_path: Path) -> None:
    value = np.arange(6).reshape(2, 3).astype(dtype, order=order)  # type: ignore[call-overload]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"array": value, "number": value[1, 2]}, protocol))
    found = read_pickle(tmp_path / "a.pkl")
    assert isinstance(found, dict)
    assert isinstance(found["array"], InertArray)
    assert found["array"].value is not None
    assert found["array"].value.dtype == value.dtype
    np.testing.assert_array_equal(found["array"].value, value)
    assert found["number"] == value[1, 2]


@pytest.mark.parametrize("dtype", sorted(STORAGES.values(), key=str), ids=str)
def test_tensors(dtype: torch.dtype, tmp_path: Path) -> None:
    whole = torch.arange(12).reshape(3, 4).to(dtype)
    value = {"whole": whole, "row": whole[1], "column": whole[:, 2], "turned": whole.T, "scalar": whole[2, 3],
             "none": torch.empty(0, dtype=dtype), "state": collections.OrderedDict(weight=whole)}  # fmt: skip
    torch.save(value, tmp_path / "a.pt")
    found = read_archive(tmp_path / "a.pt")
    assert isinstance(found, dict)
    for key in ("whole", "row", "column", "turned", "scalar", "none"):
        assert found[key].dtype == dtype
        assert torch.equal(found[key], value[key])
    assert torch.equal(found["state"]["weight"], whole)


def test_modules_and_optimisers_as_state_dicts(tmp_path: Path) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save(
        {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "p": network.weight}, tmp_path / "a"
    )
    found = read_archive(tmp_path / "a")
    assert isinstance(found, dict)
    assert torch.equal(found["model"]["weight"], network.weight)
    assert torch.equal(found["p"], network.weight)
    assert torch.equal(found["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_an_archive_inside_something_else(tmp_path: Path) -> None:
    inner = io.BytesIO()
    torch.save({"a": torch.ones(2)}, inner)
    found = read_archive(tmp_path / "outer.zip", file=inner)
    assert isinstance(found, dict)
    assert found["a"].tolist() == [1, 1]


def test_objects_are_inert_if_expected_and_refused_if_not(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(fractions.Fraction(1, 3), 2))
    found = read_pickle(tmp_path / "a.pkl", objects={"fractions.Fraction"})
    assert isinstance(found, Inert)
    assert str(found.name) == "fractions.Fraction"
    with pytest.raises(
        BadInput, match=r"not a file we can read safely: it speaks of 'fractions.Fraction', which is not"
    ):
        read_pickle(tmp_path / "a.pkl")


def test_a_pickle_that_shares_and_repeats(tmp_path: Path) -> None:
    shared = [1]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([shared, shared]))
    found = read_pickle(tmp_path / "a.pkl")
    assert isinstance(found, list)
    assert found[0] is found[1]
