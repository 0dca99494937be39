from pathlib import Path

import pytest

import radial as rr
from radial.core.data import BadInput, EnvSpec
from radial.workflows.many import train_many

TINY = rr.PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=256, num_envs=2, rollout=64, minibatch=16, epochs=1, hidden=(8,),
    compile=False, checkpoint_every=1,
)  # fmt: skip


def weights(folder: Path) -> bytes:
    return (folder / "agent" / "weights.safetensors").read_bytes()


def test_seeds_and_configs_equal_single_runs_and_finished_ones_are_skipped(tmp_path: Path) -> None:
    said: list[str] = []
    found = train_many({"a": TINY}, [0, 1], out=tmp_path, progress=said.append)
    assert [(one.name, one.seed, one.error) for one in found] == [("a", 0, None), ("a", 1, None)]
    rr.train(TINY, 1, out=tmp_path / "alone", quiet=True, recipe="a")
    assert weights(found[1].folder) == weights(tmp_path / "alone")
    assert len(said) == 2
    again = train_many({"a": TINY}, [0, 1], out=tmp_path, progress=said.append)
    assert [one.folder for one in again] == [one.folder for one in found]
    assert len(said) == 2  # nothing was trained


@pytest.mark.nightly
def test_on_ray_they_are_the_same_to_the_bit_and_come_back_through_storage(tmp_path: Path) -> None:
    found = train_many(
        {"a": TINY}, [0, 1], out=tmp_path / "here", on="ray", workers=2, storage=str(tmp_path / "shared")
    )
    assert all(one.error is None for one in found)
    rr.train(TINY, 1, out=tmp_path / "alone", quiet=True, recipe="a")
    assert weights(found[1].folder) == weights(tmp_path / "alone")
    assert (tmp_path / "shared" / "a-seed1" / "agent" / "card.json").is_file()


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="seeds"):
        train_many({"a": TINY}, [-1], out=tmp_path)
    with pytest.raises(BadInput, match="at least one"):
        train_many({}, [0], out=tmp_path)
    with pytest.raises(BadInput, match="storage"):
        train_many({"a": TINY}, [0], out=tmp_path, storage="nonsense://x")
    assert not list(tmp_path.iterdir())
