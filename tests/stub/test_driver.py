"""The real cuda-core on the stub driver: spans of known lengths, several GPUs, and every breach of a rule."""

from functools import partial
from uuid import UUID

import numpy as np
import pytest

from kernelmark.bench.measure.present import cuda_missing
from stub.library import environment, on_stub
from support.texts import csv_rows

NAMES = ("properties", "spans", "held_span", "launches_read")


@pytest.fixture(scope="module")
def runs(tools, folder):
    calls = {name: (f"stub.programs:{name}",) for name in NAMES}
    return on_stub({"missing": ("kernelmark.bench.measure.present:cuda_missing",), **calls}, folder)


def test_only_the_process_that_asks_for_the_stub_sees_it(runs):
    before = cuda_missing()
    assert runs["missing"].value is None
    cuda_missing.cache_clear()
    assert cuda_missing() == before


def test_only_the_call_that_synchronises_in_a_capture_breaks_a_rule(runs):
    broken = {name: run.violations for name, run in runs.items() if run.violations}
    assert broken == {"launches_read": ["cuStreamSynchronize was called while a stream was capturing"]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("properties", [1, "kernelmark stub", "sm_90", 132, True]),
        # A span is the length of its launches, rounded to float32 milliseconds.
        ("spans", [float(np.float32(ms)) for ms in (0.0, 1e-6, 0.999999, 617.283945)]),
        # Without holding, the span has the host cost of eleven calls, 5 us each, between the two records.
        ("held_span", {"free": float(np.float32(0.055)), "held": float(np.float32(0.010))}),
    ],
)
def test_cuda_core_reads_properties_and_spans(runs, name, expected):
    assert runs[name].value == expected


def test_the_launches_of_a_call_are_read_from_its_graph_and_none_is_run(runs):
    launches, call = runs["launches_read"].value, "scaled<<<1,1,1 x 32,1,1>>>"
    assert launches["both"] == "scaled<<<3,2,1 x 8,4,2>>>; scaled<<<5,1,7 x 64,1,1>>>"
    assert (launches["none"], launches["waits"], launches["raises"]) == ("", "", "")
    assert (launches["eight"], launches["eleven"]) == ("; ".join([call] * 8), "; ".join([*[call] * 8, "and 3 more"]))
    assert launches["long"] == f"{('longer_' * 30)[:117]}...<<<1,1,1 x 32,1,1>>>"
    assert (launches["before"], launches["after"]) == (0, 2)


SEES = "CUDA_VISIBLE_DEVICES"
GPUS = [f"GPU-{UUID(bytes=b'kernelmark stub' + last)}" for last in (b".", b"/")]


@pytest.mark.parametrize(("given", "seen"), [({}, GPUS), ({SEES: GPUS[1]}, GPUS[1:]), ({SEES: "GPU-another"}, [])])
def test_a_process_sees_the_gpus_of_its_uuids(tools, tmp_path, given, seen):
    calls = {"uuids": ("kernelmark.bench.measure.cuda:gpu_uuids",)}
    assert on_stub(calls, tmp_path, KM_STUB_DEVICES="2", **given)["uuids"].value == seen


@pytest.mark.long
def test_a_run_on_two_gpus_uses_both_and_names_them_only_on_request(tools, tmp_path, python_in):
    variables = environment(KM_STUB_LOG=str(tmp_path / "driver.log"), KM_STUB_DEVICES="2")
    command = partial(python_in, tmp_path, "-m", "kernelmark", **variables)
    problems = ("transfer/n1031/f32/h2d", "transfer/n2062/f32/h2d")
    flags = ("--kernels", "transfer/cuda.pinned", "--mode", "hot", "--no-ceilings", "--devices", "0,1", "--db", "r.db")
    done = command("run", *problems, *flags)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    for options, expected in (((), False), (("--identify",), True)):
        rows = csv_rows(command("export", *options, "--db", "r.db").stdout)
        devices = {row["problem"]: row["device_uuid"] for row in rows}
        assert set(devices) == set(problems)
        assert (set(devices.values()) == set(GPUS)) is expected
        assert len(set(devices.values())) == 2


WAITING = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")
OTHERS = ("cuMemAlloc_v2", "cuMemFree_v2", "cuLibraryLoadData", "cuMemcpyHtoDAsync_v2")
BLOCKING = dict.fromkeys(WAITING, "CUDA_ERROR_LAUNCH_TIMEOUT") | dict.fromkeys(OTHERS, "CUDA_SUCCESS")
BAD, SHARED = "CUDA_ERROR_INVALID_VALUE", {"shmem_size": 49153}
#: A breach (a function with its arguments), its result, and a part of the only violation that it causes.
BREACHES = [
    (("launch_elsewhere",), 0.0, "nothing ran on stream"),
    (("launch_elsewhere", True), 0.0, "nothing ran on stream"),
    *((("call_while_held", name), BLOCKING[name], f"{name} was called while a stream was held") for name in BLOCKING),
    (("launched", SHARED), BAD, "dynamic shared memory of 49153, expected at most 49152"),
    (("launched", {"cluster": 16}), "CUDA_ERROR_INVALID_CLUSTER_SIZE", "clusters of 16, expected at most 8"),
    (("too_many_cooperating_blocks",), "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "4225, expected at most 4224"),
    (("launched", {"block": 1025}), BAD, "threads a block, 1025, expected at most 1024"),
    (("copy_beyond_the_end",), BAD, "reach beyond the memory that was allocated"),
    (("free_twice",), BAD, "is no memory that is alive"),
    (("capture_without_joining",), "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "another stream's work had joined it"),
    (("encoded_map", 8), BAD, "begins at a multiple of 16 bytes"),
    (("encoded_map", 0, 32, 64), BAD, "expected a multiple of 128"),
    (("encoded_map", 0, 64), BAD, "a box no wider than its swizzle"),
]
#: Calls that break no rule, with their results. The last one requests more shared memory than exists, and is refused.
ALLOWED = [
    (("launch_elsewhere", True, True), float(np.float32(0.001))),
    (("copy_pinned_while_held",), None),
    (("launched", SHARED, "MAX_DYNAMIC_SHARED_SIZE_BYTES", 49153), ""),
    (("launched", {"cluster": 16}, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1), ""),
    (("encoded_map",), "CUDA_SUCCESS"),
    (("launched", SHARED, "MAX_DYNAMIC_SHARED_SIZE_BYTES", 232449), BAD),
]


@pytest.fixture(scope="module")
def breaking(tools, tmp_path_factory):
    calls = {str(call): (f"stub.breaches:{call[0]}", *call[1:]) for call, *_ in (*BREACHES, *ALLOWED)}
    return on_stub(calls, tmp_path_factory.mktemp("stub"), KM_STUB_PATIENCE_MS="0")


@pytest.mark.parametrize(("call", "value", "expected"), BREACHES, ids=str)
def test_a_breach_is_found(breaking, call, value, expected):
    (violation,) = breaking[str(call)].violations
    assert expected in violation
    assert breaking[str(call)].value == value


@pytest.mark.parametrize(("call", "value"), ALLOWED, ids=str)
def test_a_permitted_call_is_no_violation(breaking, call, value):
    assert breaking[str(call)].violations == []
    assert breaking[str(call)].value == value


def test_a_device_has_the_requested_faults(tools, tmp_path):
    names = ("memory_that_runs_out", "clock_that_jumps", "illegal_address")
    breaking = on_stub({name: (f"stub.breaches:{name}",) for name in names}, tmp_path)
    assert breaking["memory_that_runs_out"].value == ["CUDA_SUCCESS", *["CUDA_ERROR_OUT_OF_MEMORY"] * 2]
    hour_ms = float(np.float32(3.6e6))
    assert breaking["clock_that_jumps"].value == pytest.approx([1e-3, hour_ms, -hour_ms])
    assert breaking["illegal_address"].value == ["CUDA_SUCCESS", *["CUDA_ERROR_ILLEGAL_ADDRESS"] * 3]


def test_every_kind_of_leaked_handle_is_named(tools, tmp_path):
    run = on_stub({"leave": ("stub.breaches:leave_everything",)}, tmp_path)["end"]
    leaked = {line.partition(" of ")[0] for line in run.violations}
    assert leaked == {"memory", "an event", "a stream", "a graph", "an executable graph"}
