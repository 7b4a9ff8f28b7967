"""The page of a GPU's report: networks are summed, ratios stay within a run, and what is open is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.bench.record.store import Store
from report_rows import begin, put
from scripts import script

FPROP = "conv/n32c8h6w6k8r3s3pad1/f32/nchw/fprop", "conv/n32c8h8w8k8r3s3pad1/f32/nchw/fprop"
GPU = {"device": "cuda", "device_name": "NVIDIA H200", "host": "somewhere", "mode": "hot", "layout": "nchw"}


@pytest.fixture
def page(store: Store) -> Callable[..., str]:
    """Make the page of tasks (name, problem, run, detail); an open one has no run."""
    agenda, report = script("agenda"), script("gpu_report")

    def of(*tasks: tuple[str, str, str, str]) -> str:
        made, found = [], agenda.Agenda(device="NVIDIA H200", notes=["Read this first."])
        for name, problem, run, detail in tasks:
            how: dict[str, Any] = {"problems": (problem,), "group": "Convolution: net", "detail": detail}
            one = agenda.Task(name=name, kind="time", value=1.0, digest="d", seconds=30.0, **how)
            made.append(one)
            if run:
                agenda.answer(found, one, agenda.Answer(digest="d", run=run))
        return str(report._page(found, made, None, store, Path("nowhere")))

    return of


def layer(store: Store, run: str, problem: str, ours: float, theirs: float, begun: bool = False, **more: Any) -> None:
    if not begun:
        begin(store, run)
    for provider, name, median in (("cuda", "implicit", ours), ("cudnn", "gemm", theirs)):
        how = {**GPU, **more, "run_id": run, "provider": provider}
        put(store, problem, f"conv/{provider}.{name}", taken=[median] * 20, **how)


def test_a_network_is_summed_once_every_layer_is_answered(store: Store, page: Callable[..., str]) -> None:
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    layer(store, "r2", FPROP[1], 3e-3, 4e-3)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r2", "1"))
    line = next(line for line in text.splitlines() if line.startswith("| fprop"))
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["fprop", "f32", "5.00 ms", "7.00 ms", "6.00 ms", "2"]
    assert "Seconds a batch" not in page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "", "1"))


def test_a_run_that_answers_several_tasks_gives_each_its_own_rows(store: Store, page: Callable[..., str]) -> None:
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    layer(store, "r1", FPROP[1], 3e-3, 4e-3, begun=True)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r1", "1"))
    assert [text.count(f"| {problem} ") for problem in FPROP] == [1, 1]
    assert "| 5.00 ms" in next(line for line in text.splitlines() if line.startswith("| fprop"))


def test_layers_of_two_hosts_are_not_summed(store: Store, page: Callable[..., str]) -> None:
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    layer(store, "r2", FPROP[1], 3e-3, 4e-3, host="elsewhere")
    assert "Seconds a batch" not in page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r2", "1"))


def test_the_page_begins_with_notes_and_names_what_is_open(store: Store, page: Callable[..., str]) -> None:
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "", "1"))
    assert text.startswith("# NVIDIA H200\n\n> Read this first.\n")
    assert "1 of 2 problems are answered." in text
    assert "comparisons not measured yet: gemm/m4096n4096k4096/f32/NN (fp32)" in text
    assert "somewhere" not in text
