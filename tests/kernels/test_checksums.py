"""Checks of whole outputs of timed calls: of every operation that has one, on right outputs and on wrong ones."""

from contextlib import nullcontext

import numpy as np
import pytest

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.measure.verify import Checksums
from support.kernels import REGISTRY

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
    ("gemm/m31n33k13/f32/NN/epi-bias-relu", "gemm/numpy.two_step"),
    ("fft/b3h8w6/f32/r2c", "fft/scipy.pocketfft"),
    ("aggregate/w3n613/f32/ef", "aggregate/cpu.host_serial"),
    ("conv/n2c3h7w9k5r3s3pad1/f32/nhwc/dgrad", "conv/cpu.im2col"),
]


@pytest.mark.parametrize(("text", "name"), SUMMED, ids=[text for text, _ in SUMMED])
def test_sums_pass_right_outputs_and_see_stale_and_wrong_ones(text: str, name: str) -> None:
    problem, kernel, device = REGISTRY.problem(text), REGISTRY.kernels[name], Cpu()
    draw, operands = Draw(problem, 3), OperandSet(problem, device)
    draw.redraw()
    operands.load(draw)
    launch = kernel.launch(problem, Operands(operands, kernel.order, device, 1, ScratchBuffers(device)))
    sums = Checksums(problem, draw, kernel.order, lambda stage: nullcontext(), reference_s=0.0)
    numerics = kernel.numerics_for(problem)
    for number in range(20):
        if number:
            operands.freshen(draw, draw.change())
        operands.restore(draw)
        launch()
        assert sums.wrong(operands, numerics) is None
    output = operands.array(operands.written[0], kernel.order)
    place = tuple(size // 2 for size in output.shape)
    kept = output[place].copy()
    output[place] += 2
    assert sums.wrong(operands, numerics)
    output[place] = kept
    operands.freshen(draw, draw.change())
    assert sums.wrong(operands, numerics)
    output.view(f"u{output.itemsize}")[place] = np.iinfo(f"u{output.itemsize}").max
    assert sums.wrong(operands, numerics)
