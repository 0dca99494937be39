"""What a student is taught, by hand."""

import math

import pytest
import torch

from radial.core.data import Bounds
from radial.losses.distillation import (
    Lesson,
    discrete_lesson,
    followed,
    imitated,
    mattering,
    settled_choice,
    worst_followed,
    worst_imitated,
)


def test_a_state_weighs_as_much_as_the_choice_matters_there() -> None:
    """max − mean is 2, 0 and 1: 1 on average. The third state has weight 1, the second none."""
    scores = torch.tensor([[4.0, 0.0], [3.0, 3.0], [0.0, 2.0]])
    assert float(mattering(scores)) == 1.0
    lesson = discrete_lesson(scores, mattering(scores))
    assert lesson.weight.tolist() == [2.0, 0.0, 1.0]
    assert lesson.target[2].tolist() == pytest.approx([0.0, 20.0])  # a tenth of the unit is the temperature
    assert discrete_lesson(torch.tensor([[99.0, 0.0]]), torch.tensor(1.0)).weight.tolist() == [5.0]  # at most


def test_imitation_at_a_point_and_in_the_worst_case() -> None:
    """Teacher certain of action 0. Student (1, 0): log(1 + e⁻¹). Logits ± 1 at worst (0, 1): log(1 + e)."""
    lesson = Lesson(torch.tensor([[50.0, -50.0]]), torch.tensor([2.0]))
    outputs = torch.tensor([[1.0, 0.0]])
    assert imitated(outputs, lesson).tolist() == pytest.approx([2 * math.log(1 + math.exp(-1))])
    worst = worst_imitated(Bounds(outputs - 1, outputs + 1), lesson)
    assert worst.tolist() == pytest.approx([2 * math.log(1 + math.e)])
    same = worst_imitated(Bounds(outputs, outputs), lesson)
    assert same.tolist() == pytest.approx(imitated(outputs, lesson).tolist(), abs=1e-5)


def test_a_student_may_choose_where_little_matters() -> None:
    """Weight ¼ leaves ¾ to its own action 1, whose least probability is that of logits (0.5, 1.5)."""
    outputs = torch.tensor([[0.0, 2.0], [0.0, 2.0]])
    lesson = Lesson(torch.zeros(2, 2), torch.tensor([0.25, 3.0]))
    found = settled_choice(Bounds(outputs - 0.5, outputs + 0.5), outputs, lesson)
    assert found.tolist() == pytest.approx([0.75 * math.log(1 + math.exp(-1)), 0.0])


def test_mean_actions_are_followed_in_units_of_their_spread() -> None:
    """Errors 1 and 4 with spreads 1 and 2: (1 + 4)/2; half a unit farther at worst: (1.5² + 2.25²)/2."""
    outputs, mean, spread = torch.tensor([[1.0, 4.0]]), torch.zeros(1, 2), torch.tensor([1.0, 2.0])
    assert followed(outputs, mean, spread).tolist() == pytest.approx([2.5])
    worst = worst_followed(Bounds(outputs - 0.5, outputs + 0.5), mean, spread)
    assert worst.tolist() == pytest.approx([(1.5**2 + 2.25**2) / 2])
