"""cuFFT is asked for the problem: a stand-in computes what its plans are documented to, on host memory."""

import ctypes
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.emulated import host_compiler
from support.kernels import REGISTRY, set_up

KERNEL = REGISTRY.kernels["fft/cufft.plan"]
SIZES = [(1, 1, 1), (3, 1, 2), (2, 1, 7), (5, 1, 16), (2, 2, 1), (1, 6, 5), (3, 5, 6), (2, 8, 8), (2, 7, 3)]
FORWARD = -1


class Plan:
    """PlanNd of dense arrays in C order. Complex input of a real transform has to be Hermitian, and is overwritten."""

    work_area = SimpleNamespace(mem=SimpleNamespace(size=96))

    def __init__(self, shape: Any, *rest: Any) -> None:
        self.shape, (*embedding, kind, batch, order, _, _) = shape, rest
        assert (embedding[0], embedding[3], order) == (None, None, "C")
        self.kind, self.batch, self.double = kind & ~0x40, batch, kind & 0x40

    def fft(self, a: Any, out: Any, direction: int) -> None:
        assert a.dtype == out.dtype == (np.float64 if self.double else np.float32)
        axes = tuple(range(1, 1 + len(self.shape)))
        source, target = a.reshape(self.batch, -1), out.reshape(self.batch, -1)
        if self.kind == 0x2A:
            target[...] = parts(np.fft.rfftn(source.reshape(-1, *self.shape), axes=axes)).reshape(target.shape)
        elif self.kind == 0x2C:
            half = as_complex(source).reshape(self.batch, *self.shape[:-1], self.shape[-1] // 2 + 1)
            found = np.fft.irfftn(half, self.shape, axes, norm="forward")
            np.testing.assert_allclose(np.fft.rfftn(found, axes=axes, norm="forward"), half, atol=1e-5)
            target[...] = found.reshape(target.shape)
            source.fill(np.nan)
        else:
            values = as_complex(source).reshape(-1, *self.shape)
            run = np.fft.fftn(values, axes=axes) if direction == FORWARD else inverse(values, axes)
            target[...] = parts(run).reshape(target.shape)


def inverse(values: Any, axes: tuple[int, ...]) -> Any:
    return np.fft.ifftn(values, axes=axes, norm="forward")


def as_complex(values: Any) -> Any:
    return values.astype(np.float64).view(np.complex128)


def parts(values: Any) -> Any:
    return np.ascontiguousarray(values, np.complex128).view(np.float64)


SOURCE = """
#include <complex>
template <class T> void run(const T* x, T* out, long long size, long long h, long long columns, long long w) {
    for (long long i = 0; i < size; ++i) { T& y = out[i]; BODY }
}
using c8 = std::complex<float>;
using c16 = std::complex<double>;
extern "C" void f32(c8* x, c8* y, long long n, long long h, long long c, long long w) { run(x, y, n, h, c, w); }
extern "C" void f64(c16* x, c16* y, long long n, long long h, long long c, long long w) { run(x, y, n, h, c, w); }
"""


@pytest.fixture(scope="module")
def hermitian_part(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The body of our elementwise kernel, compiled for the host, called as CuPy calls it."""
    from kernelmark.kernels.fft import cufft

    folder: Path = tmp_path_factory.mktemp("hermitian")
    (folder / "part.cpp").write_text(SOURCE.replace("BODY", cufft._HERMITIAN))
    command = [
        host_compiler(),
        *["-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "part.cpp", "-o", "part.so"],
    ]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "part.so"))

    def call(x: Any, h: int, columns: int, w: int, y: Any) -> None:
        assert x.shape == y.shape
        routine = library.f32 if x.dtype == np.complex64 else library.f64
        sizes = [ctypes.c_longlong(value) for value in (x.size, h, columns, w)]
        routine(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), *sizes)

    return call


@pytest.fixture
def stood_in(hermitian_part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy, as far as `kernels/fft/cufft.py` uses it."""
    from kernelmark.kernels.fft import cufft

    modules = {name: ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.cufft")}
    modules["cupy.cuda"].cufft = modules["cupy.cuda.cufft"]  # type: ignore[attr-defined]
    modules["cupy.cuda.cufft"].PlanNd = Plan  # type: ignore[attr-defined]
    modules["cupy.cuda.cufft"].getVersion = lambda: 12004  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cufft, "_hermitian_part", lambda: hermitian_part)
    cufft._plan.cache_clear()


@pytest.mark.parametrize("kind", ["r2c", "c2r", "c2c", "c2c/inverse"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("b", "h", "w"), SIZES)
def test_cufft_is_asked_for_the_problem(b: int, h: int, w: int, dtype: str, kind: str, stood_in: None) -> None:
    problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/{dtype}/{kind}")
    launch, operands, draw, scratch = set_up(problem.id, KERNEL.id, threads=1)
    operands.poison()
    reference = problem.reference(draw.views("C"), np.random.default_rng(0))
    launch()
    verdict = problem.check(operands.outputs("C"), reference, KERNEL.numerics_for(problem))
    assert (verdict.reason, operands.damage(draw)) == (None, None)
    assert scratch.nbytes == (problem.operands()[0].nbytes if kind == "c2r" else 0)


def test_the_row_tells_the_work_area_and_the_version(stood_in: None) -> None:
    problem = REGISTRY.problem("fft/b2h4w6/f32/r2c")
    assert KERNEL.library_scratch(problem) == 96
    assert KERNEL.library_version(problem) == "cufft 12.0.4"


def test_sizes_beyond_an_int_are_refused() -> None:
    assert "does not fit cuFFT's int" in str(KERNEL.refuses(REGISTRY.problem(f"fft/b1h1w{2**31}/f32/c2c")))
    assert KERNEL.refuses(REGISTRY.problem(f"fft/b1h1w{2**31 - 1}/f32/c2c")) is None
