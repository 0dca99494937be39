"""A line of progress fits 80 columns: the step, the return and the pace stay, what stands between may go."""

import pytest

from radial.runs.progress import PlainLines, fit

PACE = "12,345 steps/s  12:34:56 left"


def test_what_fits_stays() -> None:
    assert fit("step 1/9", "return 3  loss 2", 80) == "step 1/9  return 3  loss 2"
    assert fit("step 1/9", "", 80) == "step 1/9"


def test_values_in_the_middle_go_first_and_then_the_speed() -> None:
    head, text = "step 12,345,678/20,000,000", f"return 1234  radius 0.05  loss 2.5  {PACE}"
    assert fit(head, text, 80) == f"{head}  return 1234  {PACE}"
    assert fit(head, text, 60) == f"{head}  return 1234  12:34:56 left"
    for width in range(30, 120):
        assert len(fit(head, text, width)) <= width


def test_a_rollout_that_passes_the_total_raises_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(1)
    lines.show(2_048, "return 3")
    assert "step 2,048/2,048  return 3" in capsys.readouterr().err
