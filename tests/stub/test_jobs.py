"""Kernels end to end on the stub driver: the project's launcher, clock and verification over the real cuda-core."""

import ast
import json
import re
from pathlib import Path

import pytest
from tabulate import tabulate

from scripts import script
from stub.library import ROOT, Run, on_stub
from stub.recording import RECORDED

PLAIN = ("gemm/cuda.tiled", "gemm/m33n31k17/f32/NT")
#: Kernels and problems, with what the log must have of one of their launches.
VERIFIED = {
    "plain": (*PLAIN, "grid 1 2 1, block 32 32 1"),
    "dynamic shared memory": ("gemm/cuda.async", "gemm/m33n31k17/f32/NT", "shared 50176"),
    "cooperative": ("transpose/cuda.c2r_fused", "transpose/m17n12/f32/in", "cooperative 1"),
    "tensor maps": ("transpose/cuda.tma", "transpose/m64n32/f32/out", "shared 99328"),
    "cluster and tensor maps": ("gemm/cuda.wgmma_tf32", "gemm/m40n48k64/f32/NT", "cluster 2 1 1"),
}
DRIVER_FUNCTION = re.compile(r"cu[A-Z]\w+")
#: Packages whose functions run on the stub, those that it cannot carry so far, and the one that is stood in for.
EXECUTED, NOT_YET, STAND_IN = ("cuda.core.", "cuda.bindings.", "libcuda.", "pycuda."), ("pycuda.",), ("cupy.",)
UNRECORDED = {"how": "nothing; run make conformance"}
MODES = ("hot", "cold", "graph")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stub")


@pytest.fixture(scope="module")
def runs(tools: None, folder: Path) -> dict[str, Run]:
    verified = {name: ("stub.jobs:verified", *case[:2]) for name, case in VERIFIED.items()}
    timed = {mode: ("stub.jobs:timed", *PLAIN, mode) for mode in MODES}
    others = {
        "refused map": ("stub.jobs:refused_map",),
        "not run": ("stub.jobs:not_run", *PLAIN),
        "identity": ("bench.measure.lock:gpu_uuid",),
        "synchronising": ("stub.jobs:synchronising_call",),
    }
    last = {"compiled": ("stub.jobs:compiled", str(folder))}
    calls = {"missing": ("bench.measure.cuda:cuda_missing",), **verified, **others, **timed, **last}
    return on_stub(calls, folder, **{RECORDED: str(folder / "calls.json")})


@pytest.mark.parametrize("name", VERIFIED)
def test_a_kernel_verifies(runs: dict[str, Run], name: str) -> None:
    found = runs[name].value
    assert (found["status"], found["reason"], found["complaints"]) == ("ok", "", [])
    assert found["ran"] >= 1
    assert any(line.startswith("cuLaunchKernelEx ") and VERIFIED[name][2] in line for line in runs[name].log)


def test_a_kernel_that_is_launched_and_not_run_is_wrong(runs: dict[str, Run]) -> None:
    assert runs["not run"].value["status"] == "wrong"


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_is_the_length_of_a_launch(runs: dict[str, Run], mode: str) -> None:
    found = runs[mode].value
    assert (found["status"], found["reason"], found["complaints"]) == ("ok", "", [])
    assert found["disturbed"] == ""
    assert set(found["samples"]) == {0.02}


@pytest.mark.parametrize(("mode", "call"), [("hot", "cuLaunchKernelEx"), ("graph", "cuGraphLaunch")])
def test_what_is_timed_is_queued_while_the_stream_is_held(runs: dict[str, Run], mode: str, call: str) -> None:
    calls = [line.split()[0] for line in runs[mode].log]
    last = len(calls) - 1 - calls[::-1].index("cuStreamWaitValue32_v2")
    assert calls[last + 1 : last + 4] == ["cuEventRecord", call, "cuEventRecord"]


def test_a_call_that_synchronises_is_let_go_by_the_watchdog_and_timed_without_holding(runs: dict[str, Run]) -> None:
    (violation,) = runs["synchronising"].violations
    assert violation == "cuStreamSynchronize was called while a stream was held"
    assert runs["synchronising"].value == {"held": False, "span": 0.004}


def test_a_map_that_the_driver_refuses_is_an_error_with_its_status(runs: dict[str, Run]) -> None:
    assert runs["refused map"].value.endswith("over (32, 32): CUDA_ERROR_INVALID_VALUE")


def test_the_device_has_an_identity(runs: dict[str, Run]) -> None:
    assert bytes.fromhex(runs["identity"].value) == b"kernelmark stub."


def test_no_rule_is_broken(runs: dict[str, Run]) -> None:
    broken = {name for name, run in runs.items() if run.violations}
    assert broken == {"refused map", "synchronising"}


def test_every_function_of_cuda_core_and_its_bindings_that_we_call_is_executed(
    runs: dict[str, Run], folder: Path
) -> None:
    """Print what bench and kernels call of a GPU's packages: whether it is executed, and how its signature is bound."""
    places = {tuple(place) for place in json.loads((folder / "calls.json").read_text())}
    names, executed = script("gpu_binding").recorded()["names"], {}
    for use in script("gpu_calls").all_uses():
        if use.arguments is not None:
            executed[use.name] = executed.get(use.name, False) or (use.file, use.span[1], use.span[3]) in places
    rows = [(name, _state(name, executed[name]), names.get(name, UNRECORDED)["how"]) for name in sorted(executed)]
    print(tabulate(rows, headers=("function", "executed on the stub", "bound by")))
    assert [name for name, state, _ in rows if state == "no"] == []
    assert {name.partition(".")[0] for name, state, _ in rows if state == "yes"} == {"cuda", "libcuda"}


def _state(name: str, executed: bool) -> str:
    if executed and not name.startswith(STAND_IN):
        return "yes"
    if name.startswith(NOT_YET):
        return "not yet"
    return "no" if name.startswith(EXECUTED) else "signature only"


def _named_in_sources() -> dict[str, str]:
    """Return the functions of the driver that bench and kernels name, each with the first file that does."""
    found: dict[str, str] = {}
    for folder in ("bench", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and DRIVER_FUNCTION.fullmatch(node.attr):
                    found.setdefault(_unversioned(node.attr), str(path.relative_to(ROOT)))
    return found


def _unversioned(function: str) -> str:
    return re.sub(r"_v\d+$", "", function)


def test_every_function_of_the_driver_that_we_call_is_executed(runs: dict[str, Run]) -> None:
    called = {_unversioned(name): count for name, count in runs["end"].called.items()}
    named = _named_in_sources()
    rows = [(name, count, named.get(name, "by the packages")) for name, count in sorted(called.items())]
    print(tabulate(rows, headers=("function of the driver", "calls", "named in")))
    assert named.keys() >= {"cuTensorMapEncodeTiled", "cuStreamWaitValue32"}
    assert named.keys() - called.keys() == set()
