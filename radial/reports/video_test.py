"""Videos: panels in step, the right speed, and one line for a file that cannot be."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from radial.core.data import BadInput
from radial.reports.video import BAR, GAP, Panel, check_video, frames_of, write_video


def panel(steps: int, shade: int, title: str = "clean") -> Panel:
    """Pictures of 240 × 120, of steps 0, 2, 4, … and the end, each a shade darker."""
    at = [*range(0, steps, 2), steps]
    return Panel(
        title, at, [np.full((120, 240, 3), shade - 10 * k, np.uint8) for k in range(len(at))], [1.0] * steps, 50
    )


def test_panels_are_in_step_and_the_shorter_one_holds_its_end() -> None:
    frames = list(frames_of([panel(6, 200), panel(3, 100)], 2, held=1))
    assert [frame.shape for frame in frames] == [(120 + BAR, 2 * 240 + GAP, 3)] * 5  # steps 0, 2, 4, 6 and 6 again
    assert [int(frame[-1, 0, 0]) for frame in frames] == [200, 190, 180, 170, 170]
    assert [int(frame[-1, -1, 0]) for frame in frames] == [100, 90, 80, 80, 80]  # its end, step 3, is between 2 and 4
    assert (frames[0][:, 240 : 240 + GAP] == 255).all()


def test_small_pictures_are_enlarged_and_odd_sizes_made_even() -> None:
    tiny = Panel("clean", [0], [np.zeros((63, 71, 3), np.uint8)], [], 15)
    (frame,) = frames_of([tiny], 1)
    assert frame.shape == (3 * 63 + BAR + 1, 3 * 71 + 1, 3)


@pytest.mark.skipif(find_spec("imageio") is None, reason="needs the extra video")
def test_a_gif_at_the_speed_of_the_env(tmp_path: Path) -> None:
    path = write_video(tmp_path / "new" / "a.gif", [panel(6, 200), panel(3, 100, "pgd, ε = 0.1")])
    with Image.open(path) as found:
        assert found.size == (2 * 240 + GAP, 120 + BAR)
        assert found.info["duration"] == 40  # every second of 50 steps per second
        assert found.info["loop"] == 0
    assert [each.name for each in path.parent.iterdir()] == ["a.gif"]


@pytest.mark.skipif(find_spec("imageio_ffmpeg") is None, reason="needs the extra video")
def test_an_mp4(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", [panel(6, 200)])
    assert path.read_bytes()[4:8] == b"ftyp"


def test_bad_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file").write_text("")
    for path, says in (
        (tmp_path / "a.avi", "--video must end in .mp4 or .gif, got"),
        (tmp_path / "a", "--video must end in .mp4 or .gif, got"),
        (tmp_path / "folder.gif", "is a folder"),
        (tmp_path / "file" / "a.gif", "--video must be in a folder that can be written to"),
    ):
        with pytest.raises(BadInput, match=says):
            check_video(path)
    check_video(tmp_path / "new" / "deep" / "a.GIF")
    assert not (tmp_path / "new").exists()  # it only tried
    monkeypatch.setattr("radial.reports.video.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="needs imageio and imageio_ffmpeg: pip install 'radial-rl"):
        check_video(tmp_path / "a.mp4")
