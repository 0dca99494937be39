import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from radial.core.data import BadInput
from radial.envs.counting import make_counting
from radial.training import replay as module
from radial.training.replay import Prioritised, Replay, SumTree, check_memory

Row = tuple[list[float], int, float, list[float], bool]  # obs, action, reward, next_obs, terminated


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def content(replay: Replay) -> list[Row]:
    """Every transition, oldest first: whatever ever comes out of a large sample, once."""
    beta = None if replay.prioritised is None else 1.0
    sample = replay.sample(50 * replay.slots * replay.num_envs, generator(), beta=beta)
    columns = (sample.position, sample.obs, sample.action, sample.reward, sample.next_obs, sample.terminated)
    rows = {row[0]: row[1:] for row in zip(*(column.tolist() for column in columns), strict=True)}
    assert len(rows) == len(replay)
    return [rows[index] for index in sorted(rows)]


def play(replay: Replay, steps: range, num_envs: int = 2) -> None:
    """New counting envs; at step t every env takes action t mod 10."""
    env = make_counting(num_envs)
    replay.begin(env.reset())
    for t in steps:
        action = torch.full((num_envs,), t % 10)
        step = env.step(action)
        replay.add(action, step.reward, step.terminated, step.real, step.obs)
    env.close()


def counting_replay(capacity: int, prioritised: Prioritised | None = None) -> Replay:
    return Replay(capacity, (3,), torch.float32, 2, prioritised=prioritised)


# By hand: obs is (env, episode, step), the reward their digits and the action's. Env 0 ends its episode 0 with its
# 3rd step, terminated, env 1 with its 2nd, truncated; the step after is a reset and no transition. Then vice versa.
SEVEN_STEPS: list[Row] = [
    ([0, 0, 0], 0, 10, [0, 0, 1], False),
    ([1, 0, 0], 0, 1010, [1, 0, 1], False),
    ([0, 0, 1], 1, 21, [0, 0, 2], False),
    ([1, 0, 1], 1, 1021, [1, 0, 2], False),  # truncated: the true last observation, and it has a future
    ([0, 0, 2], 2, 32, [0, 0, 3], True),  # terminated; env 1 resets itself
    ([1, 1, 0], 3, 1113, [1, 1, 1], False),  # env 0 resets itself
    ([0, 1, 0], 4, 114, [0, 1, 1], False),
    ([1, 1, 1], 4, 1124, [1, 1, 2], False),
    ([0, 1, 1], 5, 125, [0, 1, 2], False),  # truncated
    ([1, 1, 2], 5, 1135, [1, 1, 3], True),  # terminated; in the last step both reset themselves
]


# ---------------------------------------------------------------------------------------------------- what is stored


@pytest.mark.parametrize("prioritised", [None, Prioritised(alpha=0.0)])
def test_the_buffer_is_the_list_written_by_hand(prioritised: Prioritised | None) -> None:
    replay = counting_replay(100, prioritised)
    play(replay, range(7))
    assert len(replay) == 10
    assert content(replay) == SEVEN_STEPS


def test_three_steps_at_once_as_written_by_hand() -> None:
    """γ = ½, of SEVEN_STEPS: sums stop where an episode ends, where it is cut, and where nobody has acted yet."""
    replay = counting_replay(100)
    play(replay, range(7))
    sample = replay.sample(5_000, generator(), n_step=3, discount=0.5)
    columns = (sample.obs, sample.reward, sample.next_obs, sample.terminated, sample.steps)
    rows = {tuple(row[0]): row[1:] for row in zip(*(column.tolist() for column in columns), strict=True)}
    assert rows == {
        (0, 0, 0): (10 + 21 / 2 + 32 / 4, [0, 0, 3], True, 3),
        (0, 0, 1): (21 + 32 / 2, [0, 0, 3], True, 2),  # terminated after two
        (0, 0, 2): (32, [0, 0, 3], True, 1),
        (0, 1, 0): (114 + 125 / 2, [0, 1, 2], False, 2),  # truncated: what follows the cut belongs to nobody
        (0, 1, 1): (125, [0, 1, 2], False, 1),
        (1, 0, 0): (1010 + 1021 / 2, [1, 0, 2], False, 2),
        (1, 0, 1): (1021, [1, 0, 2], False, 1),
        (1, 1, 0): (1113 + 1124 / 2 + 1135 / 4, [1, 1, 3], True, 3),
        (1, 1, 1): (1124 + 1135 / 2, [1, 1, 3], True, 2),
        (1, 1, 2): (1135, [1, 1, 3], True, 1),
    }


def test_several_steps_end_at_the_newest_observation_and_wrap_around_the_ring() -> None:
    long, ring = counting_replay(1_000), counting_replay(16)
    for replay in (long, ring):
        play(replay, range(100))

    def newest(replay: Replay) -> dict[int, tuple[float, list[float], float]]:
        sample = replay.sample(20_000, generator(), n_step=4, discount=0.9)
        columns = (sample.position, sample.reward, sample.next_obs, sample.steps)
        return {i: rest for i, *rest in zip(*(column.tolist() for column in columns), strict=True)}  # type: ignore[misc]

    kept, known = newest(ring), newest(long)
    assert len(kept) == len(ring)
    assert kept == {index: known[index] for index in kept}


def test_the_newest_slot_waits_for_its_successor() -> None:
    replay = counting_replay(100)
    play(replay, range(0))
    assert len(replay) == 0
    with pytest.raises(BadInput, match="no transition"):
        replay.sample(1, generator())
    play(replay, range(1))
    assert content(replay) == SEVEN_STEPS[:2]


@pytest.mark.parametrize("prioritised", [None, Prioritised(alpha=0.0)])
@pytest.mark.parametrize("capacity", [2, 4, 8, 12, 14])
def test_a_full_ring_holds_the_newest_whose_successor_it_holds(capacity: int, prioritised: Prioritised | None) -> None:
    replay = counting_replay(capacity, prioritised)
    play(replay, range(6))
    rows = {0: 0, 1: 2, 2: 4, 3: 5, 4: 6, 5: 8}  # the first transition of each step
    first = max(0, 6 - capacity // 2)
    assert content(replay) == SEVEN_STEPS[rows[first] :]


def test_many_laps_equal_a_list_without_an_end() -> None:
    short, long = counting_replay(20), counting_replay(250)
    play(short, range(100))
    play(long, range(100))
    assert short.added == long.added == len(long)
    assert 10 <= len(short) <= 20
    assert content(short) == content(long)[-len(short) :]


def test_rebuilt_envs_do_not_become_the_successor_of_the_old_ones() -> None:
    replay = counting_replay(100)
    play(replay, range(1))
    play(replay, range(1))
    assert content(replay) == SEVEN_STEPS[:2] * 2
    replay = counting_replay(4)  # and where the ring is full
    for _ in range(5):
        play(replay, range(1))
    assert content(replay) == SEVEN_STEPS[:2]  # a rebuild takes a slot: three hold two steps, or one and its rebuild


def test_what_is_stored_is_a_copy() -> None:
    replay = Replay(4, (1,), torch.uint8, 1)
    obs, none, real = torch.zeros(1, 1, dtype=torch.uint8), torch.zeros(1), torch.ones(1, dtype=torch.bool)
    replay.begin(obs)
    obs += 1
    replay.add(none, none, ~real, real, obs)
    obs += 1
    sample = replay.sample(1, generator())
    assert (sample.obs.item(), sample.next_obs.item()) == (0, 1)
    assert (sample.obs.dtype, sample.action.dtype, sample.position.dtype) == (torch.uint8, torch.int64, torch.int64)


# --------------------------------------------------------------------------------------------------------- sampling


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """In standard deviations of the distribution it should have."""
    freedom = len(counts) - 1
    return (float(((counts - expected) ** 2 / expected).sum()) - freedom) / (2 * freedom) ** 0.5


def test_every_transition_is_equally_likely() -> None:
    replay = counting_replay(60)
    play(replay, range(137))  # wrapped, with resets of either env in between
    draws = 100_000
    index = replay.sample(draws, generator(1)).position
    _, counts = np.unique(index.numpy(), return_counts=True)
    assert len(counts) == len(replay)
    assert abs(chi_square(counts, np.full(len(counts), draws / len(counts)))) < 4


def test_the_same_generator_gives_the_same_sample() -> None:
    replay = counting_replay(60)
    play(replay, range(40))
    one, other = replay.sample(32, generator(3)), replay.sample(32, generator(3))
    assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in one._asdict())
    assert not torch.equal(one.position, replay.sample(32, generator(4)).position)


def test_the_tree_finds_what_a_running_sum_finds() -> None:
    numbers = np.random.default_rng(0).integers(0, 4, 37)  # whole numbers are exact, and some are 0
    tree = SumTree(37)
    tree.fill(0, numbers.astype(float))
    mass = np.arange(0, numbers.sum(), 0.25)
    assert tree.find(mass).tolist() == np.searchsorted(np.cumsum(numbers), mass, side="right").tolist()


def test_the_tree_is_determined_by_its_leaves() -> None:
    random = np.random.default_rng(0)
    tree, numbers = SumTree(100), np.zeros(100)
    for _ in range(200):
        index, values = random.integers(0, 100, 8), random.lognormal(sigma=5, size=8)
        numbers[index] = values  # of two values for one leaf the last stays, here and there
        tree.set(index, values)
        first = int(random.integers(0, 95))
        numbers[first : first + 5] = values[:5] if first % 2 else 0.0
        tree.fill(first, numbers[first : first + 5])
    again = SumTree(100)
    again.fill(0, numbers)
    assert tree.leaf.tolist() == numbers.tolist()
    assert tree.node.tolist() == again.node.tolist()


def test_roundings_never_lead_to_a_leaf_of_zero() -> None:
    tree = SumTree(5)
    tree.fill(0, np.array([0.0, 0.1, 1e-300, 0.7, 0.0]))
    mass = np.array([0.0, 0.1, 0.8, tree.total, np.nextafter(tree.total, 2), 5.0])
    assert set(tree.find(mass).tolist()) <= {1, 2, 3}


def test_priorities_are_sampled_in_proportion_and_weighed_by_hand() -> None:
    replay = counting_replay(100, Prioritised(alpha=0.5, offset=1e-9))
    play(replay, range(2))  # four transitions
    index = torch.arange(4)
    replay.update(index, torch.tensor([1.0, 4.0, 9.0, 16.0]))  # √p = 1, 2, 3, 4 of 10
    draws = 10_000
    sample = replay.sample(draws, generator(), beta=0.5)
    counts = torch.bincount(sample.position).tolist()
    assert counts == pytest.approx([0.1 * draws, 0.2 * draws, 0.3 * draws, 0.4 * draws], abs=2)  # one draw per part
    # (n·P)^−½ = (4·0.1)^−½ …, divided by the largest
    expected = torch.tensor([1.0, 2**-0.5, 3**-0.5, 0.5])
    torch.testing.assert_close(sample.weight, expected[sample.position], rtol=1e-6, atol=0)
    assert replay.sample(8, generator(), beta=0.0).weight.tolist() == [1.0] * 8


def test_small_batches_are_in_proportion_too() -> None:
    replay = counting_replay(60, Prioritised(alpha=1.0))
    play(replay, range(137))
    known = np.unique(replay.sample(10_000, generator(), beta=1.0).position.numpy())
    p = np.random.default_rng(0).uniform(0.1, 1.0, len(known))
    replay.update(torch.from_numpy(known), torch.from_numpy(p))
    rng = generator(5)
    draws = np.concatenate([replay.sample(8, rng, beta=1.0).position.numpy() for _ in range(1_000)])
    index, counts = np.unique(draws, return_counts=True)
    assert index.tolist() == known.tolist()
    assert chi_square(counts, 8_000 * p / p.sum()) < 4


def test_new_transitions_get_the_highest_priority_so_far() -> None:
    replay = counting_replay(100, Prioritised(alpha=1.0, offset=1.0))
    play(replay, range(1))
    replay.update(torch.tensor([0]), torch.tensor([7.0]))
    replay.update(torch.tensor([0]), torch.tensor([2.0]))
    play(replay, range(1))
    assert replay.tensors()["priority"][:8].tolist() == [3, 1, 0, 0, 8, 8, 0, 0]


def test_an_update_that_comes_too_late_changes_nothing() -> None:
    replay = counting_replay(4, Prioritised(alpha=1.0))
    play(replay, range(2))
    old = replay.sample(64, generator(), beta=1.0).position
    play(replay, range(3))  # all of them are overwritten
    before = replay.tensors()["priority"]
    replay.update(old, torch.full((64,), 100.0))
    assert torch.equal(replay.tensors()["priority"], before)
    assert replay.max_priority == 1.0


def test_the_default_beta_is_that_of_sa_dqn() -> None:
    beta = Prioritised().beta
    assert (beta(0), beta(80_000), beta(6_000_000)) == (0.4, 0.4, 1.0)


# ------------------------------------------------------------------------------------------------------- bad input


def test_bad_input_is_one_clear_line() -> None:
    replay = Replay(10, (2,), torch.float32, 3)
    three, real, obs = torch.zeros(3), torch.ones(3, dtype=torch.bool), torch.zeros(3, 2)
    with pytest.raises(BadInput, match="must begin"):
        replay.add(three, three, real, real, obs)
    with pytest.raises(BadInput, match=r"float32 of shape \(3, 2\), got torch.uint8"):
        replay.begin(obs.to(torch.uint8))
    replay.begin(obs)
    with pytest.raises(BadInput, match=r"real must have shape \(3,\), got \(2,\)"):
        replay.add(three, three, real, real[:2], obs)
    with pytest.raises(FloatingPointError, match="reward"):
        replay.add(three, three / 0, real, real, obs)
    with pytest.raises(FloatingPointError, match="observation"):
        replay.add(three, three, real, real, obs / 0)
    assert (replay.written, len(replay)) == (1, 0)
    with pytest.raises(BadInput, match="prioritised"):
        replay.update(torch.tensor([0]), torch.tensor([1.0]))
    replay.add(three, three, real, real, obs)
    with pytest.raises(BadInput, match="beta"):
        replay.sample(1, generator(), beta=0.5)
    with pytest.raises(BadInput, match="uint8, float32 or float64"):
        Replay(10, (2,), torch.float16, 3)
    with pytest.raises(BadInput, match="replay_capacity must be a whole number ≥ 1"):
        Replay(0, (2,), torch.float32, 3)
    with pytest.raises(BadInput, match="alpha"):
        Prioritised(alpha=2.0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_priority_that_is_no_number_is_refused(wrong: float) -> None:
    replay = counting_replay(10, Prioritised())
    play(replay, range(1))
    with pytest.raises(FloatingPointError, match="priority"):
        replay.update(torch.tensor([0, 1]), torch.tensor([1.0, wrong]))


# ---------------------------------------------------------------------------------------------------------- memory


def test_two_hundred_thousand_atari_transitions_take_less_than_1_5_gb() -> None:
    needed = Replay.bytes_needed(200_000, (1, 84, 84), torch.uint8, 8)
    assert needed == (200_000 + 8) * (84 * 84 + 4 + 4 + 1 + 1 + 8)
    assert needed < 1.5e9
    assert Replay.bytes_needed(200_000, (1, 84, 84), torch.uint8, 8, Prioritised()) < 1.5e9


@pytest.mark.parametrize("prioritised", [None, Prioritised()])
@pytest.mark.parametrize(("shape", "dtype"), [((1, 84, 84), torch.uint8), ((4,), torch.float32)])
def test_the_estimate_is_what_is_held(
    shape: tuple[int, ...], dtype: torch.dtype, prioritised: Prioritised | None
) -> None:
    replay = Replay(1_001, shape, dtype, 8, prioritised=prioritised)
    assert replay.nbytes == Replay.bytes_needed(1_001, shape, dtype, 8, prioritised)


def test_too_large_a_replay_is_refused_with_the_largest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 20 * 10**9)
    with pytest.raises(BadInput) as error:
        check_memory(200_000_000, (1, 84, 84), torch.uint8, 8)
    most = 20 * 10**9 // (8 * 7_074) * 8 - 8  # whole slots, one of which is no capacity
    expected = f"replay_capacity 200,000,000 needs 1.41 TB of memory and 20 GB are free: use at most {most:,}"
    assert str(error.value) == expected
    for prioritised in (None, Prioritised()):
        with pytest.raises(BadInput) as error:
            check_memory(10**9, (4,), torch.float32, 3, prioritised)
        most = int(str(error.value).split()[-1].replace(",", ""))
        assert check_memory(most, (4,), torch.float32, 3, prioritised) <= 20 * 10**9
        with pytest.raises(BadInput):
            check_memory(most + 1, (4,), torch.float32, 3, prioritised)
    monkeypatch.setattr(module, "free_memory", lambda: 3)
    with pytest.raises(BadInput, match="needs 204 bytes of memory and 3 bytes are free: not even one transition fits"):
        check_memory(5, (4,), torch.float32, 1)


def test_the_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.free_memory()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + 10**8, -1))
    free = module.free_memory()
    assert before is not None
    assert free is not None
    assert abs(free - 10**8) < 10**7 < before


def test_a_system_that_tells_nothing_forbids_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert module._free_in_system(tmp_path / "none") is None
    monkeypatch.setattr(module, "free_memory", lambda: None)
    assert check_memory(10**12, (4,), torch.float32, 1) > 10**13


def test_actions_may_be_vectors() -> None:
    """Real numbers come back as they were stored, in one column per row."""
    replay = Replay(4, (1,), torch.float32, 2, action_size=3)
    assert replay.nbytes == Replay.bytes_needed(4, (1,), torch.float32, 2, None, 3)
    replay.begin(torch.zeros(2, 1))
    action, off = torch.tensor([[0.1, -0.2, 0.3], [1.0, 0.5, -1.0]]), torch.zeros(2, dtype=torch.bool)
    replay.add(action, torch.zeros(2), off, ~off, torch.ones(2, 1))
    sample = replay.sample(16, torch.Generator().manual_seed(0))
    assert sample.action.dtype == torch.float32
    assert {tuple(row) for row in sample.action.tolist()} == {tuple(row) for row in action.tolist()}
    with pytest.raises(BadInput, match=r"action must have shape \(2, 3\)"):
        replay.add(torch.zeros(2), torch.zeros(2), off, ~off, torch.ones(2, 1))
