"""W <- W - lr dY^T X without the BLAS's beta: a product into scratch, then a separate update.

The other strategy, one GEMM with alpha = -lr and beta = 1, needs no additional kernel: `gemm/scipy.sgemm` and every
other kernel with a beta path compute it. Both run on problems such as `gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1`.
"""

from kernelmark import Launch, kernel
from kernelmark.kernels.gemm.cpu import plain
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem


# In row-major order, TN is the layout of a weight gradient.
@kernel(
    "gemm",
    provider="scipy",
    device="cpu",
    modules=("scipy",),
    threaded=True,
    dtypes=("f32", "f64"),
    layouts=("TN",),
    betas=(1.0,),
    supports=plain,
)
def two_step(problem: GemmProblem, x: GemmOperands) -> Launch:
    """SciPy's GEMM to scratch, then C += alpha * product by SciPy's axpy: separate gradient and update."""
    from scipy.linalg import blas

    gemm, axpy = (blas.sgemm, blas.saxpy) if problem.dtype == "f32" else (blas.dgemm, blas.daxpy)
    product = x.scratch((problem.m, problem.n), problem.dtype)
    # Row-major C = A^T B is column-major C^T = B^T A, whose transposed views are contiguous: no copies.
    dy, inputs, gradient = x.a.T, x.b.T, product.T
    step, weights, alpha, size = product.reshape(-1), x.c.reshape(-1), problem.alpha, problem.m * problem.n

    def launch() -> None:
        gemm(1.0, inputs, dy, 0.0, gradient, False, True, 1)
        axpy(step, weights, size, alpha)

    return launch
