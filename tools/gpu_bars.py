"""Bars that our CUDA kernels have to reach against vendors' kernels of the same arithmetic, judged by rows of a run.

A bar compares our fastest kernel with the vendors' fastest within one class: one problem and one numerics, which also
separates algorithms (`fp32`, `fft`, `winograd`, `winograd4`). Transpositions are compared with named copies of the same
number of bytes. `lines` compares across classes: our best kernel with the vendors' best.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.plan.kernel import VENDORS, Kernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tiles import Tile, tile_text
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, by_columns
from kernelmark.bench.report.format import operation

LAYOUTS = ("NN", "NT", "TN", "TT")
FOUNDING = "m1024n2048k26752"
#: The number of fresh processes that a verdict needs.
PROCESSES = 3


class Bar(NamedTuple):
    """A bar: our fastest kernel on `problem` must be at least `least` times as fast as the fastest rival.

    numerics: our kernels' numerics; "" stands for all (a line across classes). on: the rivals' problem, if it differs.
    rivals: the rivals' ids, if given. rival_numerics: the rivals' numerics, if it differs. errors: the limit of the
    ratio of our error to theirs.
    """

    problem: str
    numerics: str
    least: float
    on: str = ""
    rivals: tuple[str, ...] = ()
    rival_numerics: str = ""
    errors: float | None = None

    @property
    def against(self) -> str:
        if self.on:
            return f"{operation(self.on)} of as many bytes"
        error = f", at most {self.errors:g} times its error" if self.errors else ""
        return (self.rival_numerics or ("same arithmetic" if self.numerics else "any arithmetic")) + error

    @property
    def is_fair(self) -> bool:
        return bool(self.numerics) and not self.rival_numerics


#: VGG-16's conv3 to conv5 at 32 images.
VGG = [
    f"conv/n32c{c}h{side}w{side}k{k}r3s3pad1/f32/nchw/fprop"
    for c, k, side in ((128, 256, 56), (256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 14))
]
#: L1 to L3 of convnet-benchmarks.
CONVNET = ("n128c3h128w128k96r11s11", "n128c64h64w64k128r9s9", "n128c128h32w32k128r9s9")


def bars() -> Iterator[Bar]:
    """Yield every bar of a Hopper-class GPU, each within one class."""
    for shape in ("m4096n4096k4096", FOUNDING):
        yield from (Bar(f"gemm/{shape}/f32/{layout}", "fp32", 1.0) for layout in LAYOUTS)
    for shape in ("m4096n4096k4096", "m8192n8192k8192", FOUNDING):
        yield Bar(f"gemm/{shape}/bf16/NT", "bf16", 1.02)
    yield Bar("gemm/m8192n4096k4096/bf16/NT/groups8-skewed", "bf16", 1.0)
    yield from (Bar(f"gemm/m4096n4096k4096/f32/{layout}", "tf32", 0.95) for layout in LAYOUTS)
    yield from (Bar(f"gemm/m4096n4096k4096/e4m3.bf16/NT{scales}", "e4m3", 0.95) for scales in ("", "/scale-blocks"))
    yield Bar("gemm/m4096n4096k4096/s8.s32/NT", "exact", 0.95)
    yield Bar("gemm/m4096n4096k4096/f64/NT", "fp64", 0.9)
    for shape, place, least in (
        ("m1024n26752", "out", 0.96),
        ("m2048n26752", "out", 0.96),
        ("m1024n26752", "in", 0.38),
        ("m2048n26752", "in", 0.38),
        ("m8192n8192", "in", 0.92),
    ):
        copies = ("copy/cuda.memcpy", "copy/cuda.vectorised")
        yield Bar(f"transpose/{shape}/f32/{place}", "exact", least, f"copy/{shape}/f32", copies)
    for problem in VGG:
        yield from (Bar(problem, numerics, 1.0) for numerics in ("fp32", "winograd", "winograd4"))
    yield from (Bar(f"conv/{shape}/f32/nchw/fprop", "fft", 1.2) for shape in CONVNET)


def lines() -> list[Bar]:
    """Return comparisons across classes. They are not bars; they show the gain for users who accept any arithmetic."""
    problem = "gemm/m4096n4096k4096/f32/NT"
    return [Bar(problem, "3xtf32", 2.4, rival_numerics="fp32", errors=2.0), *(Bar(name, "", 0.9) for name in VGG)]


def contenders(bar: Bar, registry: Registry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of our kernels and of the rivals of a bar, each on its own problem."""
    ours = _able(registry, bar.problem, ("cuda",), bar.numerics)
    if bar.rivals:
        return ours, tuple(name for name in bar.rivals if name in registry.kernels)
    return ours, _able(registry, bar.on or bar.problem, VENDORS, bar.rival_numerics or bar.numerics)


#: Rungs of the ladder that later rungs replaced: they are never the fastest.
_RUNGS = {
    "gemm": ("naive", "coalesced", "tiled", "blocktile1d", "blocktile2d", "vectorised", "wmma", "mma"),
    "conv": ("im2col", "direct", "direct_tiled"),
    "transpose": ("naive", "unpadded"),
}
#: Tiles that contend in bars in addition to a kernel's default, given by the values that differ from it. They are here
#: until measurements on a device decide which tile is the default.
VARIANTS: dict[str, tuple[dict[str, int], ...]] = {
    "gemm/cuda.splitk": ({"BK": 16, "STAGES": 3},),
    "gemm/cuda.streamk": ({"STAGES": 3}, {"BK": 16, "STAGES": 3}),
    "gemm/cuda.wgmma_3xtf32": ({"REGISTERS": 0},),
    "transpose/cuda.vectorised": ({"GROUP": 2}, {"GROUP": 8}),
    "transpose/cuda.vectorised_inplace": ({"GROUP": 4},),
    "transpose/cuda.c2r": ({"STAGES": 2},),
    "transpose/cuda.c2r_fused": ({"ORDERED": 1}, {"ORDERED": 1, "STAGES": 2}),
}


def variants(kernels: Iterable[str], problem: str, registry: Registry, limits: DeviceLimits) -> Iterator[str]:
    """Yield each kernel, and then, as KERNEL@TILE, each of its VARIANTS that supports the problem."""
    for name in kernels:
        yield name
        kernel, wanted = registry.named(name), registry.problem(problem)
        default = kernel.tile_for(wanted, limits) if name in VARIANTS and not kernel.refuses(wanted, limits) else None
        for values in VARIANTS.get(name, ()) if default else ():
            tile = Tile(**{**vars(default), **values})
            if tile != default and kernel.unfit(wanted, tile, limits) is None:
                yield with_tile(name, tile, wanted, registry, limits)


def with_tile(name: str, tile: Tile, problem: Problem, registry: Registry, limits: DeviceLimits) -> str:
    """Return a kernel's id with a tile: the values that differ from the default, or more if these are not enough."""
    kernel, values = registry.named(name), vars(tile)
    default = kernel.tile_for(problem, limits)
    if tile == default:
        return name
    pinned = {key for key, value in values.items() if default is None or vars(default)[key] != value}
    while True:
        kernel_id = f"{name}@{tile_text({key: value for key, value in values.items() if key in pinned})}"
        if registry.named(kernel_id).tile_for(problem, limits) == tile or len(pinned) == len(values):
            return kernel_id
        pinned.add(next(key for key in values if key not in pinned))


def is_rival(kernel: Kernel) -> bool:
    """Return whether a kernel may represent its side in a bar; cuBLASLt's single algorithms and early rungs may not."""
    if kernel.provider == "cublaslt":
        return not kernel.name.startswith("algo_")
    return kernel.provider != "cuda" or kernel.name not in _RUNGS.get(kernel.op, ())


#: cuBLAS calls that first transpose, or read C as column-major: rivals only for the founding question.
_SEVERAL = ("tnn_geam", "tnn", "inplace", "two_step")


def _able(registry: Registry, name: str, providers: Sequence[str], numerics: str) -> tuple[str, ...]:
    problem = registry.problem(name)
    of_op = (k for k in registry.kernels.values() if k.op == problem.op and k.provider in providers)
    # For f32, any numerics include those of fast algorithms in FP32.
    strict = {"fp32", "fft", "winograd", "winograd4"} if problem.dtype == "f32" else {problem.dtype}
    classes = {numerics} if numerics else strict
    alone = (k for k in of_op if is_rival(k) and not k.name.endswith("_colmajor") and k.name not in _SEVERAL)
    return tuple(k.id for k in alone if not k.refuses(problem) and k.numerics_for(problem) in classes)


class Verdict(NamedTuple):
    """A verdict on a bar. state: holds, missed, open or absent; row, rival, ratio: our row, the rival's, the ratio."""

    state: str
    text: str
    row: Result | None = None
    rival: Result | None = None
    ratio: Ratio | None = None


def judge(bar: Bar, ours: Sequence[str], rivals: Sequence[str], rows: Sequence[Result], work: float = 1.0) -> Verdict:
    """Judge a bar by the rows of one run. work: our work divided by the rivals', if their problem differs."""
    our_rows = [r for r in rows if r.kernel.partition("@")[0] in ours and r.problem == bar.problem]
    rival_rows = [r for r in rows if r.kernel in rivals and r.problem == (bar.on or bar.problem)]
    for side, ids, words in ((our_rows, ours, "kernel of ours"), (rival_rows, rivals, "rival")):
        if not any(map(_is_right, side)):
            reasons = [f"{r.kernel}: {r.status}: {r.reason}" for r in side if r.reason]
            return Verdict("absent", reasons[0] if reasons else f"no {words} has a row" if ids else f"no {words}")
    sides = (our_rows, rival_rows)
    row, rival = (min(filter(_is_right, side), key=lambda r: r.time_s_median or 0.0) for side in sides)
    ratio = by_columns(row, rival).scaled(work)
    processes = min(row.processes or 1, rival.processes or 1)
    state, text = "open", ""
    if bar.errors and (row.max_error or 0.0) > bar.errors * (rival.max_error or 0.0):
        state, text = "missed", f"its error is {row.max_error:.2g}, the rival's {rival.max_error:.2g}"
    elif processes < PROCESSES or ratio.low is None or ratio.high is None:
        text = f"measured in {processes} of {PROCESSES} processes"
    elif ratio.low >= bar.least:
        state = "holds"
    elif ratio.high < bar.least:
        state = "missed"
    return Verdict(state, text, row, rival, ratio)


def _is_right(r: Result) -> bool:
    return r.status == Status.OK and bool(r.time_s_median)
