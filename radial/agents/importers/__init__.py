"""Importers of third-party checkpoints, read as data only. Adding a format is adding a line to `IMPORTERS`."""

from collections.abc import Callable
from pathlib import Path

from radial.agents.convert import Loaded
from radial.agents.importers.cleanrl import read_cleanrl
from radial.agents.importers.onnx_network import read_onnx
from radial.agents.importers.papers import read_model, read_pt
from radial.agents.importers.sb3 import read_sb3
from radial.core.data import BadInput

IMPORTERS: dict[str, Callable[[Path], Loaded]] = {
    ".model": read_model,  # RADIAL-PPO, SA-PPO, ATLA, WocaR and CAR on MuJoCo; SA-DQN
    ".pt": read_pt,  # RADIAL's PPO on ProcGen, DQN and A3C on Atari
    ".pth": read_pt,  # SA-DQN
    ".zip": read_sb3,  # Stable-Baselines3
    ".cleanrl_model": read_cleanrl,  # CleanRL
    ".onnx": read_onnx,  # any tool that writes ONNX
}
WAY_OUT = "rr.wrap makes an agent of any network that you load yourself"


def read_file(path: Path, kind: str | None = None) -> Loaded:
    """The agent of a third-party file; a refusal names the way out.

    kind  what the outputs of an ONNX file are: q, categorical or gaussian
    """
    if path.suffix not in IMPORTERS:
        known = ", ".join(IMPORTERS)
        raise BadInput(f"{path} is not an agent: expected a folder, or a file ending in {known}; {WAY_OUT}")
    if kind is not None and path.suffix != ".onnx":
        raise BadInput(f"kind is for .onnx files, which do not say what their outputs are; {path} does")
    try:
        if path.suffix == ".onnx":
            return read_onnx(path, kind)
        return IMPORTERS[path.suffix](path)
    except BadInput as refusal:
        raise BadInput(f"{refusal}; {WAY_OUT}") from None
