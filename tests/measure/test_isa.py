"""Instruction sets: the variables that libraries read, the flags a CPU must have, and what real libraries choose."""

import platform

import pytest

from kernelmark.bench.measure import isa
from kernelmark.bench.measure.isa import ISAS, choose_isas, environment
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.plan.case import Budget, Job, Plan, WorkerKey, jobs
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.pool import Workers

x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instruction sets are x86's")


def here(name: str) -> bool:
    try:
        return choose_isas(name) == (name,)
    except UsageError:
        return False


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    """A CPU with these flags."""

    def build(flags: str, machine: str = "x86_64") -> None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags} ht\n")
        monkeypatch.setattr(isa, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(platform, "machine", lambda: machine)

    return build


def test_words_are_taken_once_in_their_order_and_without_any_the_libraries_choose(cpu):
    cpu("sse4_2 avx avx2 fma")
    assert choose_isas("avx2, sse,avx2") == ("avx2", "sse")
    assert choose_isas(None) == ("",)
    assert environment("") == {}


def test_what_cannot_be_had_is_refused_in_one_line(cpu, complaint):
    cpu("sse4_2 avx")
    assert complaint(lambda: choose_isas("sse5")) == (
        "--isa sse5: unknown; expected some of sse, avx, avx2, avx512, with commas"
    )
    assert complaint(lambda: choose_isas("")).startswith("--isa '': unknown")
    assert complaint(lambda: choose_isas("sse,avx2")) == "--isa avx2: this CPU has no avx2 fma; it has sse, avx"
    cpu("sse4_2", machine="aarch64")
    assert complaint(lambda: choose_isas("sse")) == "--isa is for x86 CPUs, this one is aarch64; leave it out"


def test_a_run_records_the_sets_that_its_machine_has(cpu):
    cpu("sse4_2 avx avx2 fma")
    assert isa.isas_here() == ["sse", "avx", "avx2"]
    assert machine()["isas"] == ["sse", "avx", "avx2"]
    cpu("sse4_2", machine="aarch64")
    assert isa.isas_here() == []


def test_numpy_is_told_to_leave_only_what_it_would_choose_beyond_the_set(monkeypatch):
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    found = ["SSE42", "AVX2", "X86_V3", "X86_V4", "AVX512_ICL"]
    monkeypatch.setattr(isa.np, "show_config", lambda mode: {"SIMD Extensions": {"found": found}})
    disabled = {name: environment(name).get("NPY_DISABLE_CPU_FEATURES") for name in ISAS}
    assert disabled == {
        "sse": "AVX2 X86_V3 X86_V4 AVX512_ICL",
        "avx": "AVX2 X86_V3 X86_V4 AVX512_ICL",
        "avx2": "X86_V4 AVX512_ICL",
        "avx512": None,
    }


def test_what_the_user_has_disabled_in_numpy_stays_disabled(monkeypatch):
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512_ICL, AVX512_SPR")
    monkeypatch.setattr(isa.np, "show_config", lambda mode: {"SIMD Extensions": {"baseline": ["X86_V2"]}})
    assert environment("sse")["NPY_DISABLE_CPU_FEATURES"] == "AVX512_ICL AVX512_SPR"


CORES = {"sse": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512": "SkylakeX"}


@x86
@pytest.mark.parametrize("name", CORES)
def test_a_workers_libraries_keep_to_the_set_whatever_the_environment_says(name, monkeypatch, tmp_path):
    if not here(name):
        pytest.skip(f"this CPU has no {name}")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    plugin = tmp_path / "asks.py"
    plugin.write_text(PLUGIN)
    kernels = ("gemm/numpy.matmul", "gemm/mine.asks")
    job = Job(("gemm/m64n64k64/f32/NN",), kernels, Mode.VERIFY, (str(plugin),), 0, Budget(0.01), 1, isa=name)
    with Workers() as workers:
        product, asked = workers.run(job, WorkerKey("cpu", 1, name))
    assert product.status == "ok", product.reason
    assert f" {CORES[name]} " in product.versions
    numpy_has, numba_has = asked.tunables.removeprefix('{"has":"').removesuffix('"}').split("|")
    beyond = ("AVX512", "X86_V4") if name == "avx2" else ("AVX2", "AVX512", "X86_V3", "X86_V4")
    assert name == "avx512" or not any(feature.startswith(beyond) for feature in numpy_has.split())
    assert numba_has == ISAS[name].llvm


def test_each_set_is_a_job_in_a_worker_of_its_own_and_gpus_have_none(registry):
    suite = find_suite("transpose/m8n8/f32/out", registry)
    plan = Plan(devices=("cpu", "cuda"), threads=(2,), isas=("", "sse", "avx2"))
    plain, sse, avx2 = jobs([suite], registry, plan)
    assert [(planned.job.isa, planned.key.isa) for planned in (plain, sse, avx2)] == [(x, x) for x in plan.isas]
    assert (plain.key.device, sse.key) == ("cuda", WorkerKey("cpu", 2, "sse"))
    assert any("/cuda." in kernel for kernel in plain.job.kernels)
    assert sse.job.kernels == tuple(k for k in plain.job.kernels if registry.kernels[k].device == "cpu")
    assert sse.job.baseline == "transpose/numpy.out"


def test_the_command_refuses_a_set_in_one_line(refused):
    assert refused("run", "copy/m8n8/f32", "--isa", "sse9").startswith("kernelmark: --isa sse9: unknown; expected ")


@x86
def test_under_pytest_each_set_and_thread_count_is_an_item(python_in, tmp_path):
    words = (
        "-m",
        "pytest",
        "--pyargs",
        "kernelmark.bench",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        "--benchmark-only",
    )
    chosen = ("--km-suite", "gemm/m8n8k8/f32/NN", "--km-kernels", "gemm/numpy.matmul", "--km-db", "r.db")
    done = python_in(tmp_path, *words, *chosen, "--km-isa", "sse", "--km-threads", "1,2")
    items = [line.partition("[")[2] for line in done.stdout.splitlines() if "[" in line]
    assert items == [f"gemm/numpy.matmul|m8n8k8/f32/NN|t{threads}|sse]" for threads in (1, 2)]


PLUGIN = """\
import numpy as np
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",))
def asks(problem, x):
    '''What NumPy and Numba generate code for.'''
    from numba.core.registry import cpu_target
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    x.chose(has=" ".join(found) + "|" + cpu_target.target_context.codegen().magic_tuple()[1])
    return lambda: np.matmul(x.a, x.b, out=x.c)
"""
