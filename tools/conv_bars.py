"""What the project promises of convolution on the CPU, measured: rows of (promise, found, holds) for `make bars`.

Each ratio comes from samples taken in turn in one run of the worker, hot, on two threads.
"""

import json
from collections.abc import Iterator

from hot_rows import hot, median_s, ratio
from kernelmark.bench.measure.measurement import Measurement

ONEDNN = "conv/torch.conv2d"
FULL, TILED = "conv/pyfftw.full", "conv/numba.fft_tiled"
VGG = "conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop"
SEVEN = "conv/n1c64h224w224k64r7s7pad3/f32/nchw/fprop"
LARGE = "conv/n1c16h128w128k16r31s31pad15/f32/nchw/fprop"
DEPTHWISE = "conv/n1c144h56w56k144r3s3pad1/f32/nchw/fprop/g144"
#: Problem, the least ratio of our best algorithm's rate to oneDNN's, and in words.
AGAINST_ONEDNN = (
    (VGG, 1.2, "VGG conv3_2, 256-256 channels, 56x56, 3x3"),
    (SEVEN, 2.5, "64-64 channels, 224x224, 7x7"),
    (LARGE, 20.0, "16-16 channels, 128x128, 31x31"),
    (DEPTHWISE, 1.0, "MobileNet-v2, 144 channels, 56x56, depthwise 3x3"),
)


def conv_bars() -> Iterator[tuple[str, str, bool]]:
    """Our best algorithm against oneDNN on four layers, and tiled FFTs against whole ones."""
    from kernelmark.bench.measure.present import module_missing

    missing = module_missing("torch")
    for problem, least, words in AGAINST_ONEDNN:
        promise = f"{words}: {least:g}x oneDNN"
        yield (promise, missing, False) if missing else (promise, *_against_onednn(problem, least))
    (tiled,) = (row for row in hot(SEVEN, FULL, TILED) if row.kernel == TILED)
    yield "64-64 channels, 224x224, 7x7: tiled FFTs 8x whole ones", _shown(tiled), ratio(tiled) >= 8


def _against_onednn(problem: str, least: float) -> tuple[str, bool]:
    theirs, *ours = hot(problem, ONEDNN, *_ours(problem))
    ours.sort(key=ratio, reverse=True)
    times = ", ".join(f"{row.kernel} {_shown(row)}" for row in ours)
    onednn = theirs.versions.rpartition("; ")[2]
    return f"{times}; {onednn} {median_s(theirs) * 1e3:.1f} ms", ratio(ours[0]) >= least


def _ours(problem: str) -> list[str]:
    """The suite's contenders that need no extra; FFTs of whole images are out of question here."""
    from kernelmark.bench.plan.discovery import discover

    registry = discover()
    parsed = registry.problem(problem)
    kernels = [k for k in registry.kernels.values() if k.op == parsed.op and k.device == "cpu" and k.is_ours]
    return [k.id for k in kernels if k.id not in (ONEDNN, FULL) and k.refuses(parsed) is None]


def _shown(row: Measurement) -> str:
    """`2.41x [2.30, 2.52], tile 32`."""
    assert row.ratio is not None
    tile = json.loads(row.tunables or "{}").get("tile")
    noted = f" (tile {tile})" if tile else ""
    return f"{row.ratio.median:.2f}x [{row.ratio.low:.2f}, {row.ratio.high:.2f}]{noted}"
