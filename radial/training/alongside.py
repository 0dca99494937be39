"""The updates between two steps of the environments: one after the other with them, or on a second core meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Rounds:
    """Runs rounds of updates and hands their weights over.

    hand_over   called in the caller's thread after each round: the actor gets the new weights
    concurrent  False: a round is finished when `start` returns. True: it runs in a second thread until `wait`, so the
                actor's weights are one round old

    Between `start` and `wait` the caller acts and steps the environments; it touches neither learner nor replay. So
    both orders are fixed, and a concurrent training is as repeatable as the other.
    """

    def __init__(self, hand_over: Callable[[], None], concurrent: bool) -> None:
        self.hand_over = hand_over
        self._pool = ThreadPoolExecutor(1, "updates") if concurrent else None
        self._running: Future[None] | None = None

    def start(self, updates: Callable[[], None]) -> None:
        """Run a round."""
        self.wait()
        if self._pool is None:
            updates()
            self.hand_over()
        else:
            self._running = self._pool.submit(updates)

    def wait(self) -> None:
        """Finish the round under way; an error in it is raised here."""
        if self._running is not None:
            running, self._running = self._running, None
            running.result()
            self.hand_over()

    def __enter__(self) -> "Rounds":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
