"""Checks of whole outputs of timed calls: for every operation that has one, on right and wrong outputs."""

from contextlib import nullcontext

import numpy as np
import pytest

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded
from kernelmark.bench.measure.verify import Checksums
from kernelmark.kernels.conv._convolve import convolve
from support.kernels import REGISTRY

#: Stands for a kernel whose outputs are the exact result, rounded; for problems that only GPUs have kernels for.
ROUNDED = ""
SUMMED = [
    ("copy/m31n33/f16", "copy/numpy.copyto"),
    ("transfer/n1031/f32/h2h", "transfer/numpy.copyto"),
    ("transfer/n1031/f32/h2h/work5", "transfer/numba.serial"),
    ("transpose/b3m31n33/f64/out", "transpose/numpy.out"),
    ("transpose/m31n33/f32/in", "transpose/openblas.imatcopy"),
    ("gemm/m31n33k7/f32/NT", "gemm/numpy.matmul"),
    ("gemm/m31n33k131/f64/TT/alpha2", "gemm/numpy.matmul"),
    ("gemm/m31n33k131/f32/TN/beta0.5/batch5", "gemm/numpy.matmul"),
    ("gemm/m31n33k131/f32/NN/lda+1/ldb+2/ldc+3", "gemm/numpy.matmul"),
    ("gemm/m31n33k131/f32/NT", "gemm/scipy.sgemm_colmajor"),
    ("gemm/m31n33k131/f16/NN", "gemm/numpy.widened"),
    ("gemm/m31n33k131/s8.s32/NT", "gemm/numpy.widened"),
    ("gemm/m1n1k1/f32/NN", "gemm/numpy.matmul"),
    ("gemm/m31n33k13/f32/NN/groups3-skewed", "gemm/numpy.grouped"),
    ("gemm/m31n33k13/f32/NN/epi-bias-relu", "gemm/numpy.two_step"),
    ("gemm/m31n33k13/f32/TN/epi-sigmoid", "gemm/numpy.fused"),
    ("gemm/m31n33k131/f32/NT/alpha2/epi-update", "gemm/numpy.fused"),
    ("gemm/m31n33k13/f32/TT/beta0.5/batch5/epi-bias-relu", ROUNDED),
    ("gemm/m31n33k13/f16.f32/NN/batch5/epi-update", ROUNDED),
    ("fft/b3h8w6/f32/r2c", "fft/scipy.pocketfft"),
    ("fft/b3h8w6/f32/c2r", "fft/scipy.pocketfft"),
    ("fft/b5h1w7/f64/c2r", "fft/scipy.pocketfft"),
    ("fft/b3h5w6/f32/c2c", "fft/scipy.pocketfft"),
    ("fft/b3h8w6/f64/c2c/inverse", "fft/scipy.pocketfft"),
    ("aggregate/w3n613/f64/update", "aggregate/cpu.tree"),
    ("aggregate/w3n613/f32/ef", "aggregate/cpu.host_serial"),
    ("aggregate/w3n613/f32/update/ef", "aggregate/cpu.onebit"),
    ("aggregate/w3n613/f32/ef", "aggregate/cpu.int8"),
    ("conv/n2c6h7w9k4r5s3pad1/f32/nhwc/dgrad/g2", "conv/cpu.im2col"),
    ("conv/n2c6h17w9k4r3s2pad1-0x2stride2x3/f32/nchw/dgrad/dil2", "conv/cpu.im2col"),
    ("conv/n2c6h17w9k4r3s2pad1-0x2stride2x3/f32/nhwc/fprop/dil2/g2", "conv/cpu.im2col"),
    ("conv/n2c6h17w9k4r3s2pad1-0x2stride2x3/f32/nhwc/wgrad/dil2/g2", "conv/cpu.im2col"),
    ("conv/n2c3h9w9k5r3s3pad1/f32/nchw/fprop", "conv/cpu.winograd4"),
    ("conv/n2c3h9w9k5r3s3pad1/f32/nchw/wgrad", "conv/pyfftw.full"),
]


@pytest.mark.parametrize(("text", "name"), SUMMED)
def test_sums_pass_right_outputs_and_detect_stale_and_wrong_ones(text, name, monkeypatch):
    problem, device = REGISTRY.problem(text), Cpu()
    draw, operands = loaded(problem, device, seed=3)

    def rounded():
        with draw.holding(operands.change):
            expected = problem.reference(draw.views("C"), draw.rng)
        for output in (expected, *expected.beside):
            operands.array(output.name, "C")[:] = output.values

    launch, order, numerics = rounded, "C", "fp32"
    if name:
        kernel = REGISTRY.kernels[name]
        order, numerics, scratch = kernel.order, kernel.numerics_for(problem), ScratchBuffers(device)
        launch = kernel.launch(problem, Operands(operands, order, device, 1, scratch))
    sums = Checksums(problem, draw, order, nullcontext, reference_s=0.0)
    outputs = [operands.array(each, order) for each in operands.written]
    with monkeypatch.context() as patch:
        if name and (problem.op == "aggregate" or "/epi-" in text):  # these judge again by a reference
            patch.setattr(type(problem), "reference", None)
        for number in range(20):
            if number:
                operands.freshen(draw, draw.change())
            operands.restore(draw)
            launch()
            assert sums.wrong(operands, numerics) is None
            if not number:
                first = [output.copy() for output in outputs]
    last = [output.copy() for output in outputs]
    for output, right in zip(outputs, last, strict=True):
        place = tuple(size // 2 for size in output.shape)
        output[place] += 2
        assert sums.wrong(operands, numerics)
        output[:] = right
    for output, old in zip(outputs, first, strict=True):
        output[:] = old
    assert sums.wrong(operands, numerics)
    for output, right in zip(outputs, last, strict=True):
        output[:] = right
    operands.freshen(draw, draw.change())
    assert sums.wrong(operands, numerics)
    output.view(f"u{output.itemsize}")[place] = np.iinfo(f"u{output.itemsize}").max
    assert sums.wrong(operands, numerics)


@pytest.mark.parametrize("name", ["x", "w"])
def test_bounds_of_a_convolutions_sums_follow_a_large_value_that_comes_and_goes(name):
    problem, rng = REGISTRY.problem("conv/n1c4h7w8k6r3s3pad1/f32/nchw/fprop"), np.random.default_rng(5)
    small = {each: rng.uniform(-1, 1, shape) / 16 for each, shape in problem.shapes().items() if each != "y"}
    large = {**small, name: small[name].copy()}
    large[name][0, 1, 1, 1] = 1000

    def least_error(checks, before, now, *place):
        index = tuple(np.array([at]) for at in place)
        changes = {each: (index, array[index]) for each, array in before.items()}
        for exponent in range(-40, 10):
            output = convolve(problem, now)
            output[0, 0, 1, 1] += 2.0**exponent
            if checks({"y": output}, now, changes, "fp32"):
                return exponent
        return np.inf

    of_small, of_large = (problem.checksums(arrays, np.random.default_rng(6)) for arrays in (small, large))
    least_small, least_large = (
        least_error(checks, values, values, 0, 3, 2, 2) for checks, values in ((of_small, small), (of_large, large))
    )
    assert least_small + 5 < least_large < np.inf
    assert least_error(of_small, small, large, 0, 1, 1, 1) == least_large
    assert least_error(of_small, small, small, 0, 3, 2, 2) == least_small
