from typing import Any

import numpy as np
import pytest
import torch

from radial.core.data import BadInput
from radial.core.radius import as_radius, check_features, exceeds


@pytest.mark.parametrize(
    "given", [(0.5, 0, 0.25), [0.5, 0.0, 0.25], np.array([0.5, 0, 0.25]), torch.tensor([0.5, 0, 0.25])]
)
def test_a_radius_per_feature_in_any_form_is_a_tuple(given: Any) -> None:
    assert as_radius(given) == (0.5, 0.0, 0.25)


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5)])
def test_one_number_in_any_form_is_a_float(given: Any) -> None:
    found = as_radius(given)
    assert isinstance(found, float)
    assert found == 0.5


@pytest.mark.parametrize(
    "given",
    [-1, float("nan"), True, None, "3/255", (), (0.1, -0.1), [[0.1]], torch.full((40, 4), 0.1), (0.1, "0.1"), {0.1}],
)
def test_anything_else_is_one_line(given: Any) -> None:
    with pytest.raises(BadInput, match="radius must be a finite number ≥ 0, or one per feature") as error:
        as_radius(given)
    assert "\n" not in str(error.value)


def test_radii_are_compared_feature_by_feature() -> None:
    assert exceeds(0.1, (0.1, 0.0))
    assert exceeds((0.1, 0.2), 0.1)
    assert exceeds(0.2, 0.1)
    assert not exceeds((0.1, 0.0), 0.1)
    assert not exceeds(as_radius(torch.tensor([0.1])), (0.1,))  # 0.1 in float32 is larger


def test_a_radius_per_feature_is_for_vectors_of_its_length() -> None:
    check_features(0.1, (4, 84, 84))
    check_features((0.1, 0.2), (2,))
    for shape in ((3,), (2, 2)):
        with pytest.raises(BadInput, match=r"radius must be one number, or one per feature .* got 2 numbers"):
            check_features((0.1, 0.2), shape)
