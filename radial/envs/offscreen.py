"""Pictures without a display: pygame on its dummy screen, MuJoCo by whichever of OpenGL's ways works here.

That is found out once, in a process of its own: a library of OpenGL that does not fit may end the process that tries
it; a probe may die, an audit must not.
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
from radial.envs.contract import EnvFault

MUJOCO_GL = "MUJOCO_GL"
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


class NotRendered(EnvFault):
    """There is no picture of an episode; the message says why, and what to install."""


@contextmanager
def offscreen(spec: EnvSpec) -> Iterator[None]:
    """Let an env render without a display while the block runs; variables that are set already are respected."""
    wanted = {"PYGAME_HIDE_SUPPORT_PROMPT": "1"}  # it would greet on stdout
    if not os.environ.get("DISPLAY"):
        wanted["SDL_VIDEODRIVER"] = "dummy"
    if spec.suite != "atari" and sys.platform == "linux" and _is_mujoco(spec.id):
        wanted[MUJOCO_GL] = working_way(os.environ.get(MUJOCO_GL), bool(os.environ.get("DISPLAY")))
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _is_mujoco(env_id: str) -> bool:
    return env_id in gymnasium.registry and "mujoco" in str(gymnasium.spec(env_id).entry_point).lower()


@functools.cache
def working_way(asked: str | None, display: bool) -> str:
    """The first way that a probe draws a picture with; with a GPU EGL comes first, OSMesa draws on the CPU."""
    gpu = any(Path(device).exists() for device in ("/dev/dri", "/dev/nvidia0"))
    ways = [asked] if asked else [*(WAYS if gpu else WAYS[::-1]), *(["glfw"] if display else [])]
    for way in ways:
        if draws(way):
            return way
    tried = " or ".join(ways)
    raise NotRendered(f"MuJoCo cannot render here with {MUJOCO_GL}={tried}: apt-get install libosmesa6 (or libegl1)")


def draws(way: str) -> bool:
    """Whether MuJoCo draws a picture this way, in another process."""
    environment = {**os.environ, MUJOCO_GL: way}
    environment.pop("PYOPENGL_PLATFORM", None)  # MuJoCo sets it to the way it used last
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
