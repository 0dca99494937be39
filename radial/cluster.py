"""Where jobs run: processes of this machine, or a Ray cluster. The only file that imports Ray.

What a job is, is not known here: a function and what to call it with. Both places keep the same promises: results in
the order of the jobs, one failed job loses no other, a job whose process or node dies is tried again.
"""

import os
import re
import secrets
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from radial.core.errors import BadInput
from radial.jobs import POLL, THREADS_VARIABLE, JobsFailed, LocalPool, OnEnd, Outcome, Resources, timed

_Job = TypeVar("_Job")
_Value = TypeVar("_Value")
PLACES = ("local", "ray")
_ADDRESS = re.compile(r"auto|(?:ray://)?([A-Za-z0-9._-]+):(\d{1,5})")
TOKEN, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"
# Without it Ray puts the address of the network in the place of 127.0.0.1, and listens on every interface.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # nothing is sent, nothing is said
REACHED = 5.0  # seconds in which an address must answer
IN_FLIGHT = 256  # jobs at least that are with the cluster at a time: their arguments are in its memory
DEATHS = 5  # of one member of a group of actors, one after the other, at most


@dataclass(frozen=True)
class Place:
    """Where jobs run, and what each of them takes: the arguments of `map`.

    workers  at a time, on this machine or in a cluster that is started on it; a cluster at an address has its own
    """

    on: str = "local"
    workers: int = 1
    resources: Resources = Resources()
    address: str | None = None

    def __post_init__(self) -> None:
        check_where(self.on, self.address)
        if not (isinstance(self.workers, int) and 1 <= self.workers <= 1024):
            raise BadInput(f"jobs must be a whole number from 1 to 1024, got {self.workers!r}")
        if self.resources.gpus and self.on != "ray":
            raise BadInput("gpus_per_job is for --on ray")

    @property
    def is_here(self) -> bool:
        """Whether it is this process, one job after the other."""
        return self.on == "local" and self.workers == 1

    def map(
        self, function: Callable[[_Job], _Value], jobs: Sequence[_Job], progress: OnEnd | None = None
    ) -> list[Outcome[_Value]]:
        """Call `map` with this place."""
        return map(
            function, jobs, on=self.on, resources=self.resources, workers=self.workers, address=self.address,
            progress=progress,
        )  # fmt: skip

    def each(
        self, function: Callable[[_Job], _Value], jobs: Mapping[str, _Job], say: Callable[[str], None] | None = None,
        keep: Callable[[_Value], None] | None = None,
    ) -> list[_Value]:  # fmt: skip
        """The result of each job, by its name; `JobsFailed` once all have ended if one of them failed.

        say   gets a line when one ends        keep  gets its result at once, so that a driver that dies has lost little
        """
        names, ended = list(jobs), 0

        def tell(number: int, outcome: Outcome[_Value]) -> None:
            nonlocal ended
            ended += 1
            if not outcome.failed and keep is not None:
                keep(outcome.value)  # type: ignore[arg-type]
            if say is not None:
                say(f"{names[number]}: {outcome.error or 'done'} ({ended} of {len(names)})")

        found = self.map(function, list(jobs.values()), tell)
        failed = [f"{name}: {outcome.error}" for name, outcome in zip(names, found, strict=True) if outcome.failed]
        if failed:
            more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise JobsFailed(f"{len(failed)} of {len(names)} jobs failed: {failed[0]}{more}")
        return [outcome.value for outcome in found]  # type: ignore[misc]


def map(
    function: Callable[[_Job], _Value],
    jobs: Sequence[_Job],
    *,
    on: str = "local",
    resources: Resources | None = None,
    workers: int = 1,
    address: str | None = None,
    retries: int = 3,
    progress: OnEnd | None = None,
) -> list[Outcome[_Value]]:
    """Call a function with each job, and return how each ended, in their order.

    function  of a module, so that other processes can import it; it must bear being called again after a crash
    on        "local": processes of this machine, `workers` at a time; "ray": a cluster
    address   of a running cluster, "auto" or host:port; None: one is started here, for this call alone
    retries   how often a job is tried again whose process or node died; one that raises is not
    """
    check_where(on, address)
    needs = resources or Resources()
    tell = progress or (lambda number, outcome: None)
    if not jobs:
        return []
    if on == "local":
        return LocalPool(function, jobs, needs, workers, retries, tell).run()
    with _cluster(address, workers * needs.cpus) as ray:
        return _on_ray(ray, function, jobs, needs, retries, tell)


def check_where(on: str, address: str | None) -> None:
    """Refuse a place that is none, or an address that cannot be one."""
    if on not in PLACES:
        raise BadInput(f"on must be one of {', '.join(PLACES)}, got {on!r}")
    if address is not None and on != "ray":
        raise BadInput("address is for --on ray")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise BadInput(f"address must be auto, HOST:PORT or ray://HOST:PORT, got {address!r}")


def is_installed() -> bool:
    """Whether Ray is."""
    return find_spec("ray") is not None


# ---------------------------------------------------------------------------------------------------------------- Ray


@contextmanager
def _cluster(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, connected to the cluster at an address, or to one of our own on this machine with so many CPUs.

    Ours listens on loopback alone, has no dashboard, and takes nobody without the token made for it.
    """
    if not is_installed():
        raise BadInput("--on ray needs Ray: pip install 'radial-rl[ray]'")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address is None:  # before the import: Ray reads these but once
        os.environ.update(LOOPBACK)
        os.environ.setdefault(MODE, "token")
        os.environ.setdefault(TOKEN, secrets.token_hex(32))
    else:
        _check_reachable(address)
    import ray

    mine = not ray.is_initialized()
    if mine:
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}  # our stdout holds results only
        if address is None:
            settings |= {"num_cpus": cpus, "_node_ip_address": "127.0.0.1", "address": "local"}
            settings |= {"include_dashboard": False}
        else:
            settings |= {"address": address}
        try:
            ray.init(**settings)
        except Exception as error:  # noqa: BLE001  Ray's own errors have no common type
            raise BadInput(f"address {address or 'local'}: {' '.join(str(error).split())[:300]}") from None
        if address is None and not all(node["NodeManagerAddress"] == "127.0.0.1" for node in ray.nodes()):
            warnings.warn("Ray was imported before, so it listens beyond loopback", UserWarning, stacklevel=2)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody listens; Ray would try for minutes, and then end the process."""
    found = _ADDRESS.fullmatch(address)
    assert found is not None, "check_where comes first"
    host, port = found.groups()
    if host is None:
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise BadInput(f"address {address} cannot be reached: {error}") from None


def _check_fits(ray: Any, needs: Resources) -> None:
    """Warn where no node of the cluster has what a job takes: it would wait until one joins."""
    has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= needs.cpus and node.get("GPU", 0) >= needs.gpus for node in has):
        warnings.warn(
            f"no node has {needs.cpus} CPUs and {needs.gpus:g} GPUs: jobs wait until one joins the cluster",
            UserWarning, stacklevel=2,
        )  # fmt: skip


def _variables(cpus: int) -> dict[str, Any]:
    """The environment of a worker: its threads, and what a command told the processes it starts."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("RADIAL_")}
    return {"env_vars": {**ours, THREADS_VARIABLE: str(cpus)}}


def _on_ray(
    ray: Any, function: Callable[[Any], Any], jobs: Sequence[Any], needs: Resources, retries: int, tell: OnEnd
) -> list[Outcome[Any]]:
    """One task per job; Ray itself tries a task again whose worker or node died."""
    _check_fits(ray, needs)
    task = ray.remote(timed).options(
        num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=retries, runtime_env=_variables(needs.cpus)
    )
    most = max(IN_FLIGHT, 2 * int(ray.cluster_resources().get("CPU", 1)) // needs.cpus)
    waiting, running = deque(enumerate(jobs)), dict[Any, int]()
    outcomes: dict[int, Outcome[Any]] = {}

    def end(number: int, outcome: Outcome[Any]) -> None:
        outcomes[number] = outcome
        tell(number, outcome)

    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, job = waiting.popleft()
                try:
                    running[task.remote(function, job, needs.cpus)] = number
                except TypeError as error:  # before anything is sent
                    text = " ".join(str(error).split())[:300]
                    end(number, Outcome(None, f"it cannot be sent to another process: {text}", 0.0))
            if running:
                done, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                for reference in done:
                    end(running.pop(reference), _collect(ray, reference))
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=False)  # SIGINT in the worker: it saves and ends
        raise
    return [outcomes[number] for number in range(len(jobs))]


def _collect(ray: Any, reference: Any) -> Outcome[Any]:
    try:
        found: Outcome[Any] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:
        text = " ".join(str(error).split())[:300]
        return Outcome(None, f"{type(error).__name__}: {text}", 0.0)


# ------------------------------------------------------------------------------------------------------------- actors


class _Member:
    """An object in a process of its own, made there."""

    def __init__(self, make: Callable[[Any], Any], job: Any) -> None:
        import torch

        torch.set_num_threads(1)
        self.made = make(job)

    def call(self, method: str, shared: Any, own: Any) -> Any:
        return getattr(self.made, method)(shared, own)


class ActorGroup(Generic[_Job]):
    """Objects in processes of a Ray cluster, one for each job, that are called together; a dead one is made anew.

    make     of a module: job → an object whose methods take (shared, own)
    revive   job's number → calls (method, shared, own) that bring a new object to where the dead one was
    deaths   of all so far
    """

    def __init__(
        self, make: Callable[[_Job], Any], jobs: Sequence[_Job], revive: Callable[[int], list[tuple[str, Any, Any]]],
        address: str | None = None,
    ) -> None:  # fmt: skip
        check_where("ray", address)
        self._make, self._jobs, self._revive, self.deaths = make, list(jobs), revive, 0
        self._open = ExitStack()
        self._ray = self._open.enter_context(_cluster(address, len(self._jobs)))
        self._members = [self._member(job) for job in self._jobs]

    def _member(self, job: _Job) -> Any:
        # Half a CPU: the driver waits while they act, and one that learns must not keep a runner of its cluster out.
        made = self._ray.remote(_Member).options(num_cpus=0.5, runtime_env=_variables(1))
        return made.remote(self._make, job)

    def call(self, method: str, shared: Any, owns: Sequence[Any]) -> list[Any]:
        """The method of every member with (shared, its own), side by side; the results in their order.

        shared is sent once. An exception of a member is raised here.
        """
        sent = self._ray.put(shared)
        calls = [member.call.remote(method, sent, own) for member, own in zip(self._members, owns, strict=True)]
        return [self._result(number, call, method, sent, owns[number]) for number, call in enumerate(calls)]

    def _result(self, number: int, call: Any, method: str, sent: Any, own: Any) -> Any:
        for _ in range(DEATHS):
            try:
                return self._get(call)
            except self._ray.exceptions.RayActorError:
                self.deaths += 1
                self._members[number] = member = self._member(self._jobs[number])
                for past in self._revive(number):
                    member.call.remote(*past)  # calls of one member are made in order
                call = member.call.remote(method, sent, own)
        raise JobsFailed(f"worker {number} died {DEATHS} times in a row in {method}")

    def _get(self, call: Any) -> Any:
        """A result; the wait has a limit, so that Python can run signal handlers."""
        while True:
            try:
                return self._ray.get(call, timeout=POLL)
            except self._ray.exceptions.GetTimeoutError:
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None

    def close(self) -> None:
        """End all of them, and the cluster if it was started for them."""
        for member in self._members:
            self._ray.kill(member)
        self._members = []
        self._open.close()
