"""The rules of the stub driver: each breach that is planted is found, and what looks like one and is none passes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stub.library import Run, on_stub

HELD = "was called while a stream was held"
#: The breach, what it returns, and what the one violation that it causes has.
BREACHES = [
    ("breaches:launch_elsewhere", 0.0, "nothing ran on stream"),
    ("breaches:launch_elsewhere_without_joining", 0.0, "nothing ran on stream"),
    ("breaches:synchronise_while_held", "CUDA_ERROR_LAUNCH_TIMEOUT", f"cuStreamSynchronize {HELD}"),
    ("breaches:synchronise_an_event_while_held", None, f"cuEventSynchronize {HELD}"),
    ("breaches:synchronise_all_while_held", None, f"cuCtxSynchronize {HELD}"),
    ("breaches:allocate_while_held", None, f"cuMemAlloc_v2 {HELD}"),
    ("breaches:free_while_held", None, f"cuMemFree_v2 {HELD}"),
    ("breaches:load_while_held", None, f"cuLibraryLoadData {HELD}"),
    ("breaches:copy_while_held", None, f"cuMemcpyHtoDAsync_v2 {HELD}"),
    (
        "refusals:too_much_shared_memory",
        "CUDA_ERROR_INVALID_VALUE",
        "dynamic shared memory of 49153, expected at most 49152",
    ),
    ("refusals:wide_cluster", "CUDA_ERROR_INVALID_CLUSTER_SIZE", "clusters of 16, expected at most 8"),
    ("refusals:too_many_cooperating_blocks", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "4225, expected at most 4224"),
    ("refusals:threads_beyond_the_bound", "CUDA_ERROR_INVALID_VALUE", "threads a block, 1025, expected at most 1024"),
    ("refusals:copy_beyond_the_end", "CUDA_ERROR_INVALID_VALUE", "reach beyond the memory that was allocated"),
    ("refusals:free_twice", "CUDA_ERROR_INVALID_VALUE", "is no memory that is alive"),
    ("breaches:synchronise_while_capturing", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "while a stream was capturing"),
    (
        "breaches:capture_without_joining",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "another stream's work had joined it",
    ),
    ("refusals:misaligned_map", "CUDA_ERROR_INVALID_VALUE", "begins at a multiple of 16 bytes"),
    ("refusals:misaligned_descriptor", "CUDA_ERROR_INVALID_VALUE", "expected a multiple of 128"),
    ("refusals:box_wider_than_its_swizzle", "CUDA_ERROR_INVALID_VALUE", "a box no wider than its swizzle"),
]
#: What breaks no rule, with what it returns.
ALLOWED = [
    ("breaches:launch_elsewhere_and_join", float(np.float32(0.001))),
    ("breaches:copy_pinned_while_held", None),
    ("refusals:shared_memory_that_was_asked_for", "CUDA_SUCCESS"),
    ("refusals:wide_cluster_that_was_asked_for", "CUDA_SUCCESS"),
    ("refusals:aligned_map", "CUDA_SUCCESS"),
]


@pytest.fixture(scope="module")
def runs(tools: None, folder: Path) -> dict[str, Run]:
    names = (
        *(name for name, *_ in BREACHES),
        *(name for name, _ in ALLOWED),
        "refusals:more_shared_memory_than_there_is",
    )
    calls = {name: (f"stub.{name}",) for name in names}
    return on_stub(calls, folder, KM_STUB_PATIENCE_MS="0")


@pytest.mark.parametrize(("name", "value", "expected"), BREACHES)
def test_a_breach_is_found(runs: dict[str, Run], name: str, value: Any, expected: str) -> None:
    (violation,) = runs[name].violations
    assert expected in violation
    assert runs[name].value == value


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_what_breaks_no_rule_passes(runs: dict[str, Run], name: str, value: Any) -> None:
    assert runs[name].violations == []
    assert runs[name].value == value


def test_more_shared_memory_than_there_is_is_refused_where_it_is_asked_for(runs: dict[str, Run]) -> None:
    assert runs["refusals:more_shared_memory_than_there_is"].value == "CUDA_ERROR_INVALID_VALUE"


def test_after_a_launch_that_failed_every_call_fails(tools: None, tmp_path: Path) -> None:
    run = on_stub({"failing": ("stub.refusals:failing_launch",)}, tmp_path)["failing"]
    assert set(run.value) == {"CUDA_ERROR_LAUNCH_FAILED"}


def test_a_device_has_the_faults_that_are_asked_for(tools: None, tmp_path: Path) -> None:
    names = ("memory_that_runs_out", "clock_that_jumps", "illegal_address")
    runs = on_stub({name: (f"stub.faulted:{name}",) for name in names}, tmp_path)
    assert runs["memory_that_runs_out"].value == ["CUDA_SUCCESS", *["CUDA_ERROR_OUT_OF_MEMORY"] * 2]
    hour_ms = float(np.float32(3.6e6))
    assert runs["clock_that_jumps"].value == pytest.approx([1e-3, hour_ms, -hour_ms])
    assert runs["illegal_address"].value == ["CUDA_SUCCESS", *["CUDA_ERROR_ILLEGAL_ADDRESS"] * 3]


def test_every_kind_of_handle_that_is_left_is_named(tools: None, tmp_path: Path) -> None:
    run = on_stub({"leave": ("stub.breaches:leave_everything",)}, tmp_path)["end"]
    left = {line.partition(" of ")[0] for line in run.violations}
    assert left == {"memory", "an event", "a stream", "a graph", "an executable graph"}
