"""What the CUDA kernels promise beside a vendor's library and the device's own copy, measured in fresh processes.

Bars are measured until the time for them is spent, in watched processes, each of which goes over all bars. A ratio
within a process comes from samples taken in turn; copies are another operation and are timed just before and just
after.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tabulate import tabulate

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.watched import Lost, answers

BUDGET = Budget(max_time_s=0.4)
#: A bar takes seconds; one that is silent for longer has hung.
SILENCE_S = 40.0
LAYOUTS = ("NN", "NT", "TN", "TT")
FP32 = ("gemm/cuda.warptile", "gemm/cuda.async", "gemm/cuda.splitk", "gemm/cuda.streamk")
WGMMA = ("gemm/cuda.wgmma", "gemm/cuda.wgmma_persistent")
THREE_TF32 = ("gemm/cuda.mma_3xtf32", "gemm/cuda.wgmma_3xtf32")


class Bar(NamedTuple):
    """The best of `kernels` on `problem` is at least `least` times as fast as `rival`, on its own problem."""

    promise: str
    problem: str
    kernels: tuple[str, ...]
    rival: str
    least: float
    rival_problem: str = ""
    errors: float | None = None  # the error may be this many times the rival's
    rivals: tuple[str, ...] = ()  # others beside `rival`, of which the fastest counts


def gemm_bars() -> Iterator[Bar]:
    """Against cuBLAS."""
    for shape in ("m4096n4096k4096", "m1024n2048k26752"):
        for layout in LAYOUTS:
            problem = f"gemm/{shape}/f32/{layout}"
            yield Bar(f"FP32 on {problem}: cuBLAS SGEMM", problem, FP32, "gemm/cublas.sgemm", 1.0)
    for size in (4096, 8192):
        problem = f"gemm/m{size}n{size}k{size}/bf16/NT"
        yield Bar(f"wgmma on {problem}: cuBLAS", problem, WGMMA, "gemm/cublas.gemmex", 1.0)
    problem = "gemm/m1024n2048k26752/bf16/NT"
    yield Bar(f"wgmma on {problem}: cuBLAS", problem, (*WGMMA, "gemm/cuda.wgmma_splitk"), "gemm/cublas.gemmex", 1.0)
    problem, fp8 = "gemm/m4096n4096k4096/e4m3.bf16/NT", ("gemm/cuda.wgmma_fp8",)
    yield Bar(f"FP8 on {problem}: 90% of cuBLASLt's FP8", problem, fp8, "gemm/cublaslt.heuristic", 0.9)
    problem = "gemm/m4096n4096k4096/f32/NT"
    promise = f"3xTF32 on {problem}: 2.2x cuBLAS SGEMM, twice its error"
    yield Bar(promise, problem, THREE_TF32, "gemm/cublas.sgemm", 2.2, errors=2.0)


def transpose_bars() -> Iterator[Bar]:
    """Against the suite's own copies of as many bytes."""
    registry = discover()
    for shape, place, least in (
        ("m1024n26752", "out", 0.97),
        ("m2048n26752", "out", 0.97),
        ("m1024n26752", "in", 0.4),
        ("m2048n26752", "in", 0.4),
        ("m8192n8192", "in", 0.9),
    ):
        problem = f"transpose/{shape}/f32/{place}"
        parsed = registry.problem(problem)
        ours = [k for k in registry.kernels.values() if (k.op, k.provider) == ("transpose", "cuda")]
        kernels = tuple(k.id for k in ours if k.refuses(parsed) is None)
        yield Bar(f"{problem}: {least:.0%} of copy", problem, kernels, "copy/cuda.*", least, f"copy/{shape}/f32")


#: VGG-16's conv3 to conv5, whose filters are 3x3 with padding 1, by channels, filters and side.
VGG = ((128, 256, 56), (256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 14))
#: L1 to L3 of convnet-benchmarks.
CONVNET = ("n128c3h128w128k96r11s11", "n128c64h64w64k128r9s9", "n128c128h32w32k128r9s9")


def conv_bars() -> Iterator[Bar]:
    """Against the fastest of those of cuDNN's algorithms in strict FP32 that run; the first takes every problem."""
    ours, rival = "conv/cuda.", "conv/cudnn.implicit_gemm"
    plain = tuple(f"conv/cudnn.{name}" for name in ("implicit_precomp_gemm", "gemm", "fft", "fft_tiling"))
    plain = (*plain, "conv/cudnn_frontend.fma")
    every = (*plain, *(f"conv/cudnn{name}" for name in (".winograd", ".winograd_nonfused", "_frontend.winograd")))
    for c, k, side in VGG:
        problem = f"conv/n32c{c}h{side}w{side}k{k}r3s3pad1/f32/nchw/fprop"
        promise = f"implicit GEMM on {problem}: 90% of cuDNN's FP32 without Winograd"
        yield Bar(promise, problem, (f"{ours}implicit",), rival, 0.9, rivals=plain)
        promise = f"fused Winograd on {problem}: 1.5x cuDNN's FP32"
        yield Bar(promise, problem, (f"{ours}winograd",), rival, 1.5, rivals=every)
    for shape in CONVNET:
        problem = f"conv/{shape}/f32/nchw/fprop"
        kernels = (f"{ours}fft_tiled", f"{ours}fft_fused")
        yield Bar(f"tiled FFT on {problem}: 2x cuDNN's FP32", problem, kernels, rival, 2.0, rivals=every)


def figure(bar: Bar) -> dict[str, Any]:
    """The figure of a bar in this process: `ratio`, `kernel`, `errors`, or `missing` with the reason."""
    try:
        return _across(bar) if bar.rival_problem else _side_by_side(bar)
    except LookupError as error:
        return {"missing": str(error)}


def replies(promises: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the figure of each of these bars."""
    known = {bar.promise: bar for bar in all_bars()}
    return (figure(known[promise]) for promise in promises)


def _side_by_side(bar: Bar) -> dict[str, Any]:
    contenders = (bar.rival, *bar.rivals, *bar.kernels)
    rows = {row.kernel: row for row in run_job(_job(bar.problem, contenders, bar.rival))}
    baseline, best = _right(rows[bar.rival]), _fastest([rows[name] for name in bar.kernels])
    rival = _fastest([baseline, *(rows[name] for name in bar.rivals)])
    ratio = _to_baseline(best, baseline) / _to_baseline(rival, baseline)
    errors = best.max_error / rival.max_error if best.max_error and rival.max_error else None
    return {"kernel": best.kernel, "ratio": ratio, "rival": rival.kernel, "errors": errors}


def _to_baseline(row: Measurement, baseline: Measurement) -> float:
    """How many times as fast as the baseline, by samples taken in turn."""
    if row is baseline:
        return 1.0
    if row.ratio is None:
        raise LookupError(f"{row.kernel} and {baseline.kernel} have no samples in common")
    return row.ratio.median


def _across(bar: Bar) -> dict[str, Any]:
    registry = discover()
    rivals = tuple(k.id for k in registry.kernels.values() if k.id.startswith(bar.rival.rstrip("*")))
    before = _fastest(run_job(_job(bar.rival_problem, rivals)))
    best = _fastest(run_job(_job(bar.problem, bar.kernels)))
    after = _fastest(run_job(_job(bar.rival_problem, rivals)))
    ours, theirs = (registry.problem(problem) for problem in (bar.problem, bar.rival_problem))
    moves = not (ours.flop and theirs.flop)
    work = ours.traffic_bytes / theirs.traffic_bytes if moves else ours.flop / theirs.flop
    rival_s = (_median_s(before) + _median_s(after)) / 2
    return {"kernel": best.kernel, "ratio": work * rival_s / _median_s(best), "errors": None}


def _job(problem: str, kernels: tuple[str, ...], baseline: str | None = None) -> Job:
    return Job((problem,), kernels, Mode.HOT, (), 0, BUDGET, threads=1, baseline=baseline)


def _right(row: Measurement) -> Measurement:
    if row.status != Status.OK or row.interval is None:
        raise LookupError(f"{row.kernel}: {row.status}: {row.reason}")
    return row


def _fastest(rows: list[Measurement]) -> Measurement:
    good = [row for row in rows if row.status == Status.OK and row.interval]
    return min(good, key=_median_s) if good else _right(rows[0])


def _median_s(row: Measurement) -> float:
    assert row.interval is not None
    return row.interval.median


def measure(bars: list[Bar], until_s: float, module: str = "gpu_bars") -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Yield the figures so far by promise, after each one, from as many fresh processes as fit before `until_s`.

    A bar that took its process along is not measured again.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    names, longest = [bar.promise for bar in bars], 0.0
    while names and now() + longest < until_s:
        began = now()
        for promise, answer in answers(module, names, SILENCE_S, until_s):
            found.setdefault(promise, []).append({"missing": answer.reason} if isinstance(answer, Lost) else answer)
            yield found
        names = [name for name in names if "missing" not in found.get(name, [{"missing": ""}])[-1]]
        longest = max(longest, now() - began)


def write(folder: Path, until_s: float) -> str:
    """Write bars.md among the files of a report after each figure, and return what it comes to."""
    bars, lines = all_bars(), []
    for found in measure(bars, until_s):
        lines = verdicts(bars, found)
        shown = tabulate(lines, ("", "promise", "median over processes [least, most]", "processes"), tablefmt="github")
        (folder / "bars.md").write_text(f"# Bars\n\n{shown}\n", encoding="utf-8")
    counts = Counter(line[0] for line in lines)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no time for any"


def verdicts(bars: list[Bar], found: dict[str, list[dict[str, Any]]]) -> list[tuple[str, str, str, int]]:
    """Whether each bar holds by the median over processes: (holds, promise, found, processes)."""
    lines = []
    for bar in bars:
        tries = found.get(bar.promise, [])
        good = [figure for figure in tries if "ratio" in figure]
        if not good or len(good) < len(tries):
            reason = next((figure["missing"] for figure in tries if "missing" in figure), "not measured")
            lines.append(("absent", bar.promise, reason, len(tries)))
            continue
        ratios = sorted(figure["ratio"] for figure in good)
        text = f"{median(ratios):.3f}x [{ratios[0]:.3f}, {ratios[-1]:.3f}] by {good[0]['kernel']}"
        text += f" over {good[0]['rival']}" if bar.rivals else ""
        holds = median(ratios) >= bar.least
        if bar.errors is not None:
            errors = [figure["errors"] for figure in good if figure["errors"] is not None]
            worst = max(errors, default=float("inf"))
            text, holds = f"{text}, {worst:.2g} times the error", holds and worst <= bar.errors
        lines.append(("holds" if holds else "MISSED", bar.promise, text, len(good)))
    return lines


def all_bars() -> list[Bar]:
    """Every bar of a Hopper-class GPU."""
    return [*gemm_bars(), *transpose_bars(), *conv_bars()]
