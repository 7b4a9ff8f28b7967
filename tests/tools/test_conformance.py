"""Calls of bench and kernels into GPU packages fit the signatures that `make conformance` has recorded."""

import json
import re
from functools import partial
from typing import Any

import pytest

import conformance
from kernelmark.kernels.gemm import _cublas
from support.cuda import REGISTRY, device_arrays
from support.tools import TOOLS

RECORD = json.loads(conformance.RECORD.read_text())
NAMES = RECORD["names"]
LAUNCH, PYCUDA, MAPS = (f"bench/measure/{name}.py" for name in ("launch", "launch_pycuda", "tensormap"))
CUDNN, NCCL = "kernels/conv/vendor/cudnn_frontend.py", "kernels/aggregate/nccl.py"
#: For each mistake: a file, a text in it, its replacement, and a part of the complaint.
PLANTED = {
    "wrong name": (MAPS, "KernelEx(", "KernelExx(", "cuda.bindings.driver.cuLaunchKernelExx: no such name"),
    "wrong member of an enumeration": (MAPS, "L2_256B", "L2_512B", "MAP_L2_PROMOTION_L2_512B: no such name"),
    "wrong name as a string": (CUDNN, '"TENSOR_CORE", ', '"TENSOR_CORES", ', "numerical_note.TENSOR_CORES: no"),
    "wrong attribute of the device": ("bench/measure/cuda.py", '"L2_CACHE_SIZE")', '"L2_SIZE")', "_L2_SIZE: no"),
    "wrong method of an instance": ("bench/measure/timing.py", "stop.synchronize", "stop.wait", "Event.wait: no such"),
    "wrong function of a held module": (NCCL, "_nccl.groupStart", "_nccl.groupBegin", "cuda.nccl.groupBegin: no such"),
    "too many arguments": (LAUNCH, "handle(stream.ptr)", "handle(stream.ptr, 0)", "from_handle(handle): too many"),
    "too many arguments in tuples": (
        *("kernels/gemm/cublaslt.py", "(beta, c, described.c, c, described.c)", "(beta, c, c, described.c, c, 0)"),
        "too many positional arguments",
    ),
    "too few arguments": ("kernels/copy/cuda.py", "ToDevice, stream", "ToDevice", "required argument: 'stream'"),
    "too few arguments of C": (MAPS, "(c_uint32 * 3)(1, 1, 1),", "", "required argument: '_11'"),
    "wrong keyword": (LAUNCH, "shmem_size=", "shared_size=", "keyword argument 'shared_size'"),
    "wrong keyword of a method": (CUDNN, "space, handle=", "space, handles=", "keyword argument 'handles'"),
    "wrong keyword of PyCUDA": (PYCUDA, "prepare(", "prepare(types=", "argument: 'arg_types'"),
    "no mistake, a positional argument by keyword": (LAUNCH, "from_cubin(code)", "from_cubin(module=code)", ""),
}


@pytest.fixture(scope="module")
def uses():
    return list(conformance.all_uses())


def test_every_use_fits_its_recorded_signature(uses):
    assert list(conformance.complaints(uses, NAMES)) == []
    assert NAMES.keys() == {use.name for use in uses} | conformance.declared().keys()


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found(planted):
    file, old, new, expected = PLANTED[planted]
    text = (conformance.ROOT / file).read_text()
    assert old in text
    complaints = list(conformance.complaints(conformance.uses_of(file, text.replace(old, new, 1)), NAMES))
    assert any(expected in line for line in complaints) if expected else not complaints


def test_every_owner_has_a_name_that_is_called(uses):
    called = {use.name for use in uses if use.arguments}
    owners = {owner.removesuffix("()") for owner in conformance.OWNERS}
    assert {owner for owner in owners if not any(name.startswith(owner) for name in called)} == set()


def test_ctypes_declarations_have_the_sizes_of_the_header():
    assert list(conformance.differences(NAMES)) == []
    sgemm = "libcublas.cublasSgemm_v2"
    (complaint,) = conformance.differences({**NAMES, sgemm: NAMES[sgemm].replace("_5: 4", "_5: 8")})
    assert complaint.startswith(f"{sgemm}: parameters have [8, 4, 4, 4, 4, 4, ")


def test_the_recorded_signatures_are_of_the_pinned_versions():
    pinned = re.findall(r"^([\w-]+)==(\S+)$", (TOOLS / "data" / "gpu-packages.txt").read_text(), re.MULTILINE)
    assert {name: RECORD["versions"].get(name) for name, _ in pinned} == dict(pinned)
    assert RECORD["versions"]["pycuda"].startswith("2026.")


class Api:
    """A fake of nvmath's bindings, whose routines have only names."""

    def __getattr__(self, name):
        routine = partial(print)
        routine.name = name  # type: ignore[attr-defined]
        return routine


CUBLAS = [k for k in REGISTRY.kernels.values() if k.module == "kernelmark.kernels.gemm.cublas"]
PLAIN = [k.id for k in CUBLAS if "none" in k.domain["grouping"]]


@pytest.mark.parametrize("batch", ["", "/batch8"])
@pytest.mark.parametrize("name", PLAIN)
def test_cublas_gets_as_many_arguments_as_its_bindings_take(name, batch, monkeypatch):
    kernel = REGISTRY.kernels[name]
    problem = REGISTRY.problem(f"gemm/m8n16k24/{kernel.domain['dtype'][0]}/NT{batch}")
    if kernel.refuses(problem):
        pytest.skip(f"{name} takes no {problem.id}")
    monkeypatch.setattr(_cublas, "handle_of", lambda x: _cublas._CuBlas(Api(), 1, None))
    launch: Any = kernel.setup(problem, device_arrays(problem))
    given = conformance.Arguments(len(launch.args), (), False)
    assert conformance.misfit(NAMES[f"nvmath.bindings.cublas.{launch.func.name}"], given) == ""
