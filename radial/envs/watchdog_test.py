"""A step that hangs ends the process and says where; one that is only slow does not."""

import subprocess
import sys
import threading
import time

from radial.envs.watchdog import EXIT_CODE, Watchdog

HANG = """
import time
import gymnasium, torch
from gymnasium.vector import SyncVectorEnv
from radial.core.data import EnvSpec
from radial.envs.counting import Counting
from radial.envs.gymnasium_vec import GymnasiumVec

class Sleeping(Counting):
    def step(self, action):
        time.sleep(0.02 if self.count == 0 else 60)
        return super().step(action)

env = GymnasiumVec(SyncVectorEnv([lambda: Sleeping(0)]), EnvSpec("gymnasium", "Sleeping"), engine={}, timeout=0.5)
env.reset()
env.step(torch.tensor([0]))
time.sleep(1.0)  # a long update between steps is nobody's fault
print("alive", flush=True)
try:
    env.step(torch.tensor([0]))
finally:
    print("never reached", flush=True)
"""


def test_a_hanging_step_ends_the_process_with_all_stacks() -> None:
    done = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_CODE == 70
    assert done.stdout == "alive\n"
    assert "a step or reset of gymnasium/Sleeping took longer than 0.5 s" in done.stderr
    assert "in step" in done.stderr  # the stack of the thread that hangs
    assert "_watch" in done.stderr  # … and of the others


def test_many_quick_calls_are_not_one_slow_call() -> None:
    watchdog = Watchdog(0.1, "a call")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with watchdog:
            time.sleep(0.002)
    watchdog.stop()


def test_a_stopped_watchdog_leaves_no_thread() -> None:
    others = set(threading.enumerate())
    watchdogs = [Watchdog(0.1, "a call") for _ in range(5)]
    threads = set(threading.enumerate()) - others
    assert len(threads) == 5
    for watchdog in watchdogs:
        watchdog.stop()
        watchdog.stop()
    for thread in threads:
        thread.join(timeout=5)
        assert not thread.is_alive()
