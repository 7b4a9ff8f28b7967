"""The page of a GPU's report: networks are summed, ratios stay within a run, and what is open is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.bench.record.store import Store
from support.rows import begin, put
from support.tools import script

FPROP = "conv/n32c8h6w6k8r3s3pad1/f32/nchw/fprop", "conv/n32c8h8w8k8r3s3pad1/f32/nchw/fprop"
GPU = {"device": "cuda", "device_name": "NVIDIA H200", "host": "somewhere", "mode": "hot", "layout": "nchw"}


@pytest.fixture
def page(store: Store) -> Callable[..., str]:
    """Make the page of tasks (name, problem, run, detail) answered at a digest; an open one has no run."""
    agenda, report = script("agenda"), script("gpu_report")

    def of(*tasks: tuple[str, str, str, str], digest: str = "d") -> str:
        made, found = [], agenda.Agenda(device="NVIDIA H200", notes=["Read this first."])
        for name, problem, run, detail in tasks:
            how: dict[str, Any] = {"problems": (problem,), "group": "Convolution: net", "detail": detail}
            one = agenda.Task(name=name, kind="time", value=1.0, digest="d", seconds=30.0, **how)
            made.append(one)
            if run:
                agenda.answer(found, one, agenda.Answer(digest=digest, run=run))
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
    assert "comparisons not measured yet: gemm/m4096n4096k4096/f32/NN (fp32, tf32)" in text
    assert "somewhere" not in text


def test_joules_a_batch_are_summed_where_every_layer_was_metered(store: Store, page: Callable[..., str]) -> None:
    layer(store, "r1", FPROP[0], 2e-3, 1e-3, energy_j=0.5)
    layer(store, "r2", FPROP[1], 3e-3, 4e-3, energy_j=0.25)
    tasks = ("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r2", "1")
    line = page(*tasks).partition("Joules a batch")[2].splitlines()[4]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["fprop", "f32", "1.25 J", "1.25 J", "1.25 J", "2"]
    layer(store, "r3", FPROP[1], 3e-3, 4e-3)
    assert "Joules" not in page(tasks[0], ("b", FPROP[1], "r3", "1"))


def test_bars_have_their_numerics_and_a_verdict_of_other_kernels_says_so(
    store: Store, page: Callable[..., str]
) -> None:
    problem, name = "gemm/m4096n4096k4096/f32/NN", "bar gemm/m4096n4096k4096/f32/NN"
    begin(store, "r1")
    for kernel, numerics in (("streamk", "fp32"), ("mma_tf32", "tf32")):
        how = {**GPU, "run_id": "r1", "numerics": numerics, "processes": 3, "layout": "NN", "job": "one"}
        put(store, problem, f"gemm/cuda.{kernel}", taken=[1e-3] * 20, provider="cuda", **how)
        rival = "gemmex_tf32" if numerics == "tf32" else "sgemm"
        put(store, problem, f"gemm/cublas.{rival}", taken=[2e-3] * 20, provider="cublas", **how)
    bars = page((name, problem, "r1", "")).partition("## Bars")[2].partition("## ")[0]
    lines = [line.split("|") for line in bars.splitlines() if f"| {problem} " in line]
    assert [[cell.strip() for cell in line[3:5]] for line in lines] == [["fp32", "1x"], ["tf32", "0.95x"]]
    assert "have changed" not in page((name, problem, "r1", ""))
    assert "its kernels have changed since" in page((name, problem, "r1", ""), digest="other")


def test_the_answer_to_the_founding_question_names_the_kernels_that_were_launched(store: Store) -> None:
    agenda, report = script("agenda"), script("gpu_report")
    begin(store, "r1")
    for layout, name in (("NT", "sgemm_tn<<<8,16,2 x 128,1,1>>>"), ("NN", "sgemm_nn<<<4,16,6 x 256,1,1>>>")):
        how = {**GPU, "layout": "", "run_id": "r1", "provider": "cublas", "launched": name}
        put(store, f"gemm/m1024n2048k26752/f32/{layout}", "gemm/cublas.sgemm", taken=[2e-3] * 20, **how)
    one = agenda.Task(name="founding", kind="time", value=1.0, digest="d", seconds=30.0)
    found = agenda.Agenda(device="NVIDIA H200")
    agenda.answer(found, one, agenda.Answer(digest="d", run="r1"))
    page = report._page(found, [one], None, store, Path("nowhere"))
    assert "- NT: `sgemm_tn<<<8,16,2 x 128,1,1>>>`\n- NN: `sgemm_nn<<<4,16,6 x 256,1,1>>>`" in page
