"""MuJoCo's pictures without a display: which of OpenGL's ways works here, found out once, in a process of its own.

A library of OpenGL that does not fit may end the process that tries it; a probe may die, an audit must not.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium

from radial.core.data import EnvSpec

VARIABLE = "MUJOCO_GL"
WAYS = ("egl", "osmesa")  # without a display; "glfw" needs one
PATIENCE = 60.0  # seconds for a probe
_PROBE = """
import sys, mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    sys.exit(0 if renderer.render().shape == (16, 16, 3) else 1)
"""


class NotRendered(RuntimeError):
    """There is no picture of an episode; the message says why, and what to install."""


@contextmanager
def offscreen(spec: EnvSpec) -> Iterator[None]:
    """Let an env of MuJoCo render without a display while the block runs; nothing for any other env.

    MUJOCO_GL is respected if it is set, and set for the block if not.
    """
    if spec.suite == "atari" or spec.id not in gymnasium.registry:
        yield
        return
    if "mujoco" not in str(gymnasium.spec(spec.id).entry_point).lower() or sys.platform != "linux":
        yield
        return
    before = os.environ.get(VARIABLE)
    way = working_way(before, bool(os.environ.get("DISPLAY")))
    os.environ[VARIABLE] = way
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


@functools.cache
def working_way(asked: str | None, display: bool) -> str:
    """The first way that a probe draws a picture with; with a GPU EGL comes first, OSMesa draws on the CPU."""
    gpu = any(Path(device).exists() for device in ("/dev/dri", "/dev/nvidia0"))
    ways = [asked] if asked else [*(WAYS if gpu else WAYS[::-1]), *(["glfw"] if display else [])]
    for way in ways:
        if draws(way):
            return way
    tried = " or ".join(ways)
    raise NotRendered(f"MuJoCo cannot render here with {VARIABLE}={tried}: apt-get install libosmesa6 (or libegl1)")


def draws(way: str) -> bool:
    """Whether MuJoCo draws a picture this way, in another process."""
    environment = {**os.environ, VARIABLE: way}
    environment.pop("PYOPENGL_PLATFORM", None)  # MuJoCo sets it to the way it used last
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
