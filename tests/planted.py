"""Runs in which it is known which kernel is the fastest for which shape, for the tests and bars of selectors."""

import random
from collections.abc import Callable, Iterable

from kernelmark.bench.measure.measurement import Part
from kernelmark.bench.record.store import Store
from report_rows import begin, put

#: The kernel of a product and the seconds that it takes, by (m, n, k); None where it refuses.
Took = Callable[[int, int, int], float | None]
CONV = "conv/n1c{c}h{side}w{side}k{k}r{r}s{r}pad{pad}/f32/nchw/{direction}"
IM2COL, DIRECT = "conv/cpu.im2col", "conv/numba.direct"
SIZES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
FIRST, SECOND = "gemm/numpy.matmul", "gemm/scipy.sgemm"


def at(factor: float = 1.0) -> Took:
    """Return what a kernel takes that is this many times slower than another, whatever the shape."""
    return lambda m, n, k: factor * 1e-9 * m * n * k


def shapes() -> list[tuple[int, int, int]]:
    """Return 121 products whose m and n go through the sizes."""
    return [(m, n, 256) for m in SIZES for n in SIZES]


def bordered(border: int, gain: float = 1.5) -> dict[str, Took]:
    """Return two kernels of which the second is this much faster for m above the border, and slower elsewhere."""
    return {
        FIRST: at(),
        SECOND: lambda m, n, k: 1e-9 * m * n * k * (1 / gain if m > border else gain),
    }


def plant(
    store: Store,
    kernels: dict[str, Took],
    chosen: Iterable[tuple[int, int, int]] = (),
    run_id: str = "planted",
    processes: int = 4,
    noise: float = 0.01,
    layout: str = "NT",
    **values: object,
) -> None:
    """Add a run: each kernel on each shape, processes that scatter by this share."""
    begin(store, run_id)
    rng = random.Random(run_id)
    for m, n, k in chosen or shapes():
        problem, dims = f"gemm/m{m}n{n}k{k}/f32/{layout}", {"m": m, "n": n, "k": k}
        for kernel, took in kernels.items():
            seconds = took(m, n, k)
            if seconds is not None:
                medians = [seconds * (1 + noise * rng.uniform(-1, 1)) for _ in range(processes)]
                parts = [Part(10, median) for median in medians]
                taken = [median for median in medians for _ in range(10)]
                own = {"layout": layout, "run_id": run_id, "processes": processes, **values}
                put(store, problem, kernel, seconds, dims, taken, parts, **own)


def convolutions(store: Store, count: int = 160, noise: float = 0.0) -> None:
    """A run of convolutions whose fastest kernel follows from direction, taps and depth."""
    begin(store, "conv")
    rng = random.Random(5)
    for i in range(count):
        c, k, side, r = rng.randint(1, 300), rng.randint(1, 300), rng.randint(8, 80), rng.choice((1, 3, 5, 7))
        direction = ("fprop", "dgrad", "wgrad")[i % 3]
        problem = CONV.format(c=c, k=k, side=side, r=r, pad=r // 2, direction=direction)
        base = 1e-12 * c * k * side * side * r * r
        gain = (2 if c * r * r > 400 else 0.7) * (0.3 if direction == "dgrad" else 1) * (4 if side < 30 else 1)
        for kernel, exact in ((IM2COL, base), (DIRECT, base / gain)):
            seconds = exact * (1 + noise * rng.uniform(-1, 1) if noise else 1)
            put(store, problem, kernel, seconds, run_id="conv", taken=[seconds] * 10)
