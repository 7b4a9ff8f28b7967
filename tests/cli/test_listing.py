"""What needs no run: the lists, the doctor, the version and the compiler's figures, as a user asks for them."""

import json

import pytest

from kernelmark.bench.plan.kernel import CudaKernel

HEAVY = (
    "cupy", "cuda.core", "pycuda", "torch", "numba", "pyfftw", "scipy", "matplotlib", "ml_dtypes", "pandas", "tabulate",
    "importlib.metadata",
)  # fmt: skip
LISTING = f"""
import sys
from kernelmark.bench.cli import main

sys.argv = ["kernelmark", "list", *sys.argv[1:]]
main()
sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
"""


@pytest.mark.parametrize("words", [(), ("--suites",)])
def test_list_imports_nothing_heavy(python_in, tmp_path, words):
    done = python_in(tmp_path, "-c", LISTING, *words)
    assert done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_list_says_what_can_run_here_and_filters(kernelmark):
    found = json.loads(kernelmark("list", "--op", "gemm", "--device", "cpu", "--json").stdout)
    kernels = {r["kernel"]: r for r in found}
    assert kernels["gemm/numpy.matmul"]["here"] == "yes"
    assert all(name.startswith("gemm/") and r["device"] == "cpu" and r["label"] for name, r in kernels.items())


def test_numbers_that_a_kernel_takes_are_named(kernelmark):
    found = {r["kernel"]: r["domain"] for r in json.loads(kernelmark("list", "--json").stdout)}
    assert found["gemm/scipy.two_step"] == "f32|f64 TN beta 1"
    assert found["transfer/numba.serial"] == "f32|f64 h2h work 1..4096"
    assert found["transpose/numpy.out"] == "out"


def test_list_knows_the_suites(kernelmark):
    found = json.loads(kernelmark("list", "--suites", "--json").stdout)
    assert {"founding", "seed", "smoke"} <= {r["suite"] for r in found}
    assert all(r["title"] and r["source"] for r in found)


def test_doctor_says_what_is_usable_and_how_to_mend_the_rest(kernelmark):
    found = json.loads(kernelmark("doctor", "--json").stdout)
    parts = {finding["part"]: finding for finding in found}
    assert parts["numpy"]["usable"]
    assert all(finding["found"] for finding in found)


def test_the_version_is_told(kernelmark):
    done = kernelmark("--version")
    assert (done.returncode, done.stdout.split()[-1].count(".")) == (0, 2)


@pytest.mark.usefixtures("cuda_compiler")
def test_inspect_tells_resources_and_occupancy_without_a_gpu(kernelmark):
    rows = json.loads(
        kernelmark("inspect", "--kernels", "gemm/cuda.tiled", "--arch", "sm_90a", "--format", "json").stdout
    )
    by_tile = {row["tunables"]: row for row in rows}
    found = by_tile['{"T":32}']
    # Two tiles of 32 x 33 floats; 1024 threads of at most 32 registers: two blocks fill the 64 warps.
    assert (found["static_shared_bytes"], found["spill_bytes"], found["threads"]) == (2 * 32 * 33 * 4, 0, 1024)
    assert (found["blocks_per_sm"], found["occupancy"]) == (2, 1.0)


@pytest.mark.usefixtures("cuda_compiler")
def test_inspect_shows_every_hand_written_kernel(kernelmark, registry):
    out = kernelmark("inspect", "--arch", "sm_90a").stdout
    ours = [kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel) and kernel.is_ours]
    assert all(kernel.id in out for kernel in ours)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--arch", "sm_1"], "arch 'sm_1': its limits are not known"),
        (["--kernels", "none*"], "kernels 'none*': matches no hand-written kernel"),
    ],
)
def test_inspect_refuses_in_one_line(refused, words, line):
    assert line in refused("inspect", *words)
