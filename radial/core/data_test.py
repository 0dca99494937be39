import math

import pytest
import torch
from torch import tensor

from radial.core.data import BadInput, Bounds, Verdict, check_shapes


def test_bounds_by_hand() -> None:
    bounds = Bounds(tensor([[0.0, 1.0]]), tensor([[2.0, 1.5]]))
    assert bounds.width.tolist() == [[2.0, 0.5]]
    assert bounds.contains(tensor([[1.0, 2.0]])).tolist() == [[True, False]]
    assert bounds.contains(tensor([[0.0, 1.5]])).all()  # the ends belong to it


def test_nan_is_never_inside() -> None:
    assert not Bounds(tensor([[0.0]]), tensor([[1.0]])).contains(tensor([[math.nan]])).any()
    assert not Bounds(tensor([[math.nan]]), tensor([[1.0]])).contains(tensor([[0.5]])).any()


def test_bounds_of_two_shapes_are_refused() -> None:
    with pytest.raises(BadInput, match="lower and upper"):
        Bounds(torch.zeros(1, 2), torch.zeros(2, 1))


def test_verdicts_read_as_words() -> None:
    assert [str(verdict) for verdict in Verdict] == ["certified", "attacked", "unknown"]
    assert Verdict.CERTIFIED == "certified"


def test_check_shapes() -> None:
    sizes = check_shapes(torch.zeros(2, 3), "B A", torch.zeros(2), "B", torch.zeros(2, 5, 6), "B *")
    assert sizes == {"B": 2, "A": 3}
    for wrong in ((torch.zeros(2, 3), "B A", torch.zeros(3), "B"), (torch.zeros(2), "B A"), (torch.zeros(2, 3), "B 4")):
        with pytest.raises(BadInput, match="expected shape"):
            check_shapes(*wrong)
