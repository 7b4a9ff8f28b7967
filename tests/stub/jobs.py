"""Jobs on the stub driver, with the project's launcher, clock and verification; the emulator runs the kernels."""

import os
from contextlib import redirect_stdout
from io import StringIO
from unittest.mock import patch

import cuda.core as core
import pytest

import agreement
import counters
from kernelmark.bench.measure import cuda, timing
from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.measure.tensormap import encode
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import TensorMap
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job
from kernelmark.bench.selftest.clocks import judge, replies
from kernelmark.bench.selftest.known import WAY_S, plugin
from kernelmark.kernels.transfer import _streams
from stub import control
from stub.emulated import Emulator
from stub.programs import error_of, launch, nothing


def verified(kernel, problem, launcher="cuda-core", mode=Mode.VERIFY):
    emulator = Emulator()
    return _job(kernel, problem, Mode(mode), launcher) | {"complaints": emulator.complaints, "ran": len(emulator.ran)}


def transferred(kernel, problem, mode=Mode.VERIFY):
    """Run a transfer in pieces of at most 4 KiB, and the kernels of its work on arrival in the emulator."""
    emulator = _in_pieces()
    return _job(kernel, problem, Mode(mode)) | {"complaints": emulator.complaints}


def timed_once(kernel, problem):
    """Time one call of a transfer on a held stream; return the seconds between the events.

    A job would repeat the call for ever if the events do not cover it.
    """
    _in_pieces()
    device, chosen, parsed = get_device("cuda"), discover().kernels[kernel], discover().problem(problem)
    operands, scratch = OperandSet(parsed, device, chosen.host_memory), ScratchBuffers(device, chosen.host_memory)
    launch = chosen.launch(parsed, Operands(operands, "C", device, 1, scratch))
    return device.clock(hold=True).time([launch])


def agreed(kernel):
    """Compare the device's result of a kernel's smallest case with the emulator's, as `make gpu` does."""
    Emulator()
    return list(agreement.replies([kernel]))


def launched_alone(kernel, problem):
    control.run_launches_with(lambda launch: 0)
    with redirect_stdout(StringIO()) as printed:
        counters.launch_alone(kernel, problem)
    return printed.getvalue()


def summed(kernel, problem, host_bytes=2**40):
    """Verify a sum of gradients on a host with `host_bytes` bytes, and the sum of the same gradients on the device."""
    Emulator()
    with patch.object(cuda, "whole_bytes", lambda: host_bytes):
        rows = run_job(Job((problem,), (kernel, "aggregate/cuda.device"), Mode.VERIFY, (), 0, Budget(), threads=1))
    return {row.kernel: [row.status, row.reason, row.scratch_bytes] for row in rows}


def between_gpus(kernel, problem, mode=Mode.VERIFY, plugin=""):
    """Run a kernel whose operands are on several GPUs; the emulator runs the CUDA kernels that compute sums."""
    from stub.rehearsed import REHEARSED

    discover((plugin,) if plugin else ())
    control.launches_take(20_000_000)
    timing.time = VirtualTime()
    return _job(kernel, problem, Mode(mode)) | {"complaints": REHEARSED.complaints, "ran": len(REHEARSED.ran)}


def locked(kind, nbytes):
    cuda.whole_bytes = lambda: 65536
    memory = cuda.DriverMemory()
    allocations = [memory.allocate(kind, nbytes)]
    return error_of(lambda: allocations.append(memory.allocate(kind, nbytes)))


def not_run(kernel, problem):
    control.run_launches_with(lambda launch: 0)
    return _job(kernel, problem, Mode.VERIFY)


def compiled(folder):
    os.environ["XDG_CACHE_HOME"] = folder
    return compile_cubin("transpose/naive.cu", ["transpose_naive<unsigned>"], "sm_90a").compiler


def refused_map():
    array = get_device("cuda").bytes(4096).view("f4").reshape(32, 32)
    with pytest.raises(UsageError) as error:
        encode(TensorMap("a", (8, 64), swizzle="32B"), array, "k")
    return str(error.value)


def timed(kernel, problem, mode, launcher="cuda-core", length_ns=20_000_000, host_ns=3_000):
    """Time a kernel, which may be a cheat, on a problem with the virtual clock; return its row's fields.

    The host also uses the virtual clock, since the time that the emulator takes is not part of a launch.
    """
    discover((plugin("cheats"),))
    control.launches_take(length_ns)
    control.host_takes(host_ns)
    timing.time = VirtualTime()
    return verified(kernel, problem, launcher, mode)


def synchronising_call():
    device, kernel = get_device("cuda"), nothing()
    stream = core.Stream.from_handle(device.stream.ptr)
    control.launches_take(4_000_000)
    clock = device.clock(hold=True)
    clock.RELEASE_S = 0.05
    done = []
    clock.restore = lambda: done.append("restored")

    def call():
        done.append("called")
        launch(stream, kernel)
        stream.sync()

    span = clock.time([call])
    return {"held": clock.holds_stream, "span": span, "done": done}


def way(name):
    control.run_launches_with(lambda launch: 0)
    control.launches_take(round(WAY_S * 1e9))
    timing.time = VirtualTime()
    (reply,) = replies((name,))
    return reply | {"holds": judge(name, reply).holds}


class VirtualTime:
    """A clock for the host that moves with the driver's clock, and by a microsecond each time it is read."""

    _looks = 0

    def perf_counter(self):
        self._looks += 1
        return control.now_ns() * 1e-9 + self._looks * 1e-6

    def sleep(self, seconds):
        """Return at once, since no threads have to settle."""


def _in_pieces():
    """Divide transfers into pieces of 4 KiB, use the virtual clock, and return the emulator that runs kernels."""
    _streams.LEAST_BYTES = _streams.Slot.NBYTES = 4096
    control.launches_take(50_000)  # so that a sample has a few calls
    timing.time = VirtualTime()
    return Emulator()


def _job(kernel, problem, mode, launcher="cuda-core"):
    (row,) = run_job(Job((problem,), (kernel,), mode, (), 0, Budget(max_time_s=0.01), threads=1, launcher=launcher))
    return {name: getattr(row, name) for name in ("status", "reason", "samples", "disturbed", "launched")}
