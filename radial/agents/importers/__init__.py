"""Importers of third-party checkpoints, read as data only. Adding a format is adding a line to `IMPORTERS`."""

from collections.abc import Callable
from pathlib import Path

from radial.agents.convert import Loaded
from radial.agents.importers.cleanrl import read_cleanrl
from radial.agents.importers.papers import read_model, read_procgen
from radial.agents.importers.sb3 import read_sb3
from radial.core.data import BadInput

IMPORTERS: dict[str, Callable[[Path], Loaded]] = {
    ".model": read_model,  # RADIAL-PPO and SA-PPO on MuJoCo
    ".pt": read_procgen,  # RADIAL's PPO on ProcGen
    ".zip": read_sb3,  # Stable-Baselines3
    ".cleanrl_model": read_cleanrl,  # CleanRL
}
WAY_OUT = "rr.wrap makes an agent of any network that you load yourself"


def read_file(path: Path) -> Loaded:
    """The agent of a third-party file; a refusal names the way out."""
    if path.suffix not in IMPORTERS:
        known = ", ".join(IMPORTERS)
        raise BadInput(f"{path} is not an agent: expected a folder, or a file ending in {known}; {WAY_OUT}")
    try:
        return IMPORTERS[path.suffix](path)
    except BadInput as refusal:
        raise BadInput(f"{refusal}; {WAY_OUT}") from None
