"""Vector envs of EnvPool, an optional extra: many simulators on native threads of this process.

Which env belongs to which suite is in `make`; the adapter is in `gymnasium_vec`.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from radial.core.data import BadInput, EnvSpec
from radial.envs.gymnasium_vec import GymnasiumVec

# EnvPool has a MuJoCo of its own built in, whatever `mujoco` is installed, and does not tell which.
BUILT_IN_MUJOCO = {"1.2.5": "mujoco 3.6.0"}


def installed() -> bool:
    """Whether EnvPool can be found; it is not imported, which takes two seconds."""
    return importlib.util.find_spec("envpool") is not None


def make_envpool(
    spec: EnvSpec,
    options: Mapping[str, bool | int | float | str],
    seeds: Sequence[int],
    threads: int | None,
    timeout: float | None,
) -> GymnasiumVec:
    """One env per seed, stepped by `threads` threads (None: one per core this process may use).

    options  of `envpool.make`
    The stream of observations depends on seeds and actions, not on the number of threads. EnvPool takes seeds only
    here, and its state can be neither saved nor restored. An episode that fails on the very step of its time limit is
    reported as truncated only; Gymnasium reports both.
    """
    try:
        envpool = importlib.import_module("envpool")
    except ImportError as error:
        raise BadInput(f"{spec} with backend envpool needs EnvPool: pip install 'radial-rl[envpool]'") from error
    native = make_pool(spec.id, options, seeds, threads)
    simulator = BUILT_IN_MUJOCO.get(envpool.__version__, f"mujoco built into envpool {envpool.__version__}")
    engine = {"backend": "envpool", "version": envpool.__version__, "simulator": simulator}
    return GymnasiumVec(native, spec, engine=engine, timeout=timeout)


def make_pool(
    id: str, options: Mapping[str, bool | int | float | str], seeds: Sequence[int], threads: int | None
) -> VectorEnv[Any, Any, Any]:
    """EnvPool's own vector env, of a package that was imported already."""
    return importlib.import_module("envpool").make(
        id,
        env_type="gymnasium",
        num_envs=len(seeds),
        seed=list(seeds),
        num_threads=min(len(seeds), cores() if threads is None else threads),
        **options,
    )


def cores() -> int:
    """How many cores this process may use; where the system cannot tell, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
