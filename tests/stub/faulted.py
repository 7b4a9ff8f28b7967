"""Faults of the device as cuda-core and the driver's bindings meet them; each is asked for in the environment."""

import os

from cuda.bindings import driver

from stub.programs import device, launch, new_stream, nothing, span


def _ask(fault: str, at: str) -> None:
    os.environ["KM_STUB_FAULT"], os.environ["KM_STUB_FAULT_AT"] = fault, at


def memory_that_runs_out() -> list[str]:
    """Return the statuses of three allocations, of which the second and all after it find no memory."""
    device()
    _ask("oom", "2")
    results = [driver.cuMemAlloc(16) for _ in range(3)]
    driver.cuMemFree(results[0][1])
    return [str(status.name) for status, _ in results]


def clock_that_jumps() -> list[float]:
    """Return the spans of launches of 1 us in milliseconds: of a sound kernel, then twice of one that lets it jump."""
    stream, sound, struck = new_stream(), nothing(), nothing("struck")
    _ask("clock", "truc")
    return [span(stream, lambda kernel=kernel: launch(stream, kernel)) for kernel in (sound, struck, struck)]


def illegal_address() -> list[str]:
    """Return the statuses of a launch that reads an illegal address, and of calls after it."""
    stream, sound, struck = new_stream(), nothing(), nothing("struck")
    _ask("illegal", "truc")
    launch(stream, sound)
    found = [driver.cuCtxSynchronize()[0]]
    launch(stream, struck)  # the error is not yet known
    found += [driver.cuCtxSynchronize()[0], driver.cuMemAlloc(16)[0], driver.cuStreamQuery(stream.handle)[0]]
    return [str(status.name) for status in found]
