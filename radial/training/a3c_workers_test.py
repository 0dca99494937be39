"""A3C in several processes: who dies or hangs is started again and counted, and an error reaches the user whole."""

import json
import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial.core.data import BadInput, EnvSpec, Step, VecEnv
from radial.envs.make import make_env
from radial.training import a3c, a3c_workers
from radial.training.a3c import A3CConfig
from radial.training.a3c import train_a3c as train
from radial.training.a3c_workers import Board, Failure, WorkerFailed, _error, _Worker

CARTPOLE = EnvSpec("classic", "CartPole-v1")
TINY = A3CConfig(
    CARTPOLE, total_steps=2_000, workers=2, num_envs=2, rollout=5, hidden=(8,), compile=False, log_every=100,
    checkpoint_every=1_000, patience=3.0,
)  # fmt: skip
TROUBLE = "RADIAL_TEST_TROUBLE"  # a folder: whoever makes a file there first has the trouble of its name


class Troubled:
    """An env that at its 30th step does to its process what nobody has done yet.

    It takes its time, so that one worker alone cannot finish the training before the other is missed.
    """

    def __init__(self, env: VecEnv) -> None:
        self.env, self.count = env, 0

    def step(self, action: torch.Tensor) -> Step:
        self.count += 1
        time.sleep(0.006)  # × 1,000 steps of two envs: twice the patience
        if self.count == 30:
            for name, trouble in TROUBLES.items():
                if _first(name):
                    trouble()
                    break
        return self.env.step(action)

    def __getattr__(self, name: str) -> object:
        return getattr(self.env, name)


def _first(name: str) -> bool:
    try:
        (Path(os.environ[TROUBLE]) / name).touch(exist_ok=False)
    except (FileExistsError, FileNotFoundError):
        return False
    return True


def _break() -> None:
    raise ZeroDivisionError("the simulator divided by zero")


TROUBLES = {"killed": lambda: os.kill(os.getpid(), signal.SIGKILL), "hangs": lambda: time.sleep(1_000)}


def troubled(*arguments: object, **more: object) -> VecEnv:
    return Troubled(make_env(*arguments, **more))  # type: ignore[arg-type, return-value]


def broken(*arguments: object, **more: object) -> VecEnv:
    env = Troubled(make_env(*arguments, **more))  # type: ignore[arg-type]
    env.step = lambda action: _break()  # type: ignore[method-assign, assignment]
    return env  # type: ignore[return-value]


def children() -> set[str]:
    """The processes of ours that are worker processes."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in text if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def memory() -> set[str]:
    """Shared memory of ours: torch names it by the process that made it, and other processes have their own there."""
    made = {name: name.split("_")[1] for name in os.listdir("/dev/shm") if name.startswith("torch_")}
    return {name for name, pid in made.items() if pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists()}


def test_a_worker_that_is_killed_and_one_that_hangs_are_started_again_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(a3c, "make_env", troubled)
    monkeypatch.setattr(a3c_workers, "STARTING", 100)  # a busy machine may need long to import torch
    (tmp_path / "trouble").mkdir()
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    shared, files = memory(), len(os.listdir("/proc/self/fd"))
    agent = train(TINY, 0, out=tmp_path / "run", quiet=True)
    said = capsys.readouterr().err
    assert "was killed by SIGKILL and is started again" in said
    assert "gave no sign of life for 3 seconds and is started again" in said
    assert {path.name for path in (tmp_path / "trouble").iterdir()} == {"killed", "hangs"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    restarts = said.count("is started again")  # a busy machine may add to these two
    assert restarts >= 2
    assert (lines[-1]["charts/restarts"], lines[-1]["step"] >= 2_000) == (restarts, True)
    assert lines[-1].keys() >= {"charts/episodic_return", "losses/policy_loss", "charts/SPS", "charts/updates"}
    manifest = json.loads((max((tmp_path / "run" / "checkpoints").glob("step_*")) / "manifest.json").read_text())
    assert (manifest["exact"], manifest["state"]["resume"]) == (False, "statistical")
    assert manifest["state"]["restarts"] == restarts
    assert all(bool(tensor.isfinite().all()) for tensor in agent.state_dict().values())
    assert not children()
    assert memory() <= shared
    monkeypatch.delattr(a3c, "Crew")  # a finished run needs none: it gives its agent
    again = train(TINY, 0, out=tmp_path / "run", resume=True, quiet=True)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in agent.state_dict().items())
    del agent, again
    assert len(os.listdir("/proc/self/fd")) <= files + 2  # multiprocessing keeps a pipe to its own helper


def test_an_error_in_a_worker_ends_the_training_and_reaches_the_user_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3c, "make_env", broken)
    monkeypatch.setattr(a3c_workers, "STARTING", 100)
    with pytest.raises(WorkerFailed) as caught:
        train(TINY, 0, quiet=True)
    said = str(caught.value)
    assert "worker" in said.splitlines()[0]
    assert "Traceback" in said
    assert "in _break" in said
    assert said.rstrip().endswith("ZeroDivisionError: the simulator divided by zero")
    assert not children()


@pytest.mark.nightly
def test_thirty_kills_of_random_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it strikes: while a worker imports, plays, reports, or writes to the model."""
    monkeypatch.setattr(a3c_workers, "MOST_IN_A_ROW", 100)
    rng, kills, over = random.Random(0), [], threading.Event()

    def strike() -> None:
        while len(kills) < 30 and not over.wait(rng.uniform(0.5, 3.0)):
            living = sorted(children())
            if len(living) == 3:
                kills.append(rng.choice(living))
                os.kill(int(kills[-1]), signal.SIGKILL)

    killer = threading.Thread(target=strike)
    killer.start()
    try:
        train(replace(TINY, workers=3, total_steps=200_000, patience=60.0), 0, out=tmp_path, quiet=True)
    finally:
        over.set()
        killer.join()
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(kills) >= 10
    assert last["charts/restarts"] in (len(kills), len(kills) - 1)  # the last one may have come when all was over
    assert not children()


# --------------------------------------------------------------------------------------------------- without processes


def test_errors_that_are_told_in_a_line_stay_what_they_are() -> None:
    error = _error(3, Failure("FloatingPointError", "the gradient is not finite", "Traceback …"))
    assert isinstance(error, FloatingPointError)
    assert str(error) == "worker 3: the gradient is not finite"
    assert "Traceback …" in str(error.__cause__)
    assert isinstance(_error(0, Failure("KeyError", "x", "Traceback …")), WorkerFailed)


def test_the_board_adds_up() -> None:
    board = Board.fresh(3, begun=100, total_steps=160)
    assert (board.step, board.over) == (100, False)
    board.steps.copy_(torch.tensor([10, 20, 29]))
    assert (board.step, board.over) == (159, False)
    board.steps[1] += 1
    assert (board.step, board.over) == (160, True)
    stopped = Board.fresh(3, 0, 10)
    stopped.stop.fill_(True)
    assert stopped.over


def test_silence_is_counted_from_the_last_update() -> None:
    worker = _Worker(0)
    worker.hear_of(0, 2.0)
    worker.hear_of(0, 2.0)
    assert (worker.silent, worker.alive) == (4.0, False)
    worker.hear_of(1, 2.0)
    assert (worker.silent, worker.alive) == (0.0, True)
    worker.die()
    worker.die()
    assert (worker.life, worker.in_a_row, worker.alive) == (2, 2, False)
    worker.hear_of(2, 2.0)
    assert (worker.life, worker.in_a_row) == (2, 0)


def test_workers_share_memory_of_one_machine() -> None:
    with pytest.raises(BadInput, match="device must be cpu for 2 workers"):
        a3c.set_up(TINY, 0, torch.device("cuda"))


def test_workers_have_seeds_of_their_own() -> None:
    training = a3c.set_up(TINY, 0, torch.device("cpu"))
    seen = []
    for seed, begun, worker, life in [(0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 500, 0, 0), (1, 0, 0, 0)]:
        player = a3c.player_in_worker(TINY, seed, begun, training.model, make_env, worker, life)
        assert player._x is not None
        seen.append((tuple(player._x.flatten().tolist()), int(torch.randint(1 << 30, (), generator=player.rng))))
        player.leave()
    assert len({first for first, _ in seen}) == len({noise for _, noise in seen}) == 5
    again = a3c.player_in_worker(TINY, 0, 0, training.model, make_env, 0, 0)
    assert again._x is not None
    assert tuple(again._x.flatten().tolist()) == seen[0][0]
    again.leave()
