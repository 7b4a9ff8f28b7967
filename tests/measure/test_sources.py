"""Digests of kernels: what changes them, and what does not."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from kernelmark.bench.measure import sources
from kernelmark.bench.measure.compile import cuda_sources, with_includes
from kernelmark.bench.measure.sources import flattened, kernel_digest, python_code, task_digest
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100, TYPICAL
from kernelmark.bench.plan.tiles import Prefer
from support.cuda import planned
from support.processes import write_files

SOURCE = """// An idea.
#include <cuda_fp16.h>

#include "shared.cuh"
#include "ops/own.cuh"
#define SIZE (4)
__global__ void k(float *a) {
  a[0] = twice(a[1]) + +SIZE;  /* a remark
  on two lines */ const char *s = "// text  /*";
}
"""
OWN = '// Its own.\n#pragma once\n#include "shared.cuh"\n__device__ float half_of(float x) { return x / 2; }\n'
SHARED = """#pragma once
#ifdef CUDA_EMU
#define WARP emulated
#else
#define WARP 32
#endif
__device__ float twice(float x) { return 2 * x; }
"""
FLAT = """#include <cuda_fp16.h>
#define WARP 32
__device__ float twice ( float x ) { return 2 * x ; }
__device__ float half_of ( float x ) { return x / 2 ; }
#define SIZE (4)
__global__ void k ( float * a ) { a [ 0 ] = twice ( a [ 1 ] ) + + SIZE ; const char * s = "// text  /*" ; }"""
PROBLEM = "gemm/m64n128k32/f32/NN"


@pytest.fixture
def cuda(tmp_path):
    """A folder of sources: a kernel with two headers, and a kernel without headers."""
    alone = "__global__ void alone() {}"
    files = {"ops/k.cu": SOURCE, "ops/own.cuh": OWN, "ops/alone.cu": alone, "shared.cuh": SHARED}
    write_files(tmp_path / "cuda", files)
    return tmp_path / "cuda"


@pytest.fixture
def tiled(registry):
    kernel = registry.kernels["gemm/cuda.tiled"]
    assert isinstance(kernel, CudaKernel)
    return kernel


@pytest.fixture
def digest(registry):
    return lambda kernel, *problems, limits=H100: kernel_digest(
        kernel, [registry.problem(problem) for problem in problems or (PROBLEM,)], limits
    )


def edit(file, *changes):
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def test_a_flat_source_has_its_headers_once_and_neither_comments_nor_the_emulators_code(cuda):
    assert flattened(cuda / "ops" / "k.cu", cuda) == FLAT


@pytest.mark.parametrize(
    ("file", "old", "new", "is_same"),
    [
        ("ops/k.cu", "// An idea.", '// Another idea, with "quotes" and an apostrophe\'s end.', True),
        ("ops/k.cu", "a[0] = twice(a[1])", "a [0]=twice( a[1]  )", True),
        ("ops/k.cu", "(float *a) {\n", "(\n    float* a)\n{", True),
        ("ops/k.cu", "#define SIZE (4)", "#define  SIZE  \\\n  (4)", True),
        ("shared.cuh", "emulated", "emulated_anew", True),
        ("shared.cuh", "#pragma once", "/* licence */\n#pragma  once", True),
        ("ops/own.cuh", "x / 2", "x / /* of // it */ 2", True),
        ("ops/k.cu", "+ +SIZE", "++SIZE", False),
        ("ops/k.cu", "SIZE (4)", "SIZE(4)", False),
        ("ops/k.cu", "text  /*", "text /*", False),
        ("ops/k.cu", "twice(", "half_of(", False),
        ("ops/k.cu", "cuda_fp16", "cuda_bf16", False),
        ("ops/k.cu", "a[1]) + ", "a[1]) // + ", False),
    ],
)
def test_a_flat_source_changes_with_code_that_a_gpu_runs_alone(cuda, file, old, new, is_same):
    edit(cuda / file, (old, new))
    assert (flattened(cuda / "ops" / "k.cu", cuda) == FLAT) is is_same


@pytest.mark.parametrize(("first", "second"), [("a - -b", "a --b"), ("a + +b", "a++ b"), ("a & &b", "a && b")])
def test_operators_that_only_a_space_separates_are_two(cuda, first, second):
    file = cuda / "ops" / "alone.cu"
    texts = {flattened(file, cuda) for text in (first, second) if file.write_text(text)}
    assert len(texts) == 2


def test_a_renamed_header_and_a_moved_checkout_change_nothing(cuda, tmp_path):
    (cuda / "ops" / "own.cuh").rename(cuda / "renamed.cuh")
    edit(cuda / "ops" / "k.cu", ("ops/own.cuh", "renamed.cuh"))
    moved = cuda.rename(tmp_path / "elsewhere")
    assert flattened(moved / "ops" / "k.cu", moved) == FLAT


@pytest.mark.parametrize("header", ["common.cuh", "gemm/panel.cuh", "conv/sum.cuh", "grid.cuh"])
def test_one_token_in_a_header_changes_exactly_the_kernels_that_include_it(registry, tmp_path, monkeypatch, header):
    copy = tmp_path / "cuda"
    shutil.copytree(cuda_sources(), copy)
    monkeypatch.setattr(sources, "cuda_sources", lambda: copy)
    kernels = [kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel)]
    users = {k.id for k in kernels if copy / header in with_includes(copy / k.source, copy)}
    before = {kernel.id: kernel_digest(kernel, (), H100) for kernel in kernels}
    (copy / header).write_text((copy / header).read_text() + "// a comment\n")
    assert {kernel.id: kernel_digest(kernel, (), H100) for kernel in kernels} == before
    (copy / header).write_text((copy / header).read_text() + ";\n")
    changed = {kernel.id for kernel in kernels if kernel_digest(kernel, (), H100) != before[kernel.id]}
    assert changed == users
    assert users


def test_a_renamed_source_and_what_is_for_reading_and_for_tests_change_nothing(tiled, digest, tmp_path):
    renamed = shutil.copy(cuda_sources() / tiled.source, tmp_path / "renamed.cu")
    other = replace(tiled, label="Another label.", module="moved.away", emulated="not here", spills="it may")
    other = replace(other, source=str(renamed))
    assert digest(other) == digest(tiled)
    assert len(digest(tiled)) == 20


def test_every_declared_value_that_measuring_sees_changes_it(tiled, digest):
    tunables = {name: values[::-1] for name, values in tiled.tunables.items()}
    fields = {"numerics": "tf32", "alignment": 4, "order": "F", "cooperative": True, "name": "x", "archs": ("sm_80",)}
    arguments = ("a", np.int32(3), np.int64(3), np.void((1, 2), "i4,i4"), np.void((1, 3), "i4,i4"))
    other = [
        *(replace(tiled, **{field: value}) for field, value in fields.items()),
        replace(tiled, entry=f"{tiled.entry} "),
        replace(tiled, executed=lambda problem, tile: 5 + problem.flop),
        replace(tiled, supports=lambda problem: "not this one"),
        replace(tiled, tunables=tunables, prefer=None),
        *(planned(tiled, **{field: 2}) for field in ("grid", "block", "shared_bytes", "cluster")),
        *(planned(tiled, args=(argument,)) for argument in arguments),
    ]
    digests = [digest(kernel) for kernel in (tiled, *other)]
    assert [i for i, each in enumerate(digests) if digests.count(each) > 1] == []


def test_another_default_tile_changes_it_only_where_it_is_taken(registry, digest):
    kernel = registry.kernels["gemm/cuda.warptile"]
    assert kernel.prefer is not None
    first, *others = kernel.prefer.tiles
    later = replace(kernel, prefer=Prefer((first, *others, {**first}), kernel.prefer.unless))
    assert digest(later) == digest(kernel)
    turned = replace(kernel, prefer=Prefer((*others[::-1], first), kernel.prefer.unless))
    assert digest(turned) != digest(kernel)


def test_a_copy_of_a_launch_has_the_same_digest(tiled, digest):
    assert digest(planned(tiled)) == digest(tiled)


def test_problems_and_launcher_change_it_and_their_order_does_not(tiled, digest, registry):
    other = "gemm/m65n128k32/f32/NN"
    assert digest(tiled, PROBLEM, other) == digest(tiled, other, PROBLEM)
    problem = registry.problem(PROBLEM)
    assert len({digest(tiled), digest(tiled, PROBLEM, other), kernel_digest(tiled, [problem], H100, "pycuda")}) == 3


def test_limits_change_it_by_the_launches_alone(tiled, digest):
    assert digest(tiled, limits=replace(H100, l2_bytes=60 * 2**20)) == digest(tiled)
    assert digest(replace(tiled, min_arch=90), limits=TYPICAL[75]) != digest(tiled, limits=TYPICAL[75])


def test_a_task_follows_from_its_kernels_and_the_version_of_the_measuring(registry, tiled, monkeypatch):
    tiled_task, naive_task = (tiled, [registry.problem(PROBLEM)]), (registry.kernels["gemm/cuda.naive"], [])
    before = task_digest([tiled_task, naive_task], H100)
    assert task_digest([naive_task, tiled_task], H100) == before
    assert task_digest([tiled_task], H100) != before
    monkeypatch.setattr(sources, "MEASURING", sources.MEASURING + 1)
    assert task_digest([tiled_task, naive_task], H100) != before


def test_every_kernel_has_a_digest_of_its_own(registry):
    digests = {kernel_digest(kernel, (), H100) for kernel in registry.kernels.values()}
    assert len(digests) == len(registry.kernels)


def test_another_process_forms_the_same_digest(tiled, digest, registry, tmp_path, python_in):
    blocked = registry.kernels["gemm/numpy.matmul"]
    script = (
        "import json\nfrom kernelmark.bench.measure.sources import kernel_digest\n"
        "from kernelmark.bench.plan.discovery import discover\nfrom kernelmark.bench.plan.limits import H100\n"
        f"r = discover()\nproblem = r.problem({PROBLEM!r})\n"
        f"print(json.dumps([kernel_digest(r.kernels[k], [problem], H100) for k in {[tiled.id, blocked.id]}]))"
    )
    done = python_in(tmp_path, "-c", script, PYTHONHASHSEED="7")
    assert json.loads(done.stdout) == [digest(tiled), digest(blocked)]


def test_a_digest_that_cannot_be_formed_is_refused_in_one_line(tiled, digest, complaint):
    what = "<built-in function len> is a builtin_function_or_method, expected a number, a string or a launch argument"
    for kernel, reason in (
        (planned(tiled, args=(len,)), what),
        (replace(tiled, source="gone.cu"), "[Errno 2] No such file or directory: "),
        (replace(tiled, plan=lambda *_: 1 // 0), "integer division or modulo by zero"),
        (replace(tiled, entry="{absent}"), "'GemmProblem' object has no attribute 'absent'"),
    ):
        expected = f"{tiled.id}: no digest can be formed: {reason}"
        assert complaint(lambda kernel=kernel: digest(kernel)).startswith(expected)


CPU = '''"""Kernels."""

import numpy as np
from kernelmark import kernel
from kernelmark.kernels.op import _parts, other
from kernelmark.kernels.op.problem import Problem
WIDTH = 4  # lanes

@kernel("op", provider="cpu")
def fast(problem: Problem, x):
    """A label."""
    from kernelmark.kernels._shared import run
    return lambda: run(_parts.step, WIDTH, other.chosen)

@kernel("op", provider="cpu")
def slow(problem, x):
    return lambda: np.copyto(x.b, x.a)
'''
FILES = {
    "kernels/op/cpu.py": CPU,
    "kernels/op/_parts.py": "settings.lanes = 8\ndef step(i):\n    return i + helper()\ndef helper():\n    return 1\n",
    "kernels/op/other.py": "def chosen():\n    return base()\ndef base():\n    return 2\ndef unused():\n    return 3\n",
    "kernels/op/problem.py": "class Problem:\n    pass\n",
    "kernels/_shared.py": "def run(*parts):\n    return parts\n",
    "kernels/_unused.py": "def free():\n    return 0\n",
}


@pytest.fixture
def package(tmp_path):
    write_files(tmp_path / "kernelmark", FILES)
    return tmp_path / "kernelmark"


def fast_in(package, module="kernels/op/cpu.py"):
    return python_code(package / module, "fast", package)


@pytest.mark.parametrize(
    ("file", "old", "new", "is_same"),
    [
        ("op/cpu.py", "  # lanes", "", True),
        ("op/cpu.py", "A label.", "Another label.", True),
        ("op/cpu.py", "WIDTH = 4", "WIDTH = (\n    4\n)", True),
        ("op/cpu.py", "x.b, x.a", "x.a, x.b", True),  # code of another kernel
        ("op/other.py", "return 3", "return 4", True),  # code that the kernel does not use
        ("op/problem.py", "pass", "k = 1", True),
        ("_unused.py", "return 0", "return 1", True),
        ("op/cpu.py", "WIDTH = 4", "WIDTH = 8", False),
        ("op/cpu.py", "WIDTH,", "2 * WIDTH,", False),
        ("op/_parts.py", "return 1", "return 2", False),
        ("op/_parts.py", "lanes = 8", "lanes = 4", False),
        ("op/other.py", "return 2", "return 4", False),
        ("_shared.py", "return parts", "return parts[::-1]", False),
    ],
)
def test_code_that_a_python_kernel_uses_changes_it_and_nothing_else_does(package, file, old, new, is_same):
    before = fast_in(package)
    edit(package / "kernels" / file, (old, new))
    assert (fast_in(package) == before) is is_same


def test_modules_of_python_kernels_may_move_and_be_renamed(package):
    before = fast_in(package)
    (package / "kernels" / "op" / "_parts.py").rename(package / "kernels" / "_pieces.py")
    edit(package / "kernels" / "op" / "cpu.py", ("op import _parts, other", "op import other"), ("_parts.", "_pieces."))
    edit(package / "kernels" / "op" / "cpu.py", ("WIDTH = 4", "from kernelmark.kernels import _pieces\nWIDTH = 4"))
    (package / "kernels" / "moved").mkdir()
    (package / "kernels" / "op" / "cpu.py").rename(package / "kernels" / "moved" / "host.py")
    assert fast_in(package, "kernels/moved/host.py") == before
