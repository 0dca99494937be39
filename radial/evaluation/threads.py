"""How many threads torch computes on: one where observations are vectors, unless somebody has chosen."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

THREADS = "OMP_NUM_THREADS"  # who sets it has chosen


def one_thread_for(observation_shape: Sequence[int] | None) -> None:
    """Let torch compute on one thread where observations are vectors; None: not known.

    On networks that small a second thread waits more than it works, and beside another busy process it costs nearly all
    of the time.
    """
    import torch

    if observation_shape is not None and len(observation_shape) == 1 and THREADS not in os.environ:
        torch.set_num_threads(1)


@contextmanager
def torch_threads(count: int | None, observation_shape: Sequence[int] | None) -> Iterator[None]:
    """`count` threads, or where it is None the rule of `one_thread_for`; afterwards as many as before."""
    import torch

    before = torch.get_num_threads()
    try:
        if count is None:
            one_thread_for(observation_shape)
        else:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)
