"""Fourier transforms: the reference is the definition, kernels are right, and FFTW's plans are cached."""

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pyfftw
import pytest

import kernelmark.kernels._fftw as fftw
from kernelmark.bench.plan.suites import find_suite
from support.emulated import host_compiler
from support.kernels import REGISTRY, chosen, failures, set_up

KINDS = ("r2c", "c2r", "c2c", "c2c/inverse")
SIZES = [(1, 1, 1), (3, 1, 2), (2, 1, 7), (5, 1, 16), (2, 2, 1), (1, 6, 5), (3, 5, 6), (1, 8, 8), (2, 7, 3)]
LARGER = [(1, 1, 1021), (7, 1, 139), (1, 1, 4096), (65, 1, 32), (2, 31, 37), (3, 64, 48), (1, 113, 1), (4, 32, 32)]


def dft(length, sign):
    index = np.arange(length)
    return np.exp(sign * 2j * np.pi * (np.outer(index, index) % length) / length)


def by_definition(problem, x):
    sign = -1 if problem.direction == "forward" else 1
    rows, columns = dft(problem.h, sign), dft(problem.w, sign)
    if problem.kind == "r2c":
        return np.einsum("pi,bij,qj->bpq", rows, x, columns[: problem.half])
    x = x[..., 0] + 1j * x[..., 1]
    if problem.kind == "c2c":
        return np.einsum("pi,bij,qj->bpq", rows, x, columns)
    lines = np.einsum("pi,bij->bpj", rows, x)
    ends = {0, problem.w / 2}
    doubled = np.array([1 if j in ends else 2 for j in range(problem.half)])
    return np.einsum("bpj,qj,j->bpq", lines, columns[:, : problem.half], doubled).real


def drawn(problem):
    (shape,) = (operand.shape for operand in problem.operands() if operand.role == "in")
    return np.random.default_rng(1).uniform(-1, 1, shape)


def as_parts(values):
    return np.stack([values.real, values.imag], -1) if np.iscomplexobj(values) else values


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_sum_of_the_definition(kind):
    for b, h, w in SIZES:
        problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/f64/{kind}")
        x = drawn(problem)
        reference = problem.reference({"x": x}, np.random.default_rng(0)).values
        (y,) = (operand for operand in problem.operands() if operand.role == "out")
        assert reference.shape == y.shape
        np.testing.assert_allclose(reference, as_parts(by_definition(problem, x)), 0, 1e-12, err_msg=problem.id)


@pytest.mark.parametrize(("h", "w"), [(1, 8), (1, 9), (6, 8), (6, 7), (5, 4), (2, 2)])
def test_c2r_of_a_spectrum_is_that_of_its_hermitian_part(h, w):
    problem = REGISTRY.problem(f"fft/b2h{h}w{w}/f64/c2r")
    x = drawn(problem)
    part = x.copy()
    for column in {0, w // 2} if w % 2 == 0 else {0}:  # columns that mirror themselves
        mirrored = np.roll(x[:, ::-1, column], 1, axis=1) * [1, -1]
        part[:, :, column] = (x[:, :, column] + mirrored) / 2
    references = [problem.reference({"x": values}, np.random.default_rng(0)).values for values in (x, part)]
    assert not np.array_equal(x, part)
    np.testing.assert_allclose(*references, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_every_cpu_kernel_is_right(dtype, kind, plans):
    known = [k for k in REGISTRY.kernels.values() if k.op == "fft" and k.device == "cpu"]
    for i, (b, h, w) in enumerate(SIZES + LARGER, KINDS.index(kind)):
        problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/{dtype}/{kind}")
        kernels = [k.id for k in known if not k.outside(problem)]
        assert len(kernels) == 3
        assert not failures(problem.id, *kernels, threads=1 + i % 2), problem.id  # the other number with another kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_normalisation_or_sign_is_wrong(kind):
    problem = REGISTRY.problem(f"fft/b2h4w6/f32/{kind}")
    reference = problem.reference({"x": drawn(problem)}, np.random.default_rng(0))
    right = reference.values.astype(np.float32)
    assert problem.check({"y": right}, reference, "fp32").reason is None
    for wrong in (right / 24, -right, right * np.float32(1 + 1e-5), np.flip(right, -1)):
        assert problem.check({"y": wrong}, reference, "fp32").reason is not None


def test_errors_are_judged_by_the_operands_of_their_own_transform():
    problem = REGISTRY.problem("fft/b2h4w6/f32/c2c")
    x = drawn(problem) * np.array([1e6, 1]).reshape(2, 1, 1, 1)
    reference = problem.reference({"x": x}, np.random.default_rng(0))
    right = reference.values.astype(np.float32)
    assert problem.check({"y": right}, reference, "fp32").reason is None
    right[1] += 1e-4
    assert problem.check({"y": right}, reference, "fp32").reason is not None


@pytest.mark.parametrize("points", [16, 173, 512])
def test_a_transform_summed_term_by_term_is_right_and_one_of_19_bits_is_not(points):
    problem, rng = REGISTRY.problem(f"fft/b16h1w{points}/f32/c2c"), np.random.default_rng(0)
    x = drawn(problem).astype(np.float32)
    x[:, 0, rng.integers(points)] *= 1000
    reference, waves = problem.reference({"x": x}, rng), dft(points, -1)
    sums = np.zeros((16, 1, points), np.complex64)
    for term in range(points):
        sums += x.view(np.complex64)[:, :, term] * waves[term].astype(np.complex64)
    assert problem.check({"y": as_parts(sums)}, reference, "fp32").reason is None
    mantissa, exponent = np.frexp(x.astype(np.float64))
    coarse = problem.reference({"x": np.ldexp(np.rint(np.ldexp(mantissa, 19)), exponent - 19)}, rng)
    assert "rms error" in problem.check({"y": coarse.values.astype(np.float32)}, reference, "fp32").reason


@pytest.mark.parametrize(("dtype", "numerics", "bits"), [("f32", "dft", 17), ("f64", "dft64", 45)])
@pytest.mark.parametrize("words", ["c2c", "r2c", "c2c/inverse"])
def test_a_long_sum_by_the_definition_is_right_as_such_and_one_of_coarse_operands_is_not(dtype, numerics, bits, words):
    """The two products of each term are added to one sum one by one, since this order has the largest errors."""
    points, kind = 2048 if words == "r2c" else 1024, {"f32": np.float32, "f64": np.float64}[dtype]
    problem, rng = REGISTRY.problem(f"fft/b8h1w{points}/{dtype}/{words}"), np.random.default_rng(0)
    x = drawn(problem).astype(kind)
    reference = problem.reference({"x": x}, rng)
    waves = as_parts(dft(points, 1 if "inverse" in words else -1)).astype(kind)
    reals, imaginaries = (x[:, 0], np.zeros_like(x[:, 0])) if words == "r2c" else (x[:, 0, :, 0], x[:, 0, :, 1])
    sums = np.zeros((8, 1, *reference.values.shape[2:]), kind)
    of_result = waves[:, : sums.shape[2]]
    for term in range(points):
        real, imaginary = reals[:, term, None], imaginaries[:, term, None]
        sums[:, 0, :, 0] += real * of_result[term, :, 0]
        sums[:, 0, :, 0] -= imaginary * of_result[term, :, 1]
        sums[:, 0, :, 1] += real * of_result[term, :, 1]
        sums[:, 0, :, 1] += imaginary * of_result[term, :, 0]
    assert problem.check({"y": sums}, reference, numerics).reason is None
    assert problem.check({"y": sums}, reference, dtype.replace("f", "fp")).reason is not None
    mantissa, exponent = np.frexp(x.astype(np.float64))
    coarse = problem.reference({"x": np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)}, rng)
    assert "rms error" in problem.check({"y": coarse.values.astype(kind)}, reference, numerics).reason


def test_a_kernel_that_sums_by_the_definition_executes_at_least_its_operations():
    """Therefore a fast transform that declares `dft` to get its wider bound exceeds the ceiling of arithmetic."""
    problem = REGISTRY.problem("fft/b3h1w1024/f32/c2c")
    plain = replace(REGISTRY.kernels["fft/pyfftw.plan"], numerics="dft")
    assert plain.executed_flop(problem) == 3 * 2 * 1024**2
    less = replace(plain, executed=lambda problem: 2 * problem.flop)
    with pytest.raises(ValueError, match="executes 307200 flop, expected at least 6291456 for dft"):
        less.executed_flop(problem)


@pytest.fixture
def plans(tmp_path, monkeypatch):
    fresh_wisdom = fftw.Wisdom(tmp_path / "wisdom.json")
    monkeypatch.setattr(fftw, "_wisdom", lambda: fresh_wisdom)


def test_the_inverse_of_r2c_is_refused_in_suites(complaint):
    values = {"b": 1, "h": 1, "w": 8, "dtype": "f32", "kind": "r2c", "direction": "inverse"}
    refusal = complaint(lambda: REGISTRY.operations["fft"].make(values, "here"))
    assert refusal == "here: direction is 'inverse', expected forward for r2c; the inverse of r2c is c2r"


def test_the_suite_fft_has_each_problem_once_and_every_kind():
    problems = [entry.problem for entry in find_suite("fft", REGISTRY).entries()]
    assert len({problem.id for problem in problems}) == len(problems) > 40
    assert {(problem.kind, problem.direction) for problem in problems} == {
        ("r2c", "forward"),
        ("c2r", "inverse"),
        ("c2c", "forward"),
        ("c2c", "inverse"),
    }
    assert max(problem.footprint_bytes for problem in problems) < 64 * 2**20


SMALL = "fft/cuda.small"


@pytest.mark.parametrize(
    ("problem", "blocks", "threads"),
    [
        ("b1h32w32/f32/c2c", 1, 128),
        ("b4h32w32/f32/c2c", 1, 128),
        ("b5h32w32/f32/c2c", 2, 128),
        ("b8h32w32/f32/r2c", 1, 128),
        ("b9h32w32/f32/c2r", 2, 128),
        ("b9h16w16/f64/r2c", 2, 64),
        ("b256h1w32/f32/r2c", 1, 128),
        ("b257h1w32/f32/r2c", 2, 128),
        ("b17h1w64/f32/c2c", 2, 128),
    ],
)
def test_real_transforms_are_computed_in_pairs_and_rows_fill_tiles(problem, blocks, threads):
    ((_, call),) = chosen(SMALL, f"fft/{problem}").calls
    assert (call.grid, call.block) == (blocks, threads)


KERNEL = REGISTRY.kernels["fft/cufft.plan"]


class Plan:
    """PlanNd of dense arrays in C order. Complex input of a real transform has to be Hermitian, and is overwritten."""

    work_area = SimpleNamespace(mem=SimpleNamespace(size=96))

    def __init__(self, shape, *rest):
        self.shape, (*embedding, kind, batch, order, _, _) = shape, rest
        assert (embedding[0], embedding[3], order) == (None, None, "C")
        self.kind, self.batch, self.double = kind & ~0x40, batch, kind & 0x40

    def fft(self, a, out, direction):
        assert a.dtype == out.dtype == (np.float64 if self.double else np.float32)
        axes = tuple(range(1, 1 + len(self.shape)))
        source, target = a.reshape(self.batch, -1), out.reshape(self.batch, -1)
        if self.kind == 0x2A:
            target[...] = parts(np.fft.rfftn(source.reshape(-1, *self.shape), axes=axes)).reshape(target.shape)
        elif self.kind == 0x2C:
            half = as_complex(source).reshape(self.batch, *self.shape[:-1], self.shape[-1] // 2 + 1)
            signal = np.fft.irfftn(half, self.shape, axes, norm="forward")
            np.testing.assert_allclose(np.fft.rfftn(signal, axes=axes, norm="forward"), half, atol=1e-5)
            target[...] = signal.reshape(target.shape)
            source.fill(np.nan)
        else:
            values = as_complex(source).reshape(-1, *self.shape)
            run, norm = (np.fft.fftn, "backward") if direction == -1 else (np.fft.ifftn, "forward")
            target[...] = parts(run(values, axes=axes, norm=norm)).reshape(target.shape)


def as_complex(values):
    return values.astype(np.float64).view(np.complex128)


def parts(values):
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
def compiled_part(tmp_path_factory):
    """The body of our elementwise kernel, compiled for the host, called as CuPy calls it."""
    from kernelmark.kernels.fft import cufft

    folder = tmp_path_factory.mktemp("hermitian")
    (folder / "part.cpp").write_text(SOURCE.replace("BODY", cufft._HERMITIAN))
    words = ["-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "part.cpp", "-o", "part.so"]
    subprocess.run([host_compiler(), *words], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "part.so"))

    def call(x, h, columns, w, y):
        assert x.shape == y.shape
        routine = library.f32 if x.dtype == np.complex64 else library.f64
        sizes = [ctypes.c_longlong(value) for value in (x.size, h, columns, w)]
        routine(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), *sizes)

    return call


@pytest.fixture
def cupy_stand_in(compiled_part, monkeypatch):
    from kernelmark.kernels.fft import cufft

    modules = {name: ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.cufft")}
    modules["cupy.cuda"].cufft = modules["cupy.cuda.cufft"]
    modules["cupy.cuda.cufft"].PlanNd = Plan
    modules["cupy.cuda.cufft"].getVersion = lambda: 12004
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cufft, "_hermitian_part", lambda: compiled_part)
    cufft._plan.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_cufft_is_called_with_the_problem(dtype, kind, cupy_stand_in):
    for b, h, w in SIZES:
        problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/{dtype}/{kind}")
        launch, operands, draw, scratch = set_up(problem.id, KERNEL.id, threads=1)
        operands.poison()
        reference = problem.reference(draw.views("C"), np.random.default_rng(0))
        launch()
        verdict = problem.check(operands.outputs("C"), reference, KERNEL.numerics_for(problem))
        assert (verdict.reason, operands.damage(draw)) == (None, None), problem.id
        assert scratch.nbytes == (problem.operands()[0].nbytes if kind == "c2r" else 0), problem.id


def test_the_work_area_and_the_version_of_cufft_are_recorded(cupy_stand_in):
    problem = REGISTRY.problem("fft/b2h4w6/f32/r2c")
    assert KERNEL.library_scratch(problem) == 96
    assert KERNEL.library_version(problem) == "cufft 12.0.4"


@pytest.fixture
def wisdom(tmp_path, monkeypatch):
    """Return a function that makes FFTW forget its plans, as a new process does."""

    def begin():
        pyfftw.forget_wisdom()
        started = fftw.Wisdom(tmp_path / "cache" / "wisdom.json")
        monkeypatch.setattr(fftw, "_wisdom", lambda: started)
        monkeypatch.setattr(fftw, "PLANNING_S", 60.0)  # a busy machine plans slowly
        return started

    begin()
    return begin


def arrays(n=96):
    return pyfftw.empty_aligned((4, n), "c8", n=64), pyfftw.empty_aligned((4, n), "c8", n=64)


def facts(n=96, **options):
    return fftw.plan(*arrays(n), (1,), **options).facts


def test_a_plan_is_new_once_and_found_by_later_processes(wisdom):
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}  # the next operands of the same job
    wisdom()
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "found"}
    assert facts(n=100)["wisdom"] == facts(inverse=True)["wisdom"] == "new"


def test_a_plan_that_takes_too_long_is_an_estimate_and_is_not_tried_again(wisdom, monkeypatch):
    monkeypatch.setattr(fftw, "PLANNING_S", 1e-6)
    assert facts(n=4096) == {"rigour": "FFTW_ESTIMATE", "wisdom": "none"}
    monkeypatch.setattr(fftw, "PLANNING_S", 60.0)  # a busy machine plans slowly
    assert facts(n=4096) == {"rigour": "FFTW_ESTIMATE", "wisdom": "none"}


DAMAGED = ["", "{", "null", "3", '"abc"', "[]", "[1, 2, 3]", '["a", "b"]', '["(fftw-3.3.5 fftw", "(", ""]', "\x00\xff"]


@pytest.mark.parametrize("text", [*DAMAGED, "truncated"])
def test_a_damaged_file_is_ignored_and_replaced(text, wisdom, tmp_path):
    file = tmp_path / "cache" / "wisdom.json"
    facts()
    file.write_text(file.read_text()[:-40] if text == "truncated" else text, "latin-1")
    wisdom()
    assert facts()["wisdom"] == "new"
    wisdom()
    assert facts()["wisdom"] == "found"
    assert [part[:5] for part in json.loads(file.read_text())] == ["(fftw"] * 3


def test_plans_are_made_without_a_cache_that_can_be_written(wisdom, tmp_path):
    (tmp_path / "cache").write_text("a file in the folder's place")
    wisdom()
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}


def test_plans_that_another_process_wrote_meanwhile_are_kept(wisdom, tmp_path):
    other = wisdom()
    wisdom()
    facts(n=96)
    pyfftw.forget_wisdom()
    source, target = arrays(100)
    options = {"axes": (1,), "direction": "FFTW_FORWARD", "threads": 1}
    other.learn(source, target, options, ())
    wisdom()
    assert (facts(n=96)["wisdom"], facts(n=100)["wisdom"]) == ("found", "found")
    assert not list((tmp_path / "cache").glob(".writing-*"))


LEARN = """
import numpy as np, sys
import pyfftw
from kernelmark.kernels._fftw import plan
for n in range(int(sys.argv[1]), int(sys.argv[1]) + 8):
    plan(pyfftw.empty_aligned((2, n), "c8", n=64), pyfftw.empty_aligned((2, n), "c8", n=64), (1,))
"""


def test_processes_that_write_at_the_same_time_leave_a_whole_file(wisdom, tmp_path):
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    writers = [subprocess.Popen([sys.executable, "-c", LEARN, str(first)], env=env) for first in (10, 20, 30)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    (file,) = (tmp_path / "kernelmark").iterdir()
    assert pyfftw.import_wisdom(tuple(part.encode() for part in json.loads(file.read_text())))[:2] == (True, True)


def test_the_file_belongs_to_this_pyfftw_and_this_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fftw, "_cpu", lambda: " Some CPU @ 2.0GHz/é")
    started = fftw._wisdom.__wrapped__()
    started.write()
    (file,) = (tmp_path / "kernelmark").iterdir()
    assert file.name.startswith(f"fftw-wisdom-{pyfftw.__version__}-")
    assert file.name.endswith("-Some-CPU-2.0GHz-.json")


@pytest.mark.parametrize("threads", [1, 2])
def test_plans_transform_the_later_contents_of_their_arrays(threads, wisdom):
    source, target = np.empty((3, 8, 6, 2), "f4"), np.empty((3, 8, 6, 2), "f4")
    planned = fftw.plan(fftw.as_complex(source), fftw.as_complex(target), (1, 2), threads=threads, inverse=True)
    source[...] = np.random.default_rng(0).uniform(-1, 1, source.shape)
    planned.execute()
    expected = np.fft.ifft2(fftw.as_complex(source).astype("c16"), norm="forward")
    np.testing.assert_allclose(fftw.as_complex(target), expected, atol=1e-4)
