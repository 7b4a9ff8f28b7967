"""For each way to launch GPU kernels, compare event times with the wall clock and with known durations.

If a kernel runs on a different stream from the events, its event time is nearly zero, although its results are right.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernelmark.bench.measure.devices import devices_present, get_device
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.measure.launch_pycuda import take_stream
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.measure.timing import captured, now
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import CudaKernel, Launch
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.child import Lost, answers
from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.known import WAY_S, plugin

#: The accepted relative difference between event time, wall clock and known duration.
BOUND = 0.02
#: The least duration of a batch. The wall clock includes a launch and a wait, which cost little compared with this.
LEAST_S = 20e-3
GOES, MOST_GOES = 6, 24
#: The most seconds for a way to launch, and its largest share of all time, so that one that hangs does not stop others.
SILENCE_S, SHARE = 60.0, 0.3
SPIN, PROBLEM = "copy/cuda.way", "copy/m4n8/f32"


class LaunchWay(NamedTuple):
    """A way to launch: a kernel on a problem, launched by `launcher`, directly or from a graph.

    length_s: the kernel's known duration, or None. serves: globs of the kernels that are launched in this way.
    """

    kernel: str
    problem: str = PROBLEM
    launcher: str = "cuda-core"
    mode: Mode = Mode.HOT
    length_s: float | None = WAY_S
    serves: tuple[str, ...] = ()


#: PyCUDA comes last, since from then on the device uses PyCUDA's stream.
WAYS: Mapping[str, LaunchWay] = {
    "cuda-core": LaunchWay(SPIN, serves=("*/cuda.*",)),
    "cuLaunchKernelEx": LaunchWay("copy/selftest.way_launch_ex", serves=("*/cuda.*wgmma*", "*/cuda.tma*")),
    "RawKernel": LaunchWay("copy/selftest.way_raw_kernel", serves=("conv/cufft.*",)),
    "ElementwiseKernel": LaunchWay("copy/selftest.way_elementwise_kernel", serves=("fft/cufft.*",)),
    "graph": LaunchWay(SPIN, mode=Mode.GRAPH),
    "cuFFT": LaunchWay("fft/cufft.plan", "fft/b65536h1w1024/f32/c2c", length_s=None, serves=("*/cufft.*",)),
    "cuBLAS": LaunchWay(
        "gemm/cublas.sgemm", "gemm/m2048n2048k2048/f32/NN", length_s=None, serves=("*/cublas.*", "*/cublaslt.*")
    ),
    "cuDNN": LaunchWay(
        "conv/cudnn.implicit_gemm",
        "conv/n32c64h56w56k64r3s3pad1/f32/nchw/fprop",
        length_s=None,
        serves=("conv/cudnn.*", "conv/cudnn_frontend.*"),
    ),
    "PyCUDA": LaunchWay(SPIN, launcher="pycuda"),
}


def replies(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """For each way to launch, yield the seconds per call by events and wall clock, or why the way is missing here."""
    for name in names:
        way = WAYS[name]
        try:
            event_s, wall_s = _spans(way)
        except (Unsupported, ImportError) as error:
            yield {"missing": str(error).split("\n")[0]}
        else:
            yield {"event_s": event_s, "wall_s": wall_s}


def _spans(way: LaunchWay) -> tuple[float, float]:
    registry = discover((plugin("timed"),))
    kernel, problem = registry.kernels[way.kernel], registry.problem(way.problem)
    device = get_device(kernel.device)
    if way.launcher == "pycuda":
        take_stream(device)
    operands = OperandSet(problem, device)
    x = Operands(operands, kernel.order, device, 1, ScratchBuffers(device))
    if isinstance(kernel, CudaKernel):
        launch = cuda_launch(kernel, problem, x, way.launcher)
    else:
        launch = kernel.launch(problem, x)
    draw = Draw(problem, 0)  # drawn last: up to 128 million numbers, not needed if a library is missing
    draw.redraw()
    operands.load(draw)
    launch()
    device.synchronize()
    if way.mode.does.replays:
        launch = captured(launch, device.stream)
    return _timed(device, launch, way.launcher != "pycuda")


def _timed(device: Any, launch: Launch, hold: bool) -> tuple[float, float]:
    """Return seconds per call by the device's clock and by the host's, from the attempt with the least host time.

    A busy host wakes up late, which only lengthens its time, so attempts are added while the clocks disagree. The first
    attempt warms up and is not used.
    """
    clock = device.clock(hold)
    calls = [launch] * max(1, min(round(LEAST_S / max(clock.time([launch]), 1e-9)), clock.max_batch))
    _go(device, clock, calls)
    best = _go(device, clock, calls)
    for go in range(2, MOST_GOES):
        if go >= GOES and abs(best[0] - best[1]) <= BOUND * best[1]:
            break
        best = min(best, _go(device, clock, calls), key=lambda spans: spans[1])
    return best


def _go(device: Any, clock: Any, calls: list[Launch]) -> tuple[float, float]:
    event_s = clock.time(calls)
    device.synchronize()
    began = now()
    for call in calls:
        call()
    device.synchronize()
    return event_s, (now() - began) / len(calls)


def judge(name: str, answer: dict[str, Any] | Lost) -> Finding:
    """Return the finding on a way to launch; it holds if event time, wall clock and known duration agree."""
    check, bound = f"clocks: {name}", f"{100 * BOUND:g} %"
    if isinstance(answer, Lost):
        return Finding(check, answer.reason, bound, False)
    if "missing" in answer:
        return Finding(check, answer["missing"], bound, None)
    event_s, wall_s, length_s = answer["event_s"], answer["wall_s"], WAYS[name].length_s
    text = f"events {1e6 * event_s:.1f} us, wall clock {1e6 * wall_s:.1f} us"
    others = [wall_s]
    if length_s is not None:
        text, others = f"{text}, known {1e6 * length_s:.1f} us", [wall_s, length_s]
    return Finding(check, text, bound, all(abs(event_s - other) <= BOUND * other for other in others))


def findings(until_s: float) -> Iterator[tuple[str, Finding]]:
    """Yield the name and finding of each way to launch, from monitored processes, until `until_s` (monotonic clock)."""
    silence_s = min(SILENCE_S, SHARE * (until_s - now()))
    for name, answer in answers(__name__, tuple(WAYS), silence_s, until_s):
        yield name, judge(name, answer)


def jobs() -> int:
    """Return the number of ways to launch that can be checked here; 0 without a GPU."""
    return len(WAYS) if "cuda" in devices_present() else 0


def check(tick: Tick) -> Iterator[Finding]:
    """Check the event times of each way to launch, if there is a GPU."""
    if jobs():
        for _, finding in findings(now() + SILENCE_S * len(WAYS)):
            tick()
            yield finding
