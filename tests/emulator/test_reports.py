"""Reports, waivers and crashes, and the TMA copies, mbarriers and wgmmas that the device would refuse."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.fixtures import intrinsic, outcomes_among, outcomes_of, read, reports_of, written
from kernelmark.bench.emulator.build import CUDA, missing_tool, program, source_folder
from kernelmark.bench.emulator.report import Diagnostic, Thread, unwaived
from kernelmark.bench.emulator.worker import Buffer, EmulatedTensorMap, Launch, WorkerError, run

X = np.arange(64, dtype=np.float32)
LAUNCH = Launch("f", 2, 32, ("x", "y"))
BUFFERS = {"x": read(X), "y": written(64)}


PADDED = {"x": read(X), "y": Buffer("out", np.full(64, np.nan, np.float32), row=7, pad=1)}
SCRATCH = {**BUFFERS, "z": Buffer("scratch", np.zeros(8, np.float32))}
INDEX = "  const int i = blockIdx.x * 32 + threadIdx.x;\n"
#: For each fault: a kernel's body, its launch and buffers, and the kind, line and message of its only report.
ONE_REPORT = {
    "a race of two threads of a block": (
        """  __shared__ float s[33];
  s[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 32 + threadIdx.x] = threadIdx.x == 9 && blockIdx.x == 1 ? s[4] : 0.0f;""",
        *(LAUNCH, BUFFERS, "race", 4),
        "read after write on s+16; block (1, 0, 0) thread (9, 0, 0) against block (1, 0, 0) thread (4, 0, 0) (line 3)",
    ),
    "a write after a neighbour's read that precedes the writer's own read": (
        """  __shared__ float s;
  if (threadIdx.x == 63) s = x[0];
  __syncthreads();
  float own = threadIdx.x < 2 ? s : 0.0f;
  own += __shfl_sync(0xffffffffu, own, 0);  // orders no memory
  if (threadIdx.x == 0) own += s;
  if (threadIdx.x == 0) s = 1.0f;
  y[threadIdx.x] = own;""",
        *(Launch("f", 1, 64, ("x", "y")), BUFFERS, "race", 8, "against block (0, 0, 0) thread (1, 0, 0) (line 5)"),
    ),
    "out of bounds by one element": (
        INDEX + "  y[i] = x[i + (i == 63)];",
        *(LAUNCH, BUFFERS, "out-of-bounds", 3, "read of 4 bytes at x+256, but x has 256 bytes"),
    ),
    "a shared array ends where it was declared to end": (
        """  __shared__ float first[32];
  __shared__ float second[32];
  second[threadIdx.x] = x[threadIdx.x];
  first[threadIdx.x + (blockIdx.x == 1 && threadIdx.x == 31)] = second[threadIdx.x];
  y[blockIdx.x * 32 + threadIdx.x] = first[threadIdx.x];
}
extern "C" __global__ void other(float *y) {
  __shared__ float third[32];
  third[threadIdx.x] = y[threadIdx.x];""",
        *(LAUNCH, BUFFERS, "out-of-bounds", 5, "write of 4 bytes at first+128, but first has 128 bytes"),
    ),
    "a write into the padding of a row": (
        INDEX + "  if (i % 8 != 7) y[i] = x[i];\n  if (i == 20) y[23] = 0.0f;",
        *(LAUNCH, PADDED, "write-to-padding", 4, ""),
    ),
    "a pair that ends in the padding": (
        INDEX + "  if (i % 8 == 6) *reinterpret_cast<float2 *>(y + i) = make_float2(x[i], 0.0f);\n"
        "  else if (i % 8 != 7) y[i] = x[i];",
        *(LAUNCH, PADDED, "write-to-padding", 3, ""),
    ),
    "an output that no thread writes, and scratch": (
        "  if (threadIdx.x) y[threadIdx.x] = x[0];",
        *(Launch("f", 1, 64, ("x", "y")), SCRATCH, "not-written", 0, "4 bytes of y"),
    ),
}


@pytest.mark.parametrize("number", range(len(ONE_REPORT)), ids=ONE_REPORT)
def test_a_report_names_kind_line_and_operand(number: int) -> None:
    head, rows = "__global__ void f(const float *x, float *y) {\n", list(ONE_REPORT.values())
    texts = {i: f"{head}{body}\n}}\n" for i, (body, *_) in enumerate(rows)}
    _, launch, buffers, kind, line, said = rows[number]
    (outcome,) = outcomes_among(texts, number, launch, buffers, orders=("forward",))
    (report,) = outcome.reports
    assert (report.kind, report.line) == (kind, line)
    assert said in str(report)
    assert not line or str(report).startswith(f"kernel.cu:{line}: {kind}: ")


def test_bytes_of_one_word_belong_to_their_own_threads() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ unsigned char s[64];
  s[threadIdx.x] = 1;
  const float some = __shfl_sync(0xffffffffu, x[threadIdx.x], 0);
  y[threadIdx.x] = some + s[threadIdx.x];
}"""
    assert not reports_of(text, Launch("f", 1, 64, ("x", "y")), BUFFERS)


#: A sum of doubles by a compare-and-swap loop, as in the CUDA programming guide.
SWAPPED = """extern "C" __global__ void f(const float *x, double *y) {
  auto *at = (unsigned long long *)y;
  unsigned long long old = *at, assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, __double_as_longlong(x[threadIdx.x] + __longlong_as_double(assumed)));
  } while (assumed != old);
}"""


#: Changes of that kernel: the old text, the new text, and the line of the race, or 0.
CHANGES = (
    ("", "", 0),
    ("*at,", "*(volatile unsigned long long *)at,", 0),
    ("    old = atomicCAS(at, assumed,", "    old = atomicCAS(at + threadIdx.x % 2, assumed,", 3),
    ("    old = atomicCAS(at, assumed,", "    old = atomicCAS(at, assumed + 1,", 3),
    ("  do {", "  if (old != 0) return;\n  do {", 3),
    ("  do {", "  __syncwarp();\n  do {", 3),
    ("  do {", "  while (*(volatile unsigned long long *)at != old) {}\n  do {", 3),
)


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_plain_read_before_a_compare_and_swap_is_a_race_unless_it_is_what_is_compared(number: int) -> None:
    was, now, line = CHANGES[number]
    assert was in SWAPPED
    texts = {i: SWAPPED.replace(was, now, 1) for i, (was, now, _) in enumerate(CHANGES)}
    buffers = {"x": read(X[:32]), "y": Buffer("inout", np.zeros(2))}
    for outcome in outcomes_among(texts, number, LAUNCH, buffers):
        lines = {report.line for report in outcome.reports if report.kind == "race"}
        assert line in lines if line else not outcome.reports, outcome.reports
        if not now:
            assert outcome.outputs["y"][0] == 2 * X[:32].sum()


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
    (report,) = outcomes_of(text, Launch("f", 1, 64, ("x", "y")), BUFFERS, orders=("reverse",))[0].reports
    assert (report.kind, report.line, report.other_line) == ("race", 6, 5)
    assert report.other == Thread((0, 0, 0), (reader, 0, 0))


def test_neighbours_of_two_bytes_do_not_race_and_the_same_two_bytes_do() -> None:
    text = """extern "C" __global__ void f(const short *x, short *y) {
  __shared__ short s[64];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x / SHARED * SHARED];
}"""
    launch = Launch("f", 1, 64, ("x", "y"))
    shorts = {"x": read(np.arange(64, dtype=np.int16)), "y": written(64, np.int16)}
    assert not reports_of(text.replace("SHARED", "1"), launch, shorts)
    assert {r.kind for r in reports_of(text.replace("SHARED", "2"), launch, shorts)} == {"race"}


def test_threads_that_write_bytes_of_one_float_do_not_race_and_a_byte_that_none_writes_is_missed() -> None:
    text = 'extern "C" __global__ void f(float *y) { reinterpret_cast<char *>(y)[threadIdx.x] = 1; }'
    assert not reports_of(text, Launch("f", 1, 8, ("y",)), {"y": written(2)})
    (report,) = reports_of(text, Launch("f", 1, 7, ("y",)), {"y": written(2)})
    assert report.message == "1 byte of y never written, the first at +7"


def test_hang_ends_at_the_time_limit_and_names_the_line() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  while (*reinterpret_cast<const volatile float *>(x + threadIdx.x) >= 0.0f) {
  }
}"""
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


def test_registers_hold_nan_or_a_large_number_until_they_are_written() -> None:
    text = """
    __global__ void sums(float *out, float beta) {
      float sums[8];
      if (beta != 0.0f) for (int i = 0; i < 8; ++i) sums[i] = beta;
      for (int i = 0; i < 8; ++i) out[i] = sums[(i + threadIdx.x) % 8];
    }"""
    outcomes = outcomes_of(text, Launch("sums", 1, 1, ("out", 0.0)), {"out": written(8)}, orders=("forward", "reverse"))
    assert [np.isnan(outcome.outputs["out"]).any() for outcome in outcomes] == [True, False]
    assert np.abs(outcomes[1].outputs["out"]).max() > 1e7


def test_struct_of_two_floats_may_lie_at_any_float_and_a_float2_may_not() -> None:
    text = """
    struct Pair { float x, y; };
    template <class T> __global__ void f(const float *x, float *y) {
      reinterpret_cast<T *>(y + 1)[threadIdx.x] = reinterpret_cast<const T *>(x + 1)[threadIdx.x];
      if (threadIdx.x == 0) y[0] = x[0];
    }"""
    buffers = {"x": read(np.ones(65, np.float32)), "y": written(65)}
    by_type = [reports_of(text, Launch(f"f<{type_}>", 1, 32, ("x", "y")), buffers) for type_ in ("Pair", "float2")]
    assert [[report.kind for report in reports] for reports in by_type] == [[], ["misaligned"]]


STRUCTS = """#define CALLED __device__ __attribute__((noinline))
struct Own { float a, b, c; };
struct Big { float v[12]; };
struct Sum { float a, b; Sum() = default; CALLED Sum operator+(Sum o) const { return {a + o.a, b + o.b}; }
             CALLED Sum(float a, float b) : a(a), b(b) {} };
union Bits { float4 four; float each[4]; };
template <class T> CALLED T passed(T v) { return v; }
CALLED float4 deep(float4 v, int n) { return n ? deep(v, n - 1) : v; }
struct Functor { CALLED double2 operator()(double2 v) const { return v; } };
float4 (*volatile pointer)(float4) = passed<float4>;
const auto lambda = [] CALLED (float4 v) { return v; };
"""
CALLS = {
    "passed(x[threadIdx.x])": ("float4", "double2", "uchar2", "Own", "Big", "Bits"),
    **dict.fromkeys(("deep(x[threadIdx.x], 2)", "pointer(x[threadIdx.x])", "lambda(x[threadIdx.x])"), ("float4",)),
    "Functor()(x[threadIdx.x])": ("double2",),
    "Sum(0, 0) + x[threadIdx.x]": ("Sum",),
}
CALLED = [(type_, call) for call, types in CALLS.items() for type_ in types]


@pytest.mark.parametrize("number", range(len(CALLED)), ids=lambda number: " ".join(CALLED[number]))
def test_structs_that_a_call_takes_from_memory_and_returns_to_it_are_checked(number: int) -> None:
    text, names = STRUCTS, [f"f{i}" for i in range(len(CALLED))]
    for name, (type_, call) in zip(names, CALLED, strict=True):
        text += f"__global__ void {name}(const {type_} *x, {type_} *y) {{ y[threadIdx.x] = {call}; }}\n"
    worker = program(source_folder({"kernel.cu": text}) / "kernel.cu", names)
    size = {"uchar2": 2, "Own": 12, "Big": 48, "Sum": 8}.get(CALLED[number][0], 16)
    launch, misses = Launch(f"f{number}", 1, 2, ("x", "y")), []
    for inputs, outputs in ((2, 2), (1, 2), (2, 1)):
        buffers = {"x": read(np.zeros(inputs * size, np.uint8)), "y": written(outputs * size, np.uint8)}
        (outcome,) = run(worker, buffers, [launch], orders=("forward",))
        misses += [(report.kind, report.line, report.message.split()[0]) for report in outcome.reports]
    line = STRUCTS.count("\n") + 1 + number
    assert misses == [("out-of-bounds", line, "read"), ("out-of-bounds", line, "write")]


def test_waiver_with_a_reason_allows_its_kind_only() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  // emulator: allow race: every block writes the same value
  if (threadIdx.x == 0) y[0] = x[0];
  y[1 + threadIdx.x % 31] = x[0];
  if (blockIdx.x == 0) y[32 + threadIdx.x] = 0.0f;
}"""
    reports = reports_of(text, LAUNCH, BUFFERS)
    assert {report.line for report in reports} == {3, 4}
    assert {report.line for report in unwaived(reports)} == {4}
    other = text.replace("allow race", "allow misaligned")
    assert {r.line for r in unwaived(reports_of(other, LAUNCH, BUFFERS))} == {3, 4}


def test_waiver_without_a_reason_is_an_error() -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  y[threadIdx.x] = x[0];  // emulator: allow race
}"""
    with pytest.raises(ValueError, match=r"kernel\.cu:2: the waiver gives no reason"):
        unwaived(reports_of(text, LAUNCH, BUFFERS))


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (Launch("f", 1, 32, ("x",)), "f takes 2 arguments, but the launch passes 1"),
        (Launch("f", 1, 32, ("x", 3)), "f: argument 1 is a pointer, but the launch passes 4 bytes"),
        (Launch("f", 1, 2048, ("x", "y")), "at most 1024 threads"),
        (Launch("f", (1, 70000), 32, ("x", "y")), "no device takes this grid"),
        (Launch("f", 1, 32, ("x", "y"), shared_bytes=2**20), "1048576 bytes of shared memory"),
    ],
)
def test_plan_that_does_not_fit_the_kernel_or_any_device_is_refused(launch: Launch, said: str) -> None:
    text = 'extern "C" __global__ void f(const float *x, float *y) { y[threadIdx.x] = x[0]; }'
    with pytest.raises(WorkerError, match=said):
        outcomes_of(text, launch, BUFFERS)


def test_worker_that_is_killed_while_it_writes_an_output_is_an_error(tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    worker.write_text("#!/bin/sh\nprintf 'buffer\\ty\\t256\\nabc'\nkill -9 $$\n")
    worker.chmod(0o755)
    with pytest.raises(WorkerError, match=r"^the worker ended with status -9 without output$"):
        run(worker, BUFFERS, [LAUNCH])


@pytest.mark.long  # compiles the runtime again
def test_portable_fibers_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float s[32];
  s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
}"""
    monkeypatch.setenv("EMULATOR_UCONTEXT", "1")
    for outcome in outcomes_of(text, LAUNCH, BUFFERS):
        assert not outcome.reports
        assert np.array_equal(outcome.outputs["y"], X.reshape(2, 32)[:, ::-1].ravel())


def test_missing_compiler_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    reason = "the emulator needs no-such-compiler, which is not on PATH; install it with: apt-get install g++ binutils"
    assert missing_tool() == reason


BOX = np.arange(2 * 16 * 32, dtype=np.float32)
ROWS = EmulatedTensorMap("x", (32, 16, 2), (128, 2048), (32, 8), 4)
HEAD = """#include "ptx_hopper.cuh"
extern "C" __global__ void f(const __grid_constant__ TensorMap map, float *y) {
  __shared__ __align__(1024) float smem[512];
  __shared__ unsigned long long full;
  const unsigned barrier = ptx::smem_address(&full), to = ptx::smem_address(smem);
  if (threadIdx.x == 0) { ptx::mbarrier_init(barrier, 1); ptx::fence_mbarrier_init(); }
  __syncthreads();
"""
LINE = HEAD.count("\n") + 1


def _reports(body: str, threads: int = 32) -> Sequence[Diagnostic]:
    text, launch = f"{HEAD}{body}\n  y[threadIdx.x] = 0.0f;\n}}\n", Launch("f", 1, threads, (ROWS, "y"))
    return reports_of(text, launch, {"x": read(BOX), "y": written(threads)})


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (((31, 16, 1), (124, 1984), (28, 8), 4), "rows 124 bytes apart; expected a multiple of 16"),
        (((32, 16, 1), (128, 2048), (32, 257), 4), "a box with a side of 257; expected 1 to 256"),
        (((32, 16, 1), (128, 2048), (3, 8), 4), "a box with rows of 12 bytes; expected a multiple of 16"),
        (((32, 16, 1), (128, 2048), (32, 8), 4, 64), "a box with rows of 128 bytes and a swizzle of 64 bytes"),
    ],
)
def test_map_that_the_driver_would_not_encode_is_refused(tensor: tuple[Any, ...], said: str) -> None:
    launch = Launch("load_box", 1, 32, (EmulatedTensorMap("x", *tensor), "out", 0, 0, 0, 16))
    with pytest.raises(WorkerError, match=f"load_box: no tensor map has {re.escape(said)}"):
        intrinsic("hopper.cu", launch, {"x": read(BOX), "out": written(4, np.uint32)})


def test_grid_that_does_not_divide_into_clusters_is_refused() -> None:
    launch = Launch("load_box", 3, 32, (ROWS, "out", 0, 0, 0, 16), cluster=2)
    with pytest.raises(WorkerError, match=r"a grid 3 blocks wide cannot run in clusters of 2; .* is at most 8"):
        intrinsic("hopper.cu", launch, {"x": read(BOX), "out": written(4, np.uint32)})


LOAD = "ptx::mbarrier_arrive_expect_tx(barrier, 1024); ptx::tma_load(to, &map, 0, 0, 0, barrier);"


#: A statement, and the kind and message of the report on it.
MISUSED = (
    ("if (threadIdx.x == 0) ptx::tma_load(to + 16, &map, 0, 0, 0, barrier);", "misaligned", "not a multiple of 128"),
    ("ptx::mbarrier_wait(barrier + 4, 0);", "mbarrier", "aligned to 8 bytes"),
    ("ptx::mbarrier_wait(to, 0);", "mbarrier", "no mbarrier has been initialised"),
    ("ptx::mbarrier_wait(barrier, 2);", "mbarrier", "a parity other than 0 and 1"),
    ("if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 0);", "mbarrier", "arrival count outside 1 to 2^20-1"),
    ("if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(barrier, 1);", "mbarrier", "has no block of that rank"),
    (f"if (threadIdx.x == 0) {{ {LOAD} }}", "copy-not-waited-for", "the block ended with a TMA load"),
    ("if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(barrier, 64);", "mbarrier", "64 announced bytes"),
    (f"if (threadIdx.x == 0) {{ {LOAD.replace('1024', '1040')} }} ptx::mbarrier_wait(barrier, 0);", "deadlock",
     "16 bytes and 0 arrivals"),
    (f"if (threadIdx.x == 0) {{ {LOAD.split('; ')[1]} }} ptx::mbarrier_wait(barrier, 0);", "deadlock",
     "still waits for 1 arrival, while 1024 more bytes have landed than were announced"),
    ("ptx::mbarrier_wait(barrier, 0);", "deadlock", f"32 threads wait for each other at line {LINE}"),
    ("if (threadIdx.x < 9) ptx::named_barrier_sync(3, 32);", "deadlock", "9 threads wait for each other"),
    ("ptx::named_barrier_sync(0, 32);", "barrier-divergence", "an id from 1 to 15"),
    ("float d[32]; ptx::wgmma_fence(); ptx::wgmma_f16<0, 0>(d, 0, 0, 0);", "wgmma", "not a whole warpgroup"),
)  # fmt: skip


def misuses(bodies: Sequence[str], number: int, tensor: EmulatedTensorMap, x: np.ndarray) -> list[Diagnostic]:
    """Return the reports on the kernel whose body is `bodies[number]`; all bodies are compiled into one program."""
    texts = {i: f"{HEAD}  {body}\n  y[threadIdx.x] = 0.0f;\n}}\n" for i, body in enumerate(bodies)}
    launch, buffers = Launch("f", 1, 32, (tensor, "y")), {"x": read(x), "y": written(32)}
    (outcome,) = outcomes_among(texts, number, launch, buffers, orders=("forward",))
    return [report for report in outcome.reports if report.kind != "not-written"]


@pytest.mark.parametrize("number", range(len(MISUSED)), ids=lambda number: MISUSED[number][1])
def test_misuse_is_named_with_its_line(number: int) -> None:
    (report,), (_, kind, said) = misuses([body for body, *_ in MISUSED], number, ROWS, BOX), MISUSED[number]
    assert (report.kind, report.line) == (kind, LINE)
    assert said in report.message


def test_deadlock_names_line_8_beside_line_80() -> None:
    one, others = "if (threadIdx.x == 31) ptx::named_barrier_sync(1, 64);", "ptx::named_barrier_sync(2, 64);"
    (report,) = (r for r in _reports(one + "\n" * (9 * LINE) + others) if r.kind == "deadlock")
    assert report.message.startswith(f"32 threads wait for each other at line {10 * LINE}, line {LINE}; ")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", []),
        ("words[3] = 1;", "", [("wgmma", "no wgmma.fence is between")]),
        ("", "words[3] = 1;", [("wgmma-in-flight", "from which a wgmma still reads A")]),
    ],
)
def test_registers_of_a_change_neither_after_the_fence_nor_before_the_wait(before, after, expected) -> None:
    body = f"""  for (unsigned i = threadIdx.x; i < 512; i += 128) smem[i] = 0.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  float d[32];
  unsigned words[4] = {{}};
  ptx::wgmma_fence();
  {before}
  ptx::wgmma_tf32(d, words, (to & 0x3FFFF) >> 4 | 8ull << 16 | 16ull << 32, 0);
  ptx::wgmma_commit();
  {after}
  ptx::wgmma_wait<0>();
"""
    reports = _reports(body, threads=128)
    assert [r.kind for r in reports] == [kind for kind, _ in expected]
    assert all(said in report.message for report, (_, said) in zip(reports, expected, strict=True))


def test_checkout_elsewhere_that_shares_the_cache_names_the_same_line(tmp_path: Path) -> None:
    body = f"  if (threadIdx.x == 0) {{ {LOAD} }}"
    kinds = [(r.kind, r.line) for r in _reports(body)]
    here = Path(__file__).parent
    shutil.copytree(here, tmp_path / "tests" / "emulator")
    for name in ("bench", "cuda", "kernelmark"):
        shutil.copytree(CUDA.parent / name, tmp_path / name, symlinks=True)
    code = f"from emulator.test_reports import _reports; print([(r.kind, r.line) for r in _reports({body!r})])"
    command = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{tmp_path / 'tests'}"}
    elsewhere = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert elsewhere.stdout.strip() == str(kinds)


def test_bytes_that_were_not_announced_are_counted_before_and_after_the_last_arrival() -> None:
    """A box for each mbarrier, `two` and `full`, lands in either order; thread 1 arrives at `two` after `full`."""
    body = """  __shared__ unsigned long long two;
  const unsigned second = ptx::smem_address(&two);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(second, 2);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(second, 512);
    ptx::tma_load(to, &map, 0, 0, 0, second);
    ptx::mbarrier_arrive_expect_tx(barrier, 1024);
    ptx::tma_load(to + 1024, &map, 0, 8, 0, barrier);
  }
  __syncthreads();
  if (threadIdx.x == 1) { ptx::mbarrier_wait(barrier, 0); ptx::mbarrier_arrive(second); }
  ptx::mbarrier_wait(second, 0);
  y[threadIdx.x] = 0.0f;
}"""
    outcomes = outcomes_of(HEAD + body, Launch("f", 1, 32, (ROWS, "y")), {"x": read(BOX), "y": written(32)})
    messages = [next(r.message for r in outcome.reports if r.kind == "mbarrier") for outcome in outcomes]
    assert set(messages) == {"512 more bytes have landed than were announced, so the phase can never end"}
    lines = {next(r.line for r in outcome.reports if r.kind == "mbarrier") - LINE for outcome in outcomes}
    assert lines == {6, 11}  # of the load, and of the last arrival


def test_load_that_was_not_waited_for_has_not_landed() -> None:
    body = f"  if (threadIdx.x == 0) {{ {LOAD} }}\n  __syncthreads();\n  y[32 + threadIdx.x] = smem[threadIdx.x];"
    launch, buffers = Launch("f", 1, 32, (ROWS, "y")), {"x": read(BOX), "y": written(64)}
    for outcome in outcomes_of(f"{HEAD}{body}\n  y[threadIdx.x] = 0.0f;\n}}\n", launch, buffers):
        assert {r.kind for r in outcome.reports} == {"copy-in-flight", "race", "copy-not-waited-for"}
        assert np.isnan(outcome.outputs["y"][32:]).all()


def test_address_of_shared_memory_is_no_better_aligned_behind_static_variables_than_on_the_device() -> None:
    text = """#include "common.cuh"
#include "ptx.cuh"
extern "C" __global__ void f(unsigned *y) {
  __shared__ unsigned some[9];
  DYN_SHARED(unsigned, smem);
  y[0] = ptx::smem_address(smem);
  y[1] = ptx::smem_address(some) % 4;
}"""
    launch = Launch("f", 1, 1, ("y",), shared_bytes=64)
    (outcome,) = outcomes_of(text, launch, {"y": written(2, np.uint32)}, orders=("forward",))
    assert outcome.outputs["y"].tolist() == [1024 + 48, 0]
