"""Reports, their waivers, and crashes, which end the worker's process only."""

from pathlib import Path

import numpy as np
import pytest

from emulator.fixtures import outcomes_of, read, reports_of, written
from kernelmark.bench.emulator.build import HostCompileError, missing_tool
from kernelmark.bench.emulator.report import Thread, unwaived
from kernelmark.bench.emulator.worker import Buffer, Launch, WorkerError

X = np.arange(64, dtype=np.float32)
LAUNCH = Launch("f", 2, 32, ("x", "y"))
BUFFERS = {"x": read(X), "y": written(64)}


def test_race_names_line_block_and_both_threads() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float s[33];
  s[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 32 + threadIdx.x] = threadIdx.x == 9 && blockIdx.x == 1 ? s[4] : 0.0f;
}
"""
    (report,) = reports_of(text, LAUNCH, BUFFERS)
    assert (report.kind, Path(report.file).name, report.line, report.other_line) == ("race", "kernel.cu", 4, 3)
    assert report.who == Thread((1, 0, 0), (9, 0, 0))
    assert report.other == Thread((1, 0, 0), (4, 0, 0))
    assert "kernel.cu:4: race: read after write on s+16" in str(report)


def test_out_of_bounds_is_exact_to_the_element_and_names_the_operand() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  y[i] = x[i + (i == 63)];
}
"""
    (report,) = reports_of(text, LAUNCH, BUFFERS)
    assert (report.kind, report.line) == ("out-of-bounds", 3)
    assert report.message == "read of 4 bytes at x+256, whose size is 256"


@pytest.mark.parametrize("reader", [1, 40])
def test_write_is_held_against_earlier_readers_in_its_own_warp_and_in_others(reader: int) -> None:
    text = f"""extern "C" __global__ void f(const float *x, float *y) {{
  __shared__ float s;
  if (threadIdx.x == 63) s = x[0];
  __syncthreads();
  y[threadIdx.x] = threadIdx.x == 0 || threadIdx.x == {reader} ? s : 0.0f;
  if (threadIdx.x == 0) s = 1.0f;
}}
"""
    outcome = outcomes_of(text, Launch("f", 1, 64, ("x", "y")), BUFFERS, orders=("reverse",))[0]
    (report,) = outcome.reports
    assert (report.kind, report.line, report.other_line) == ("race", 6, 5)
    assert report.other == Thread((0, 0, 0), (reader, 0, 0))


def test_write_is_held_against_a_neighbours_read_behind_the_writers_own() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float s;
  if (threadIdx.x == 63) s = x[0];
  __syncthreads();
  float own = threadIdx.x < 2 ? s : 0.0f;
  own += __shfl_sync(0xffffffffu, own, 0);  // orders no memory
  if (threadIdx.x == 0) own += s;
  if (threadIdx.x == 0) s = 1.0f;
  y[threadIdx.x] = own;
}
"""
    (report,) = reports_of(text, Launch("f", 1, 64, ("x", "y")), BUFFERS)
    assert (report.kind, report.line, report.other_line) == ("race", 8, 5)
    assert report.other == Thread((0, 0, 0), (1, 0, 0))


def test_bytes_of_one_word_belong_to_their_own_threads() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ unsigned char s[64];
  s[threadIdx.x] = 1;
  const float some = __shfl_sync(0xffffffffu, x[threadIdx.x], 0);
  y[threadIdx.x] = some + s[threadIdx.x];
}
"""
    assert not reports_of(text, Launch("f", 1, 64, ("x", "y")), BUFFERS)


def test_shared_array_ends_where_it_was_declared_to_end() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float first[32];
  __shared__ float second[32];
  second[threadIdx.x] = x[threadIdx.x];
  first[threadIdx.x + (blockIdx.x == 1 && threadIdx.x == 31)] = second[threadIdx.x];
  y[blockIdx.x * 32 + threadIdx.x] = first[threadIdx.x];
}
extern "C" __global__ void other(float *y) {
  __shared__ float third[32];
  third[threadIdx.x] = y[threadIdx.x];
}
"""
    (report,) = reports_of(text, LAUNCH, BUFFERS)
    assert (report.kind, report.line) == ("out-of-bounds", 5)
    assert report.message == "write of 4 bytes at first+128, whose size is 128"


def test_write_into_the_padding_of_a_row_is_reported() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  if (i % 8 != 7) y[i] = x[i];
  if (i == 20) y[23] = 0.0f;
}
"""
    buffers = {"x": read(X), "y": Buffer("out", np.full(64, np.nan, np.float32), row=7, pad=1)}
    (report,) = reports_of(text, LAUNCH, buffers)
    assert (report.kind, report.line) == ("write-to-padding", 4)


def test_pair_that_begins_in_a_row_and_ends_in_its_padding_is_reported() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  if (i % 8 == 6) *reinterpret_cast<float2 *>(y + i) = make_float2(x[i], 0.0f);
  else if (i % 8 != 7) y[i] = x[i];
}
"""
    buffers = {"x": read(X), "y": Buffer("out", np.full(64, np.nan, np.float32), row=7, pad=1)}
    (report,) = reports_of(text, LAUNCH, buffers)
    assert (report.kind, report.line) == ("write-to-padding", 3)


def test_output_that_nobody_writes_is_reported_and_scratch_need_not_be() -> None:
    text = (
        'extern "C" __global__ void f(const float *x, float *y, float *z) { if (threadIdx.x) y[threadIdx.x] = x[0]; }'
    )
    launch = Launch("f", 1, 64, ("x", "y", "z"))
    buffers = {**BUFFERS, "z": Buffer("scratch", np.zeros(8, np.float32))}
    (report,) = reports_of(text, launch, buffers)
    assert report.kind == "not-written"
    assert report.message.startswith("4 bytes of y")


def test_neighbours_of_two_bytes_do_not_race_and_the_same_two_bytes_do() -> None:
    text = """extern "C" __global__ void f(const short *x, short *y) {
  __shared__ short s[64];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x / SHARED * SHARED];
}
"""
    launch = Launch("f", 1, 64, ("x", "y"))
    shorts = {"x": read(np.arange(64, dtype=np.int16)), "y": written(64, np.int16)}
    assert not reports_of(text.replace("SHARED", "1"), launch, shorts)
    assert {r.kind for r in reports_of(text.replace("SHARED", "2"), launch, shorts)} == {"race"}


def test_hang_ends_at_the_time_limit_and_names_the_line() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  while (*reinterpret_cast<const volatile float *>(x + threadIdx.x) >= 0.0f) {
  }
}
"""
    outcomes = outcomes_of(text, LAUNCH, BUFFERS, limit_s=1)
    (report,) = outcomes[0].reports
    assert len(outcomes) == 1
    assert (report.kind, report.line) == ("timeout", 2)


def test_stack_overflow_is_a_crash_of_the_worker_alone() -> None:
    text = """__device__ __noinline__ int deep(int n) {
  volatile int pad[64];
  pad[0] = n;
  return n < 0 ? 0 : deep(n + 1) + pad[0];
}
extern "C" __global__ void f(const float *x, float *y) { y[0] = deep(int(x[0])); }
"""
    (report,) = outcomes_of(text, LAUNCH, BUFFERS, limit_s=5)[0].reports
    assert report.kind == "crash"


def test_waiver_with_a_reason_allows_its_kind_only() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  // emulator: allow race: every block writes the same value
  if (threadIdx.x == 0) y[0] = x[0];
  y[1 + threadIdx.x % 31] = x[0];
  if (blockIdx.x == 0) y[32 + threadIdx.x] = 0.0f;
}
"""
    reports = reports_of(text, LAUNCH, BUFFERS)
    assert {report.line for report in reports} == {3, 4}
    assert {report.line for report in unwaived(reports)} == {4}
    other = text.replace("allow race", "allow misaligned")
    assert {r.line for r in unwaived(reports_of(other, LAUNCH, BUFFERS))} == {3, 4}


def test_waiver_without_a_reason_is_an_error() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  y[threadIdx.x] = x[0];  // emulator: allow race
}
"""
    with pytest.raises(ValueError, match=r"kernel\.cu:2: the waiver gives no reason"):
        unwaived(reports_of(text, LAUNCH, BUFFERS))


def test_instruction_without_a_twin_does_not_compile() -> None:
    text = '#include "ptx.cuh"\nextern "C" __global__ void f(const float *x, float *y) { ptx::stmatrix_x4(y, x); }\n'
    with pytest.raises(HostCompileError, match=r"kernel.cu does not compile for the emulator.*\n(.|\n)*stmatrix_x4"):
        outcomes_of(text, LAUNCH, BUFFERS)


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (Launch("f", 1, 32, ("x",)), "f takes 2 arguments, the plan has 1"),
        (Launch("f", 1, 32, ("x", 3)), "argument 1: is a pointer, the plan gives 4 bytes"),
        (Launch("f", 1, 2048, ("x", "y")), "at most 1024 threads"),
        (Launch("f", (1, 70000), 32, ("x", "y")), "no device takes this grid"),
        (Launch("f", 1, 32, ("x", "y"), shared_bytes=2**20), "1048576 bytes of shared memory"),
    ],
)
def test_plan_that_does_not_fit_the_kernel_or_any_device_is_refused(launch: Launch, said: str) -> None:
    text = 'extern "C" __global__ void f(const float *x, float *y) { y[threadIdx.x] = x[0]; }'
    with pytest.raises(WorkerError, match=said):
        outcomes_of(text, launch, BUFFERS)


@pytest.mark.long  # compiles the runtime once more
def test_portable_fibers_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float s[32];
  s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
}
"""
    monkeypatch.setenv("EMULATOR_UCONTEXT", "1")
    for outcome in outcomes_of(text, LAUNCH, BUFFERS):
        assert not outcome.reports
        assert np.array_equal(outcome.outputs["y"], X.reshape(2, 32)[:, ::-1].ravel())


def test_missing_compiler_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert missing_tool() == (
        "the emulator needs no-such-compiler, which is not on PATH; install it with: apt-get install g++ binutils"
    )
