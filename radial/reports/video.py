"""Films side by side as one .mp4 or .gif: the same step in every panel, an episode that is over holds its last picture.

Needs the extra `video`. Reads arrays and numbers; how an episode is rendered is not known here.
"""

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from radial.core.data import BadInput

Pixels = NDArray[np.uint8]  # (H, W, 3)
PACKAGES = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio",)}  # by suffix
BAR, GAP = 26, 8  # pixels: a panel's title, and between two panels
ENLARGED_BELOW = 240  # a picture smaller than this is enlarged by a whole number
HOLD = 1.0  # seconds of the last frame


@dataclass(frozen=True, eq=False)
class Panel:
    """One episode of a video.

    at       (K,) increasing steps        pictures  (K,) arrays (H, W, 3), of the state before each of them
    rewards  (T,) of its steps            fps       steps per second
    """

    title: str
    at: Sequence[int]
    pictures: Sequence[Pixels]
    rewards: Sequence[float]
    fps: float


def check_video(path: Path, field: str = "--video") -> None:
    """Refuse, before the long work, a file that cannot be written: its suffix, a missing package, its folder."""
    kind = path.suffix.lower()
    if kind not in PACKAGES:
        raise BadInput(f"{field} must end in {' or '.join(PACKAGES)}, got {path}")
    missing = [name for name in PACKAGES[kind] if find_spec(name) is None]
    if missing:
        raise BadInput(f"{field} {path} needs {' and '.join(missing)}: pip install 'radial-rl[video]'")
    if path.is_dir():
        raise BadInput(f"{field} must be a file, but {path} is a folder")
    made = [each for each in path.parents if not each.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInput(f"{field} must be in a folder that can be written to, got {path}: {error.strerror}") from None
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


def write_video(path: Path, panels: Sequence[Panel]) -> Path:
    """Write the panels beside each other, at the env's own speed; whole or not at all."""
    check_video(path, "path")
    imageio: Any = import_module("imageio.v2")
    apart = max(1, min((one.at[1] for one in panels if len(one.at) > 1), default=1))
    rate = panels[0].fps / apart
    temporary = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix.lower()}")
    settings = (
        {"duration": 1000 / rate, "loop": 0}
        if path.suffix.lower() == ".gif"
        else {"fps": rate, "codec": "libx264", "macro_block_size": 2, "quality": 7, "ffmpeg_log_level": "error"}
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with imageio.get_writer(temporary, mode="I", **settings) as writer:
            for frame in frames_of(panels, apart, round(HOLD * rate)):
                writer.append_data(frame)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def frames_of(panels: Sequence[Panel], apart: int, held: int = 0) -> Iterator[Pixels]:
    """Every `apart`-th step of all panels, and the end, which is shown `held` times more."""
    draw = [_drawer(one) for one in panels]
    last = max(one.at[-1] for one in panels)
    for step in (*range(0, last, apart), last, *[last] * held):
        yield _beside([each(step) for each in draw])


def _drawer(panel: Panel) -> Callable[[int], Pixels]:
    """Step → the panel's picture under a bar with its title and the return so far."""
    total = [0.0, *accumulate(panel.rewards)]
    title = panel.title.replace("ε", "eps")  # the font has no Greek
    font = ImageFont.load_default(15)

    def draw(step: int) -> Pixels:
        shot = panel.pictures[bisect_right(panel.at, step) - 1]
        times = max(1, ENLARGED_BELOW // max(shot.shape[:2]))
        shot = shot.repeat(times, axis=0).repeat(times, axis=1)
        image = Image.new("RGB", (shot.shape[1], shot.shape[0] + BAR), "white")
        image.paste(Image.fromarray(shot), (0, BAR))
        over = step >= len(panel.rewards)
        said = f"{title}   return {total[min(step, len(panel.rewards))]:.0f}{', over' if over else ''}"
        ImageDraw.Draw(image).text((6, 4), said, fill="#D55E00" if over else "#1b1b1b", font=font)
        return np.asarray(image)

    return draw


def _beside(pictures: Sequence[Pixels]) -> Pixels:
    """Pictures in one row, on white; height and width are even, as video codecs ask."""
    height = max(one.shape[0] for one in pictures)
    width = sum(one.shape[1] for one in pictures) + GAP * (len(pictures) - 1)
    frame = np.full((height + height % 2, width + width % 2, 3), 255, np.uint8)
    left = 0
    for one in pictures:
        frame[: one.shape[0], left : left + one.shape[1]] = one
        left += one.shape[1] + GAP
    return frame
