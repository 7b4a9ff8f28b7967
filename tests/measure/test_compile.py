"""Compiling .cu files without a GPU: cubins, their resources, the cache, failures, and losses that ptxas reports."""

import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from kernelmark.bench.measure import compile as compiling
from kernelmark.bench.measure.compile import (
    ARCHS,
    CompileError,
    Program,
    compile_ahead,
    compile_cubin,
    find_nvcc,
    header_folders,
    with_nvcc,
)
from kernelmark.bench.measure.cubin import elf_sections, resources_of
from kernelmark.bench.plan.errors import UsageError
from support.kernels import losses
from support.processes import at_work_in, wait_for, write_files

SOURCE = """
#include "width.cuh"
__constant__ float weights[10];
template <int T> __global__ void __launch_bounds__(T * 4) stage(float *a, int n) {
  __shared__ float tile[T * WIDTH];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = tile[T - 1 - threadIdx.x] + weights[n];
}
__global__ void __launch_bounds__(1024) spills(float *a, int n) {
  float held[140];
#pragma unroll
  for (int i = 0; i < 140; ++i) held[i] = a[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 140; ++i) a[threadIdx.x * n + i] = held[i] * held[139 - i];
}
extern "C" __global__ void indexed(float *a, int n) {
  float held[512];
  for (int i = 0; i < 512; ++i) held[i] = a[i];
  a[0] = held[n];
  a[1] = held[n * 7];
}
__global__ void plain(float *a) { a[0] = 1; }
"""
ENTRIES = ("stage<32>", "spills", "indexed")
pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "AHEAD", tmp_path / "ahead")


@pytest.fixture
def source(tmp_path):
    write_files(tmp_path, {"width.cuh": "#define WIDTH 1", "k.cu": SOURCE})
    return tmp_path / "k.cu"


@pytest.fixture
def builds(monkeypatch):
    """The architectures for which NVRTC or nvcc was called, because the cache had no cubin."""
    ran = []
    for name in ("with_nvrtc", "with_nvcc"):
        real = getattr(compiling, name)
        monkeypatch.setattr(compiling, name, lambda *words, real=real: ran.append(words[3]) or real(*words))
    return ran


@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=[pytest.mark.long] * (arch not in ("sm_80", "sm_90a"))) for arch in ARCHS]
)
def test_symbols_code_and_resources_are_those_of_the_source(source, arch):
    cubin = compile_cubin(str(source), ENTRIES, arch)
    sections = elf_sections(cubin.code)
    assert cubin.symbols == {"stage<32>": "_Z5stageILi32EEvPfi", "spills": "_Z6spillsPfi", "indexed": "indexed"}
    assert all(f".text.{symbol}" in sections for symbol in cubin.symbols.values())
    stage, spills, indexed = (cubin.resources[entry] for entry in ENTRIES)
    assert (stage.static_shared_bytes, stage.max_threads, stage.spill_bytes, stage.stack_bytes) == (128, 128, 0, 0)
    assert sections[".nv.shared._Z5stageILi32EEvPfi"].size % 1024 == 128  # the linker adds reserved bytes
    assert stage.constant_bytes == 40
    assert spills.registers == 64  # 65536 registers / 1024 threads, its launch bound
    assert spills.spill_bytes > 0
    assert indexed.stack_bytes == 2048  # 512 floats, more than a thread's registers
    assert (indexed.spill_bytes, indexed.max_threads) == (0, 1024)


def test_an_interrupt_while_nvrtc_compiles_ends_the_command_in_one_line(tmp_path):
    words = [sys.executable, "-m", "kernelmark", "inspect", "--kernels", "gemm/cuda.wgmma"]
    run = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any("nvrtc.py" in command for command in at_work_in(tmp_path)))
    run.send_signal(signal.SIGINT)
    _, said = run.communicate()
    assert (run.returncode, said.strip().removeprefix("kernelmark: interrupted")) == (130, "")


def test_nvcc_finds_the_same_symbols(source):
    if not find_nvcc():
        pytest.skip("needs nvcc; install the CUDA toolkit 13.0")
    for arch in ("sm_75", "sm_90a"):
        expected = compile_cubin(str(source), ENTRIES, arch)
        code, symbols, log = with_nvcc(source, source.name, ENTRIES, arch)
        assert symbols == expected.symbols
        assert resources_of(code, "_Z5stageILi32EEvPfi", log).static_shared_bytes == 128


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:100],
        lambda content: content[:3000] + bytes([content[3000] ^ 1]) + content[3001:],  # in the machine code
    ],
)
def test_a_damaged_cache_file_compiles_anew(source, builds, tmp_path, damage):
    first = compile_cubin(str(source), ENTRIES, "sm_80")
    (file,) = (tmp_path / "cache" / "kernelmark").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    again = compile_cubin(str(source), ENTRIES, "sm_80")
    assert (again.code, again.resources) == (first.code, first.resources)
    assert len(builds) == 2


def test_the_same_source_reads_the_cache_and_another_header_entry_or_architecture_does_not(source, builds, tmp_path):
    def shared_bytes(file, arch="sm_80", entry="stage<32>"):
        return compile_cubin(str(file), (entry,), arch).resources[entry].static_shared_bytes

    assert shared_bytes(source) == shared_bytes(source) == 128
    shutil.copytree(source.parent, tmp_path / "copy")  # another checkout
    renamed = (tmp_path / "copy" / source.name).rename(tmp_path / "copy" / "renamed.cu")
    assert (shared_bytes(renamed), builds) == (128, ["sm_80"])
    (source.parent / "width.cuh").write_text("#define WIDTH 2\n")
    assert (shared_bytes(source), builds) == (256, ["sm_80"] * 2)
    assert (shared_bytes(source, "sm_86"), shared_bytes(source, "sm_86", "stage<64>")) == (256, 512)
    assert builds == ["sm_80", "sm_80", "sm_86", "sm_86"]


def test_headers_of_cuda_count_by_their_version_wherever_they_lie(source, builds, tmp_path, monkeypatch):
    real, version_of = compiling.header_folders, compiling.header_version.__wrapped__
    monkeypatch.setattr(compiling, "header_version", version_of)
    for folder, version, compiled in (("here", 13000, 1), ("there", 13000, 1), ("newer", 13010, 2)):
        write_files(tmp_path, {f"{folder}/cuda.h": f"#pragma once\n#define CUDA_VERSION {version}"})
        monkeypatch.setattr(compiling, "header_folders", lambda folder=folder: (str(tmp_path / folder), *real()))
        compile_cubin(str(source), ("plain",), "sm_80")
        assert len(builds) == compiled, folder
    monkeypatch.setattr(compiling, "header_folders", tuple)
    assert version_of() == ""


def test_what_was_compiled_ahead_is_found_in_a_copy_of_the_checkout(source, builds, tmp_path, monkeypatch):
    compile_cubin(str(source), ("plain",), "sm_80")  # now in the machine's cache
    programs = [Program(str(source), entries, "k") for entries in (("plain",), ("stage<32>",), ("plain",))]
    assert compile_ahead(programs, "sm_80", tmp_path / "build") == []
    assert len(list((tmp_path / "build").iterdir())) == len(builds) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    monkeypatch.setattr(compiling, "AHEAD", (tmp_path / "build").rename(tmp_path / "carried"))
    for program in programs:
        assert set(compile_cubin(*program[:2], "sm_80").symbols) == set(program.entries)
    assert len(builds) == 2
    compile_cubin(str(source), ("plain",), "sm_86")
    assert len(builds) == 3


def test_a_program_that_does_not_compile_ahead_is_a_line_and_the_rest_goes_on(source, tmp_path):
    programs = [Program(str(source), (entry,), f"mine.{entry[:6]}") for entry in ("absent", "plain")]
    (line,) = compile_ahead(programs, "sm_80", tmp_path / "build")
    assert line.startswith(f"mine.absent: {source} does not compile for sm_80 (")
    assert len(list((tmp_path / "build").iterdir())) == 1


def test_a_cache_that_cannot_be_written_only_costs_time(source, tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    assert compile_cubin(str(source), ("indexed",), "sm_80").symbols == {"indexed": "indexed"}


@pytest.mark.parametrize(
    ("name", "entry", "arch", "line", "logged"),
    [
        ("broken.cu", "k", "sm_90a", "{file} does not compile for sm_90a (", 'identifier "undeclared" is undefined'),
        ("k.cu", "absent<3>", "sm_90a", "{file} does not compile for sm_90a (", "absent"),
        ("nowhere.cu", "plain", "sm_90a", "there is no file {file}", ""),
        *(("k.cu", "plain", bad, f"arch {bad!r}: expected sm_", "") for bad in ("90", "compute_90", "sm_9", "hopper")),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_a_line_above_the_log(source, name, entry, arch, line, logged):
    source.with_name("broken.cu").write_text("__global__ void k(float *a) { a[0] = undeclared; }\n")
    file = source.with_name(name)
    with pytest.raises(UsageError) as caught:
        compile_cubin(str(file), (entry,), arch, "gemm/cuda.k")
    first, *log = str(caught.value).splitlines()
    assert first.removeprefix("gemm/cuda.k: ").startswith(line.format(file=file))
    assert isinstance(caught.value, CompileError) == bool(log)
    assert logged in "\n".join(log)


def test_a_header_that_one_root_lacks_comes_from_the_next(tmp_path, monkeypatch):
    wheels, toolkit = tmp_path / "cu13" / "include", tmp_path / "toolkit" / "include"
    write_files(wheels, {"cuda_runtime.h": ""})
    write_files(toolkit, dict.fromkeys(("cuda_runtime.h", "crt/mma.h", "cccl/nv/target"), ""))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(compiling, "find_nvcc", lambda: None)
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent))
    assert header_folders.__wrapped__() == (str(wheels), str(toolkit), str(toolkit / "cccl"))
    write_files(wheels, {"crt/mma.h": ""})
    assert header_folders.__wrapped__() == (str(wheels), str(toolkit / "cccl"))


def test_headers_of_the_host_and_of_cudas_library_are_found_or_named(source):
    includes = "#include <cooperative_groups.h>\n#include <cstdint>\n#include <stdio.h>\n"
    body = '__global__ void f(uint8_t *y) {{ printf("%d", *y); *y = {0} < 3 ? 1 : 2; }}\n'
    source.write_text(includes + body.format("-INFINITY"))
    assert compile_cubin(str(source), ("f",), "sm_80").code
    source.write_text(body.format(2) + "#include <nowhere.h>\n")
    with pytest.raises(CompileError, match=r"nowhere\.h is in none"):
        compile_cubin(str(source), ("f",), "sm_80")


# The kernel changes a sum while wgmmas are in flight, so that the compiler makes it wait for each wgmma.
SERIALISED = """#include "ptx_hopper.cuh"
extern "C" __global__ void __launch_bounds__(128)
f(float *c, unsigned long long a, unsigned long long b, int n) {
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0.0f;
  for (int i = 0; i < n; ++i) {
    ptx::wgmma_fence();
    ptx::wgmma_f16<0, 0>(d, a + i, b, 1);
    ptx::wgmma_commit();
    CHANGE
    ptx::wgmma_wait<0>();
  }
  for (int i = 0; i < 32; ++i) c[threadIdx.x * 32 + i] = d[i];
}
"""
REGISTERS = """#include "ptx_hopper.cuh"
extern "C" __global__ void BOUND f(float *c) {
  if (threadIdx.x < 128) ptx::setmaxnreg_dec<40>();
  else ptx::setmaxnreg_inc<232>();
  c[threadIdx.x] = 1.0f;
}
"""


@pytest.mark.parametrize(
    ("text", "word", "faulty", "sound", "said"),
    [
        (SERIALISED, "CHANGE", "d[i % 2 ? 3 : 5] += 1.0f;", "", "wgmma.mma_async instructions are serialized"),
        (REGISTERS, "BOUND", "", "__launch_bounds__(384, 1)", "'setmaxnreg' ignored"),
        (SOURCE, "__launch_bounds__(1024)", "__launch_bounds__(1024)", "", "bytes spill stores"),
    ],
    ids=["wgmma-serialised", "setmaxnreg-ignored", "spills"],
)
def test_loss_is_reported_for_the_faulty_source_alone(source, text, word, faulty, sound, said):
    reported = []
    for change in (faulty, sound):
        source.write_text(text.replace(word, change))
        reported.append(losses(compile_cubin(str(source), ["spills" if text is SOURCE else "f"], "sm_90a").log))
    assert any(said in line for line in reported[0])
    assert reported[1] == []
