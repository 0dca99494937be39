"""Silence for one thing: what Gymnasium and MuJoCo say about the age of Gymnasium's own tasks while one is made.

Everything else they say is passed on.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium


@contextmanager
def quiet_about_age(id: str) -> Iterator[None]:
    """Make the env `id` inside: no word about an old version or an old attribute in its model.

    -v4 is what the paper's numbers belong to. MuJoCo would also append the message to a file in the working directory.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        if "mujoco" not in str(gymnasium.spec(id).entry_point) or importlib.util.find_spec("mujoco") is None:
            yield
            return
        mujoco = importlib.import_module("mujoco")
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_pass_on)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _pass_on(message: str) -> None:
    if "deprecated" not in message:
        warnings.warn(message, UserWarning, stacklevel=2)
