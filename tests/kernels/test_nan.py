"""With NaN and infinities in operands, every kernel's output has them where the reference does, and nowhere else.

A product with NaN, even of 0, and a sum with NaN are NaN. max(0, NaN) is NaN, as in PyTorch and cuDNN. Copies keep all
bits.
"""

import gc
import os
import re
from functools import partial

import numpy as np
import pytest

from emulator.proof import Overflow, _rank, emulated, short_run
from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import _buffer, _view, entries, launches
from kernelmark.bench.emulator.worker import run
from kernelmark.bench.measure.present import unavailable
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._team import team_of
from kernelmark.kernels.conv._convolve import convolve
from kernelmark.kernels.conv._sizes import as_nchw
from kernelmark.kernels.conv._tolerance import TRANSFORMED
from support.emulated import host_compiler, program_entries
from support.kernels import REGISTRY, set_up

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
#: Numerics that divide numbers into parts; some parts of an infinite number are NaN.
DIVIDED = ("3xtf32", *TRANSFORMED)
#: A kernel that transforms two real arrays as one complex one, so that NaN in one spoils the other.
PAIRED = "fft/cuda.small"


def planted(problem, views):
    """Set some elements to 0; then put two NaN and both infinities, far apart, into each operand, or one NaN if small.

    The second NaN has all bits below the sign set. Return copies of the operands after each of the two steps.
    """
    clean = {}
    for name, array in views.items():
        array[np.unravel_index(np.arange(3, array.size, 7), array.shape)] = 0
        clean[name] = array.copy()
        if array.dtype.kind == "i":
            continue
        specials = np.array([np.nan, np.nan, np.inf, -np.inf]).astype(array.dtype)
        specials.view(f"u{array.itemsize}")[1] |= (1 << 8 * array.itemsize - 1) - 1
        parts, count = 2 if problem.op == "fft" and array.ndim == 4 else 1, 4 if array.size >= 64 else 1
        places = ((2 * np.arange(count) + 1) * (array.size // parts) // (2 * count) + np.arange(count)) * parts
        for part in range(parts):
            array[np.unravel_index(places + part, array.shape)] = specials[:count]
    return clean, {name: array.copy() for name, array in views.items()}


def wrong(problem, kernel, values, outputs):
    drawn, inputs = values
    numerics = kernel.numerics_for(problem)
    clean, want = (problem.reference(each, np.random.default_rng(1)) for each in values)
    if numerics == "exact":
        return problem.check(outputs, want, numerics).reason
    if numerics in FORMATS:  # no NaN is lost: residuals keep what is not sent
        offered, left = (inputs["g"].sum(0) + inputs["e"].sum(0), outputs["e"].sum(0) + outputs.get("s", 0))
        return "NaN is lost" if (np.isfinite(left) & ~np.isfinite(offered)).any() else None
    patched = {name: array.copy() for name, array in outputs.items()}
    for name, before in _values(problem, clean).items():
        expected = _values(problem, want)[name]
        got = as_nchw(patched[name], problem.layout) if problem.op == "conv" else patched[name].reshape(before.shape)
        spoilt = ~np.isfinite(got)
        if problem.op == "fft" and problem.kind != "c2r":  # a complex number is NaN if a part of it is
            spoilt |= spoilt[..., ::-1]
        reached, unsure, free = _reached(problem, kernel, inputs, before, expected)
        right = np.where(unsure, spoilt, np.isclose(got.astype(np.float64), expected, 0.02, 0.02, equal_nan=True))
        if (missed := reached & ~right).any():
            at = tuple(np.argwhere(missed)[0])
            return f"{name}{[*map(int, at)]} is {got[at]}, expected {expected[at]}: {missed.sum()} of {reached.sum()}"
        got[reached | free] = before[reached | free]
    if "replicas" in patched:
        same = np.isclose(outputs["replicas"], outputs["weights"], 0, 0, equal_nan=True)
        patched["replicas"] = np.where(same, patched["weights"], outputs["replicas"])
    if "e" in patched and np.array_equal(patched["e"], inputs["e"], equal_nan=True):
        patched["e"] = drawn["e"]
    return problem.check(patched, clean, numerics).reason


def _values(problem, reference):
    name = next(operand.name for operand in problem.operands() if operand.role != "in")
    if isinstance(reference, dict):
        return {name: reference["want"]} if problem.op == "aggregate" else reference
    return {
        getattr(output, "name", name): getattr(output, "values", output)
        for output in (reference, *getattr(reference, "beside", ()))
    }


def _reached(problem, kernel, inputs, before, want):
    """Return masks: outputs that depend on planted values; those that may be any NaN or infinity; arbitrary ones."""
    nothing, numerics = np.zeros(want.shape, bool), kernel.numerics_for(problem)
    if problem.op == "fft":
        x = inputs["x"].reshape(len(before), -1)
        hit = nothing | ~np.isfinite(x).all(1).reshape(-1, *[1] * (want.ndim - 1))
        return hit, hit, ~hit & (kernel.id == PAIRED and problem.kind != "c2c")
    if problem.op != "conv":
        hit = want != before
        return hit, hit & ~np.isfinite(want) & (numerics in DIVIDED), nothing
    # Zeros of the padding may be multiplied by a filter, or left out; transforms spread a value over its plane.
    reached, planes = nothing.copy(), nothing.copy()
    arrays = {name: as_nchw(array, problem.layout) for name, array in inputs.items()}
    for name, array in arrays.items():
        ones, bad = {other: np.ones(each.shape) for other, each in arrays.items()}, ~np.isfinite(array)
        reached |= convolve(problem, ones | {name: bad}) > 0
        if numerics in TRANSFORMED or name == "w" or (problem.direction, name) == ("wgrad", "y"):
            wide = np.broadcast_to(bad.any((-1, -2), keepdims=True), bad.shape)
            planes |= (convolve(problem, ones | {name: wide}) > 0).any((-1, -2), keepdims=True)
    return reached, reached & (planes | (numerics in DIVIDED)), planes & ~reached


def complaint(case, cuda=CUDA):
    """Emulate a case on planted operands, with the kernels in a folder; return a report, a wrong result, or None."""
    problem, rng = case.problem, np.random.default_rng(3)
    buffers = {operand.name: _buffer(operand, rng) for operand in problem.operands()}
    values = planted(problem, {o.name: _view(o, buffers[o.name].data) for o in problem.operands() if o.role != "out"})
    worker = program(cuda / case.kernel.source, (program_entries if cuda == CUDA else entries)([case]), include=cuda)
    (outcome,) = run(worker, buffers, list(launches(case, buffers)), orders=("forward",))
    outputs = {o.name: _view(o, outcome.outputs[o.name]) for o in problem.operands() if o.role != "in"}
    return next(map(str, unwaived(outcome.reports)), None) or wrong(problem, case.kernel, values, outputs)


#: Axes of problems whose values have separate code in kernels.
WORDS = ("epilogue", "direction", "step", "feedback", "kind", "place")


def _cases(kernel, others):
    """Return a kernel's case for each combination of WORDS; others: instead, the cases of all further storage types."""
    by_words = {}
    for case in sorted(short_run(kernel), key=_rank):
        same = by_words.setdefault(tuple(getattr(case.problem, word, "") for word in WORDS), [])
        if case.problem.dtype not in [known.problem.dtype for known in same]:
            same.append(case)
    return [case for same in by_words.values() for case in (same[1:] if others else same[:1])]


def _emulated():
    """Yield kernels; the short run takes one storage type. `fma` is left out, since it coarsens its operands."""
    for name in emulated():
        types = REGISTRY.kernels[name].domain.get("dtype", ())
        if not name.startswith("fma/") and types != ("s8.s32",):
            yield pytest.param(partial(_cases, name, False), id=name)
            if len(types) != 1:
                yield pytest.param(partial(_cases, name, True), id=f"{name}-others", marks=pytest.mark.long)


@pytest.mark.parametrize("every", list(_emulated()))
def test_emulated_kernel_keeps_nan_and_infinities(every):
    host_compiler()
    assert every()
    for case in every():
        assert not complaint(case), case.id


#: Problems of CPU kernels; each kernel runs all problems that it takes.
PROBLEMS = (
    *(f"copy/m37n41/{dtype}" for dtype in ("f64", "f32", "f16", "bf16")),
    *(f"transpose/m37n41/{dtype}/{place}" for dtype in ("f64", "f32", "f16", "bf16") for place in ("out", "in")),
    *(f"transfer/n1031/f32/h2h{work}" for work in ("", "/work64")),
    *(
        f"gemm/m37n41k53/{dtype}/{layout}{words}"
        for dtype in ("f32", "f64")
        for layout in ("NT", "TN")
        for words in ("", "/beta1", "/alpha1.5/beta0.5", "/batch3", "/epi-bias-relu", "/epi-sigmoid", "/epi-update")
    ),
    *(f"gemm/m40n48k56/{dtype}/NT/groups3-skewed" for dtype in ("f32", "bf16")),
    *(f"fft/b3h12w10/{dtype}/{kind}" for dtype in ("f32", "f64") for kind in ("r2c", "c2r", "c2c", "c2c/inverse")),
    *(f"aggregate/w2n1539/f32{words}" for words in ("", "/update", "/ef", "/update/ef")),
    *(
        f"conv/n2c6h13w19k6r3s3pad1/f32/{words}"
        for words in ("nchw/fprop", "nchw/dgrad", "nchw/wgrad", "nhwc/fprop", "nchw/fprop/g2", "nchw/fprop/g6")
    ),
)


def _on_cpu():
    """Yield each CPU kernel of real numbers; those in several processes are long, since each process loads Numba."""
    for kernel in REGISTRY.kernels.values():
        if kernel.device == "cpu" and kernel.op != "fma" and kernel.domain.get("dtype") != ("s8.s32",):
            yield pytest.param(kernel, id=kernel.id, marks=pytest.mark.long if kernel.provider == "process" else ())


@pytest.mark.parametrize("kernel", list(_on_cpu()))
def test_kernel_of_the_cpu_keeps_nan_and_infinities(kernel):
    problems = [p for p in map(REGISTRY.problem, PROBLEMS) if p.op == kernel.op and kernel.refuses(p) is None]
    if kernel.provider == "process" and not problems:
        pytest.skip("two processes need two CPUs")
    if (reason := unavailable(kernel)) and not os.environ.get("CI"):
        pytest.skip(reason)
    assert problems
    for problem in problems:
        launch, operands, draw, _ = set_up(problem.id, kernel.id)
        values = planted(problem, draw.views(kernel.order))
        operands.load(draw)
        operands.poison()
        launch()
        reason = wrong(problem, kernel, values, operands.outputs(kernel.order))
        assert not reason, f"{problem.id}: {reason}"
    if kernel.provider == "process":
        gc.collect()
        team_of(2).close()


_RELU = ("gemm/epilogue.cuh", "if (x[i] < 0.0f) x[i] = 0.0f")
_X, _SUM = "-scaled(sums[i], held[i], by)", "sum += smem_a[threadIdx.y][i] * smem_b[i][threadIdx.x]"
_FUSED = "gemm/async_fused.cu"
_PACK = ("aggregate/packs.cuh", "+= pack.e[v]", "+= isnan(pack.e[v]) ? 0 : pack.e[v]")
_BYTE = ("aggregate/int8.cuh", "x[k] -=", "x[k] = isnan(x[k]) ? 0 : x[k] -")
#: Changes of a source that lose NaN, each with a kernel and a part of the id of a problem that show it.
LOST = (
    (Overflow(*_RELU, "x[i] = x[i] > 0.0f ? x[i] : 0.0f", _FUSED), "gemm/cuda.async_fused", "/epi-bias-relu"),
    (Overflow(*_RELU, "x[i] = fmaxf(x[i], 0.0f)", _FUSED), "gemm/cuda.async_fused", "/epi-bias-relu"),
    (Overflow("gemm/epilogue.cuh", _X, f"fminf({_X}, 88.0f)", _FUSED), "gemm/cuda.async_fused", "/epi-sigmoid"),
    (Overflow("gemm/tiled.cu", _SUM, f"if (smem_b[i][threadIdx.x] != 0.0f) {_SUM}"), "gemm/cuda.tiled", "/f32"),
    (Overflow(*_PACK, "aggregate/sum.cu"), "aggregate/cuda.device", "/f32"),
    (Overflow(*_BYTE, "aggregate/int8.cu"), "aggregate/cuda.int8", "/ef"),
)


@pytest.mark.long
@pytest.mark.parametrize(("lost", "kernel", "word"), LOST, ids=lambda value: getattr(value, "id", ""))
def test_a_kernel_that_loses_nan_is_wrong(lost, kernel, word):
    host_compiler()
    case = next(case for case in _cases(kernel, False) if word in case.problem.id)
    assert re.search("expected nan|NaN is lost", complaint(case, lost.folder()) or "")
