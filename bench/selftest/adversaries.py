"""Whether kernels that cheat are caught, and the honest one beside them is not harmed."""

from collections.abc import Iterator

from bench.measure.devices import devices_present
from bench.measure.measurement import Measurement
from bench.plan.case import Budget, Job, WorkerKey
from bench.plan.modes import Mode
from bench.plan.status import Status
from bench.run.pool import Workers
from bench.selftest.finding import Finding, Tick
from bench.selftest.known import plugin

PROBLEM, HONEST = "gemm/m256n256k256/f32/NN", "gemm/selftest.honest"
#: Statuses that catch a cheat; where only the time gives it away, `wrong` cannot be asked for.
CAUGHT = (Status.WRONG, Status.MISTRUSTED)
EXPECTED = {
    "cached": (Status.WRONG,),
    "only_when_changed": (Status.MISTRUSTED,),
    "fingerprints": (Status.WRONG,),
    "in_set_up": (Status.WRONG,),
    "zeroes_input": (Status.WRONG,),
    "on_another_thread": CAUGHT,
    "returns_early": CAUGHT,
    "out_of_bounds": (Status.WRONG,),
}
ON_GPU = {"on_another_stream": CAUGHT}


def expected() -> dict[str, tuple[Status, ...]]:
    """The cheats that can be tried here, and the statuses that each may end with."""
    return EXPECTED | (ON_GPU if "cuda" in devices_present() else {})


def check(tick: Tick) -> Iterator[Finding]:
    """Each cheat in a fresh process, in turn with the honest product."""
    for cheat, statuses in expected().items():
        kernels = (HONEST, f"gemm/selftest.{cheat}")
        job = Job((PROBLEM,), kernels, Mode.HOT, (plugin("cheats"),), 0, Budget(max_time_s=0.3), 1, HONEST)
        with Workers() as workers:
            honest, found = workers.run(job, WorkerKey("cuda" if cheat in ON_GPU else "cpu", 1))
        tick()
        yield caught(cheat, honest, found, statuses)


def caught(cheat: str, honest: Measurement, found: Measurement, statuses: tuple[Status, ...]) -> Finding:
    """Return whether the cheat has one of its statuses, and no time."""
    holds = honest.status == Status.OK and found.status in statuses and not found.samples
    said = f"{found.status}: {found.reason}" if found.reason else found.status
    beside = "" if honest.status == Status.OK else f"; honest {honest.status}: {honest.reason}"
    return Finding(f"adversaries: {cheat.replace('_', ' ')}", said + beside, " or ".join(statuses), holds)
