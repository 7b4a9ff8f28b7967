"""The report of a GPU: bars that compare like with like, its page, and the process that carries out tasks."""

from pathlib import Path

import pytest

import agenda
import gpu_bars
import gpu_report
import gpu_slot
import gpu_tasks
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.record.columns import Result
from support.rows import begin, put, result

OURS, RIVAL = ("gemm/cuda.a", "gemm/cuda.b"), ("gemm/cublas.x", "gemm/cublas.y")
PROBLEM = "gemm/m32n32k32/f32/NT"


def sides(bar, registry):
    ours, rivals = ([registry.kernels[name] for name in names] for names in gpu_bars.contenders(bar, registry))
    return ours, rivals


def test_no_bar_compares_unlike_numerics(registry):
    for bar in gpu_bars.bars():
        ours, rivals = sides(bar, registry)
        problem, other = registry.problem(bar.problem), registry.problem(bar.on or bar.problem)
        assert {k.numerics_for(problem) for k in ours} | {k.numerics_for(other) for k in rivals} == {bar.numerics}, bar
        assert bar.is_fair
        if bar.on:  # moved data are exact
            assert (problem.op, other.op, bar.numerics) == ("transpose", "copy", "exact")
    assert not any(bar.is_fair for bar in gpu_bars.lines())


def test_every_bar_has_kernels_on_both_sides_and_the_metered_kernels_exist(registry):
    bars = [*gpu_bars.bars(), *gpu_bars.lines()]
    assert len(set(bars)) == len(bars)
    assert {*gpu_tasks.METERED} <= set(registry.kernels)
    has_lt = any(name.startswith("gemm/cublaslt.") for name in registry.kernels)
    for bar in bars:
        ours, rivals = sides(bar, registry)
        problem, other = registry.problem(bar.problem), registry.problem(bar.on or bar.problem)
        assert ours, bar
        assert [k.id for k in ours if k.refuses(problem)] == [k.id for k in rivals if k.refuses(other)] == []
        assert {k.provider for k in ours} == {"cuda"}
        if bar.problem == "transpose/m8192n8192/f32/in":
            assert {"transpose/cuda.tiled_inplace", "transpose/cuda.vectorised_inplace"} <= {k.id for k in ours}
        # Only cuBLASLt takes operands of 8 bits.
        assert bool(rivals) is (problem.operands()[0].dtype not in ("e4m3", "s8") or has_lt), bar
        assert len(rivals) == len(bar.rivals or rivals), bar


def test_a_variant_is_named_by_the_tile_values_in_which_it_differs(registry):
    for kernel, wanted in gpu_bars.VARIANTS.items():
        problem = "gemm/m4096n4096k4096/f32/NT" if "gemm" in kernel else "transpose/m2048n26752/f32/in"
        problem = problem.replace("/in", "/out") if kernel.endswith("vectorised") else problem
        problem = "transpose/m8192n8192/f32/in" if kernel.endswith("_inplace") else problem
        default_name, *others = gpu_bars.variants([kernel], problem, registry, H100)
        default = vars(registry.named(default_name).tile_for(registry.problem(problem), H100))
        tiles = [vars(registry.named(name).tile_for(registry.problem(problem), H100)) for name in others]
        assert tiles == [{**default, **values} for values in wanted], kernel
        assert all(len(name) < 90 for name in others), others


def row(kernel, time_s=1.0, **more):
    """Return a row of a job whose baseline is RIVAL[0]; the speedup's interval is 1 % wide on either side."""
    if time_s and kernel != RIVAL[0]:
        ends = {"speedup_ci95_low": 0.99 / time_s, "speedup_ci95_high": 1.01 / time_s}
        more = {"speedup": 1 / time_s, **ends, **more}
    columns = {"processes": 3, "max_error": 1e-6, "job": "j", "problem": PROBLEM, "baseline": RIVAL[0]}
    return result(kernel=kernel, time_s_median=time_s, **{**columns, **more})


def failed(kernel):
    return row(kernel, None, status="oom", reason="too large")


#: Rows of ours and of rivals, with the verdict on a bar of 1.0 that bounds the error to twice the rival's.
JUDGED: dict[str, tuple[list[Result], str, str]] = {
    "faster": ([row(OURS[0], 0.5), row(RIVAL[0])], "holds", ""),
    "the interval ends at the bar": ([row(OURS[0], 0.99), row(RIVAL[0])], "holds", ""),
    "the interval straddles the bar": ([row(OURS[0], 0.995), row(RIVAL[0])], "open", ""),
    "slower": ([row(OURS[0], 1.02), row(RIVAL[0])], "missed", ""),
    "a tile of ours": ([row(f"{OURS[0]}@BM=64", 0.5), row(RIVAL[0])], "holds", ""),
    "the fastest of ours counts": ([row(OURS[0], 2.0), row(OURS[1], 0.5), row(RIVAL[0])], "holds", ""),
    "the fastest rival counts": ([row(OURS[0], 0.5), row(RIVAL[0]), row(RIVAL[1], 0.4)], "missed", ""),
    "a wrong row of a rival does not count": (
        [row(OURS[0], 0.5), row(RIVAL[0]), row(RIVAL[1], 0.4, status="wrong", reason="off")], "holds", "",
    ),
    "one process": ([row(OURS[0], 0.5, processes=1), row(RIVAL[0])], "open", "measured in 1 of 3 processes"),
    "no interval": (
        [row(OURS[0], 0.5, speedup_ci95_low=None, speedup_ci95_high=None), row(RIVAL[0])], "open", "measured in 3 of 3",
    ),
    "as much error as it may have": ([row(OURS[0], 0.5, max_error=2e-6), row(RIVAL[0])], "holds", ""),
    "too much error": ([row(OURS[0], 0.5, max_error=2.1e-6), row(RIVAL[0])], "missed", "its error is 2.1e-06"),
    "the rival failed": ([row(OURS[0]), failed(RIVAL[0])], "absent", f"{RIVAL[0]}: oom: too large"),
    "ours failed": ([failed(OURS[0]), row(RIVAL[0])], "absent", f"{OURS[0]}: oom: too large"),
    "the rival was not measured": ([row(OURS[0])], "absent", "no rival has a row"),
    "nothing was measured": ([], "absent", "no kernel of ours has a row"),
    "on another problem": (
        [row(OURS[0], problem="gemm/m1n1k1/f32/NN"), row(RIVAL[0])], "absent", "no kernel of ours has a row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_a_bar_is_judged_by_its_interval_its_processes_and_its_error(case):
    rows, state, text = JUDGED[case]
    verdict = gpu_bars.judge(gpu_bars.Bar(PROBLEM, "fp32", 1.0, errors=2.0), OURS, RIVAL, rows)
    assert (verdict.state, verdict.text[: len(text)]) == (state, text)
    assert (verdict.ratio is None) is (state == "absent")


def test_a_ratio_of_two_problems_is_scaled_by_their_work_and_a_bar_may_have_no_rival():
    bar = gpu_bars.Bar(PROBLEM, "exact", 1.0, on="copy/m32n32/f32", rivals=RIVAL)
    rows = [row(OURS[0], 1.0), row(RIVAL[0], 1.5, problem=bar.on)]
    ratios = {work: gpu_bars.judge(bar, OURS, RIVAL, rows, work).ratio.median for work in (1.0, 2.0)}
    assert ratios == {1.0: pytest.approx(1.5), 2.0: pytest.approx(3.0)}
    assert gpu_bars.judge(bar, OURS, (), rows[:1]).text == "no rival"


FPROP = "conv/n32c8h6w6k8r3s3pad1/f32/nchw/fprop", "conv/n32c8h8w8k8r3s3pad1/f32/nchw/fprop"
SLOT = gpu_report.SlotFacts(0.0, 0.0, [], [])
GPU = {"device": "cuda", "device_name": "NVIDIA H200", "host": "somewhere", "mode": "hot", "layout": "nchw"}


@pytest.fixture
def page(store):
    """Return a function that makes the page of tasks (name, problem, run, detail); an open task has no run."""

    def of(*tasks, digest="d"):
        made, agenda_ = [], agenda.Agenda(device="NVIDIA H200", notes=["Read this first."])
        for name, problem, run, detail in tasks:
            how = {"problems": (problem,) if problem else (), "group": "Convolution: net", "detail": detail}
            task = agenda.Task(name=name, kind="time", value=1.0, digest="d", seconds=30.0, **how)
            made.append(task)
            if run:
                agenda_.answers[name] = agenda.Answer(digest=digest, run=run)
        return gpu_report._page(agenda_, made, SLOT, store, Path("nowhere"))

    return of


def layer(store, run, problem, ours, theirs, begun=False, **more):
    if not begun:
        begin(store, run)
    for provider, name, median in (("cuda", "implicit", ours), ("cudnn", "gemm", theirs)):
        how = {**GPU, **more, "run_id": run, "provider": provider}
        put(store, problem, f"conv/{provider}.{name}", taken=[median] * 20, **how)


def test_a_network_is_summed_once_every_layer_is_answered_on_one_host(store, page):
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    layer(store, "r2", FPROP[1], 3e-3, 4e-3)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r2", "1"))
    line = next(line for line in text.splitlines() if line.startswith("| fprop"))
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["fprop", "f32", "5.00 ms", "7.00 ms", "6.00 ms", "2"]
    assert "Seconds per batch" not in page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "", "1"))
    layer(store, "r3", FPROP[1], 3e-3, 4e-3, host="elsewhere")
    assert "Seconds per batch" not in page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r3", "1"))


def test_a_run_that_answers_several_tasks_gives_each_its_own_rows(store, page):
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    layer(store, "r1", FPROP[1], 3e-3, 4e-3, begun=True)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r1", "1"))
    assert [text.count(f"| {problem} ") for problem in FPROP] == [1, 1]
    assert "| 5.00 ms" in next(line for line in text.splitlines() if line.startswith("| fprop"))


def test_the_page_begins_with_notes_and_names_open_comparisons(store, page):
    layer(store, "r1", FPROP[0], 2e-3, 1e-3)
    text = page(("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "", "1"))
    assert text.startswith("# NVIDIA H200\n\n> Read this first.\n")
    assert "1 of 2 problems are answered." in text
    assert "comparisons not measured yet: gemm/m4096n4096k4096/f32/NN (fp32, tf32)" in text
    assert "somewhere" not in text


def test_joules_per_batch_are_summed_if_every_layer_was_metered(store, page):
    layer(store, "r1", FPROP[0], 2e-3, 1e-3, energy_j=0.5)
    layer(store, "r2", FPROP[1], 3e-3, 4e-3, energy_j=0.25)
    tasks = ("a", FPROP[0], "r1", "2"), ("b", FPROP[1], "r2", "1")
    line = page(*tasks).partition("Joules per batch")[2].splitlines()[4]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["fprop", "f32", "1.25 J", "1.25 J", "1.25 J", "2"]
    layer(store, "r3", FPROP[1], 3e-3, 4e-3)
    assert "Joules" not in page(tasks[0], ("b", FPROP[1], "r3", "1"))


def test_bars_have_their_numerics_and_a_verdict_on_changed_kernels_is_marked(store, page):
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


def test_the_answer_to_the_founding_question_names_the_kernels_that_were_launched(store, page):
    begin(store, "r1")
    for layout, name in (("NT", "sgemm_tn<<<8,16,2 x 128,1,1>>>"), ("NN", "sgemm_nn<<<4,16,6 x 256,1,1>>>")):
        how = {**GPU, "layout": "", "run_id": "r1", "provider": "cublas", "launched": name}
        put(store, f"gemm/m1024n2048k26752/f32/{layout}", "gemm/cublas.sgemm", taken=[2e-3] * 20, **how)
    text = page(("founding", "", "r1", ""))
    assert "- NT: `sgemm_tn<<<8,16,2 x 128,1,1>>>`\n- NN: `sgemm_nn<<<4,16,6 x 256,1,1>>>`" in text


LOST = "not finished: ended after 2 s without an answer"


@pytest.fixture
def slot(tmp_path):
    return gpu_slot.Slot(gpu_slot.Settings(str(tmp_path)))


def two_tasks(left_s, kind="emulator"):
    tasks = [
        gpu_slot.Task(name=f"{kind} {kernel}", kind=kind, value=1.0, digest="d", seconds=0.6, kernels=(kernel,))
        for kernel in ("a", "b")
    ]
    return gpu_slot.Question(gpu_slot.Settings(""), now() + left_s, tuple(tasks), 120.0)


@pytest.mark.parametrize(("left_s", "failed"), [(30.0, {}), (1000.0, {"emulator a": LOST})])
def test_a_comparison_that_took_too_long_is_no_answer(slot, monkeypatch, tmp_path, left_s, failed):
    monkeypatch.setattr(gpu_slot, "compare", lambda kernels, until_s: [f"a: {LOST}", "b: agree on x"])
    reply = slot.compared(two_tasks(left_s))
    assert (reply.done, reply.failed, reply.cut) == ({"emulator b": "agree on x"}, failed, not failed)
    assert (tmp_path / "emulator.md").read_text() == "# Emulator and device\n\n- b: agree on x\n"


@pytest.mark.parametrize(
    ("left_s", "kind", "begun"), [(10.0, "emulator", 0), (15.9, "emulator", 1), (10.0, "verify", 2)]
)
def test_comparisons_are_begun_only_if_time_is_left_to_compile_the_emulator(slot, monkeypatch, left_s, kind, begun):
    monkeypatch.setattr(slot, "carry_out", lambda question: gpu_slot.Reply({task.name: "" for task in question.tasks}))
    reply = gpu_slot._reply(slot, two_tasks(left_s, kind))
    assert (len(reply.done), reply.passed) == (begun, not begun)
