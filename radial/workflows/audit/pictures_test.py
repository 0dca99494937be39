"""Pictures of a trace: exact actions, an honest note where there are none, a budget that is kept."""

import base64
import io
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from radial.core.data import EnvSpec
from radial.envs.film import Film
from radial.envs.offscreen import NotRendered
from radial.workflows.audit import pictures
from radial.workflows.audit.pictures import data_url, exactly, fitting, pictures_of, take_of, world_of


def trace(steps: int, hit: int) -> dict[str, Any]:
    """CartPole pushed to the left, all the time and for `hit` steps."""
    return {
        "action": [0] * hit, "reward": [1.0] * hit, "world": world_of(EnvSpec("classic", "CartPole-v1"), 5, 0),
        "nominal": {"action": [0] * steps, "reward": [1.0] * steps},
    }  # fmt: skip


def test_actions_survive_json() -> None:
    wild = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.tensor(exactly(list(wild))), wild)
    assert exactly([torch.tensor(3)]) == [3]


def shown(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))


def test_few_colours_are_exact_and_many_are_small() -> None:
    flat = np.zeros((40, 60, 3), np.uint8)
    flat[10:20, 10:30] = (255, 128, 3)
    assert data_url(flat).startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(shown(data_url(flat)).convert("RGB")), flat)
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    assert data_url(noise).startswith("data:image/webp;base64,")
    assert shown(data_url(noise)).size == (60, 40)


def test_too_many_bytes_leave_every_second_picture_and_the_end() -> None:
    films = [Film(tuple(range(9)), (), 50.0), Film((0, 1, 2), (), 50.0)]
    urls = [["x" * 10] * 9, ["y" * 10] * 3]
    assert [each["at"] for each in fitting(films, urls, 120)] == [list(range(9)), [0, 1, 2]]
    assert [each["at"] for each in fitting(films, urls, 80)] == [[0, 2, 4, 6, 8], [0, 2]]
    assert [each["at"] for each in fitting(films, urls, 1)] == [[0, 8], [0, 2]]  # never none


@pytest.mark.skipif(find_spec("pygame") is None, reason="classic control is drawn by pygame")
def test_both_episodes_are_shown_in_step() -> None:
    found = pictures_of(trace(9, 4))
    assert found["note"] is None
    assert found["clean"]["at"] == list(range(10))
    assert found["attacked"]["at"] == list(range(5))
    assert found["clean"]["images"][:5] == found["attacked"]["images"]  # here they do the same
    assert len(set(found["clean"]["images"])) >= 8  # the first steps hardly move anything
    assert take_of(trace(9, 4), attacked=True).actions == [0] * 4


def test_no_picture_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*_: Any, **__: Any) -> Film:
        raise NotRendered("CartPole-v1 cannot be rendered: no pygame")

    monkeypatch.setattr(pictures, "film", blind)
    note = "no pictures: CartPole-v1 cannot be rendered: no pygame"
    assert pictures_of(trace(3, 3)) == {"clean": None, "attacked": None, "note": note}
