"""A job, from ids to measurements, with honest kernels, wrong ones, cheats, and the samples that accuse a cheat."""

import re
from dataclasses import replace
from itertools import groupby

import msgspec
import numpy as np
import pytest

from kernelmark.bench.measure import contender
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.draw import SCATTERED
from kernelmark.bench.measure.monitor import CpuMonitor
from kernelmark.bench.measure.operands import ScratchBuffers
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import kernel
from kernelmark.bench.plan.text import MOST
from kernelmark.bench.record.store import Store
from kernelmark.bench.run import job as jobs
from kernelmark.bench.run.job import run_job
from kernelmark.bench.selftest.adversaries import EXPECTED
from kernelmark.bench.selftest.known import plugin
from support.plugins import ADVERSARIES

QUICK = Budget(max_time_s=0.02)
pytestmark = pytest.mark.usefixtures("registry")  # it unloads plug-ins from this process afterwards


def _run(problem, *kernels, mode=Mode.HOT, plugins=(ADVERSARIES,), budget=QUICK, threads=1, absent=()):
    job = Job((problem,), kernels, mode, plugins, 0, budget, threads, kernels[0], absent=absent)
    return run_job(msgspec.json.decode(msgspec.json.encode(job), type=Job))  # as if sent to a worker


OF_TIMED = "the output of a timed call, after a few elements of its operands had changed: "


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("wrong_element", "wrong", "b[30, 32] is "),
        ("unwritten_element", "wrong", "b[1, 2] was not written"),
        ("nan_element", "wrong", "b[0, 1] is nan"),
        ("in_set_up", "wrong", "1023 of 1023 elements wrong"),
        ("zeroes_input", "wrong", "changed its input a"),
        ("out_of_bounds_when_timed", "wrong", OF_TIMED + "wrote beyond the bounds of b"),
        ("out_of_bounds", "wrong", "wrote beyond the bounds of b"),
        ("raises_in_set_up", "failed", "RuntimeError: no such thing"),
        ("lacks_lambda", "failed", "copy/test.lacks_lambda: returned ndarray, expected the function to be timed; "),
        ("raises_in_run", "failed", "ValueError: cannot"),
        ("raises_when_timed", "failed", "ArithmeticError: worn out"),
        ("no_memory", "oom", "4 PB wanted"),
        ("greedy", "oom", "a buffer needs 4e+06 GB of host memory; "),
        ("miscounted", "failed", "ZeroDivisionError: no tiles (adversaries.py, line "),
        ("refuses", "unsupported", "takes no matrices on Saturdays"),
    ],
)
def test_a_bad_kernel_gets_its_status_and_no_samples_and_harms_nobody(name, status, reason):
    honest, bad, numpy = _run("copy/m31n33/f32", "copy/test.honest", f"copy/test.{name}", "copy/numpy.copyto")
    assert (bad.status, bad.samples, bad.over_baseline) == (status, [], None)
    assert reason in bad.reason
    assert "\n" not in bad.reason
    for good in (honest, numpy):
        assert good.status == "ok"
        assert len(good.samples) >= 6
        assert good.interval is not None


@pytest.mark.parametrize(
    ("problem", "kernel", "mode", "outcome"),
    [
        ("gemm/m64n64k64/f32/NN/ldc+5", "gemm/numpy.matmul", "cold", "ok: "),
        ("gemm/m8n8k8/f64/NN", "gemm/scipy.sgemm", "hot", "unsupported: gemm/scipy.sgemm has no f64 path; it has f32"),
        ("copy/m64n64/f32", "copy/numpy.copyto", "graph", "unsupported: .*runs on the CPU.*"),
        ("copy/m1000000n1000000/f64", "copy/numpy.copyto", "hot", "oom: .*GB of host memory.*"),
    ],
    ids=["unwritten padding", "outside its domain", "graph mode on the CPU", "operands that do not fit"],
)
def test_a_right_kernel_is_ok_or_told_why_it_cannot_run(problem, kernel, mode, outcome):
    (row,) = _run(problem, kernel, mode=Mode(mode))
    assert re.fullmatch(outcome, f"{row.status}: {row.reason}")
    assert bool(row.samples) is (row.status == "ok")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("declares_one", "failed", "ValueError: declares that it executes 1 flop, expected at least 1008 for fp32"),
        ("declares_tf32", "unsupported", "gemm/selftest.declares_tf32: declares tf32, which no CPU has"),
    ],
)
def test_a_declaration_that_cannot_hold_has_no_row_that_could_be_timed(name, status, reason):
    (row,) = _run("gemm/m9n8k7/f32/NN", f"gemm/selftest.{name}", mode=Mode.VERIFY, plugins=(plugin("cheats"),))
    assert (row.status, row.reason) == (status, reason)


def test_kernels_of_a_job_share_what_is_drawn_which_differs_each_time_and_can_be_drawn_again():
    job = Job(("gemm/m9n8k7/f32/NT",), ("gemm/numpy.matmul", "gemm/numpy.tnn"), Mode.VERIFY, (), 0, QUICK, 1)
    first, other, again = (run_job(msgspec.structs.replace(job, entropy=e)) for e in ("", "", "0" * 31 + "7"))
    assert [row.entropy for row in first] == [first[0].entropy] * 2
    assert again[0].entropy == "0" * 31 + "7"
    assert len({first[0].entropy, other[0].entropy, again[0].entropy}) == 3
    assert len({first[0].max_error, other[0].max_error, again[0].max_error}) == 3
    repeated = run_job(msgspec.structs.replace(job, entropy=first[0].entropy))
    assert [(row.entropy, row.max_error) for row in repeated] == [(row.entropy, row.max_error) for row in first]


@pytest.mark.parametrize(("of_zeros", "status", "reason"), [(0.0, "ok", ""), (1.0, "wrong", OF_TIMED)])
def test_timed_operands_alone_are_zeros_and_a_kernel_may_skip_them_if_it_is_right(of_zeros, status, reason):
    shares = []

    @kernel("gemm", name="skips", provider="mine", device="cpu", dtypes=("f32",), modules=("numpy",))
    def set_up(problem, x):
        def launch():
            rows = x.a.any(axis=1)
            shares.append(float(rows.mean()))
            x.c[...] = of_zeros
            x.c[rows] = x.a[rows] @ x.b

        return launch

    (row,) = _run("gemm/m300n31k33/f32/NN/zeros", "gemm/mine.skips")
    assert (row.status, row.reason[: len(OF_TIMED)]) == (status, reason)
    # Judged on usual operands before timing, and once more after it.
    dense = [dense for dense, _ in groupby(shares, lambda share: share == 1.0)]
    assert dense[:3] == [True, False, True][: 3 if status == "ok" else 2]
    assert max(share for share in shares if share < 1) <= SCATTERED / 300


def test_a_kernel_that_returns_zeros_is_wrong_where_timed_operands_are_zeros():
    kernel("gemm", name="zeros", provider="mine", device="cpu", dtypes=("f32",))(lambda problem, x: lambda: x.c.fill(0))
    (row,) = _run("gemm/m33n31k17/f32/NN/zeros", "gemm/mine.zeros")
    assert (row.status, row.samples) == ("wrong", [])
    assert not row.reason.startswith(OF_TIMED)


def test_a_kernel_that_does_less_when_it_is_timed_is_wrong():
    (row,) = _run("copy/m401n409/f32", "copy/test.looks_at_one")
    assert row.status == "wrong"
    assert row.reason.startswith(OF_TIMED)


def test_a_kernel_of_a_device_that_the_run_does_not_use_is_unsupported_and_harms_nobody():
    good, absent = _run("gemm/m8n8k8/f32/NT", "gemm/numpy.matmul", "gemm/cublas.sgemm", absent=("cuda",))
    assert (good.status, absent.status, absent.device_name) == ("ok", "unsupported", "")
    assert "NVIDIA" in absent.reason or "--device leaves out" in absent.reason


@pytest.mark.parametrize(("mode", "noted"), [(Mode.COLD, True), (Mode.HOT, False)])
def test_a_cold_row_says_which_cache_was_assumed_if_the_system_reports_none(mode, noted, monkeypatch):
    monkeypatch.setattr(contender, "known_llc_bytes", lambda: None)
    (row,) = _run("copy/m64n64/f32", "copy/numpy.copyto", mode=mode)
    note = "the system does not report its last-level cache: 64 MiB are assumed; see KERNELMARK_LLC_BYTES"
    assert (note in row.disturbed) == noted


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT])
def test_contenders_get_intervals_and_a_ratio_to_the_baseline(mode):
    base, other = _run("copy/m64n64/f32", "copy/numpy.copyto", "copy/numpy.threaded", mode=mode, threads=2)
    assert base.over_baseline is None
    assert other.over_baseline.low <= other.over_baseline.median <= other.over_baseline.high
    assert 0 < base.interval.low <= base.interval.median <= base.interval.high
    assert (base.threads, other.threads) == (1, 2)


@pytest.mark.parametrize(
    ("problem", "kernels"),
    [
        ("gemm/m16n8k24/f32/NT/beta1", ("gemm/numpy.matmul", "gemm/scipy.sgemm")),
        ("gemm/m16n8k24/f64/NT/beta1", ("gemm/numpy.matmul", "gemm/scipy.dgemm")),
        ("gemm/m16n8k400/f16/NN/beta1", ("gemm/test.adds_in_f32",)),
    ],
)
@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT])
def test_accumulation_is_right_after_any_number_of_samples(problem, kernels, mode):
    assert {(row.status, row.reason) for row in _run(problem, *kernels, mode=mode)} == {("ok", "")}


def test_a_reason_is_one_plain_line_of_bounded_length():
    at_length = {"supports": lambda problem: "\x1b[31m" + "y" * 10_000_000}
    kernel("copy", name="loud", provider="mine", device="cpu", numerics="exact", **at_length)(lambda problem, x: None)
    (row,) = _run("copy/m8n8/f32", "copy/mine.loud")
    assert row.reason.startswith(r"\x1b[31myyy")
    assert len(row.reason) <= MOST


def test_scratch_is_reported_in_bytes():
    tnn, inplace = _run("gemm/m8n16k32/f32/NT", "gemm/numpy.tnn", "gemm/openblas.inplace", mode=Mode.VERIFY)
    assert tnn.scratch_bytes == 16 * 32 * 4
    assert inplace.scratch_bytes == 32 * 32 * 4  # OpenBLAS allocates this to transpose B back


def test_scratch_is_touched_when_it_is_given_so_that_what_is_left_is_known():
    assert (ScratchBuffers(get_device("cpu")).take((100,), "f32").view(np.uint32) == 0xFFFFFFFF).all()


def test_a_row_tells_what_is_executed_what_was_chosen_and_how_long_set_up_took():
    counted, plain = _run("copy/m8n8/f32", "copy/test.counted", "copy/numpy.copyto", mode=Mode.VERIFY)
    assert (counted.executed_flop, counted.tunables) == (7, '{"tile":3}')
    assert counted.setup_s > 0
    assert (plain.executed_flop, plain.tunables) == (None, "")
    (product,) = _run("gemm/m8n8k8/f32/NN", "gemm/numpy.matmul", mode=Mode.VERIFY)
    assert product.executed_flop == 2 * 8**3
    assert 0 < product.max_error <= product.error_bound
    worded = replace(discover().kernels["copy/numpy.copyto"], executed=lambda problem: "7")
    with pytest.raises(ValueError, match="declares that it executes '7', expected a number of operations"):
        worded.executed_flop(discover().problem("copy/m8n8/f32"))


def test_the_row_names_the_blas_that_it_stands_on():
    numpy, scipy = _run("gemm/m8n8k8/f32/NN", "gemm/numpy.matmul", "gemm/scipy.sgemm", mode=Mode.VERIFY)
    assert "openblas" in numpy.versions
    assert "openblas" in scipy.versions
    assert numpy.versions != scipy.versions


@pytest.mark.parametrize(
    ("problem", "name", "batch"), [("m9n9/f32/out", "numpy.out", 200), ("m9n9/f32/in", "openblas.imatcopy", 1)]
)
def test_an_empty_call_is_measured_alone_if_samples_are_timed_call_by_call(problem, name, batch, monkeypatch):
    monkeypatch.setattr(contender, "call_overhead", lambda clock, calls: calls * 1e-9)
    (row,) = _run(f"transpose/{problem}", f"transpose/{name}")
    assert row.call_overhead_s == batch * 1e-9


def test_operands_are_drawn_although_a_plugin_wants_floating_point_faults_to_raise(tmp_path, workers):
    (tmp_path / "strict.py").write_text("import numpy\nnumpy.seterr(all='raise')\n")
    plugins = (str(tmp_path / "strict.py"),)
    job = Job(("copy/m99n99/f16",), ("copy/numpy.copyto",), Mode.HOT, plugins, 0, Budget(0.05), 1)
    (row,) = workers.run(job, WorkerKey("cpu", 1))
    assert (row.status, row.reason) == ("ok", "")


SPY = """
from kernelmark import kernel

@kernel("gemm", provider="spy", device="cpu", modules=("scipy",), threaded=True)
def threads(p, x):
    \"\"\"Reports how many threads each BLAS has.\"\"\"
    import scipy.linalg.blas, threadpoolctl
    pools = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    raise RuntimeError(" ".join(f"{lib['num_threads']}" for lib in pools))
"""


def test_a_library_that_only_a_kernel_loads_obeys_the_thread_count(tmp_path, workers):
    (tmp_path / "spy.py").write_text(SPY)
    # A fresh process runs the job, since an earlier test may have loaded SciPy's BLAS in this process.
    plugins = (str(tmp_path / "spy.py"),)
    job = Job(("gemm/m8n8k8/f32/NT",), ("gemm/spy.threads",), Mode.HOT, plugins, 0, Budget(), 1)
    (row,) = workers.run(job, WorkerKey("cpu", 1))
    assert row.reason == "RuntimeError: 1 1 (spy.py, line 9)"


@pytest.mark.parametrize("disturbed", [0, 1], ids=["quiet", "disturbed at first"])
def test_a_job_that_lasts_shows_once_what_each_contender_has(monkeypatch, disturbed):
    kernels, shown = ("copy/numpy.copyto", "copy/numba.streaming"), []
    job = Job(("copy/m9n11/f32",), kernels, Mode.HOT, (), 0, Budget(max_time_s=0.25, rel_ci=0.0), 1, kernels[0])
    run_job(job, show=shown.append)
    assert shown == []
    monkeypatch.setattr(jobs, "SHOW_S", 0.0)
    causes = iter([{}, *[{"others": 1.0}] * disturbed])  # the first reading precedes the windows
    monkeypatch.setattr(CpuMonitor, "look", lambda _: Window(0.1, causes=next(causes, {})))
    rows = run_job(job, show=shown.append)
    ((first, second),) = shown
    assert [first.entrant, second.entrant] == [row.entrant for row in rows]
    assert 0 < first.samples < len(rows[0].samples)
    assert first.median_s > 0


GEMM = "gemm/m96n96k96/f32/NT"


def table(text):
    """Return the values in a text, by name, from the lines that have a name and a value."""
    pairs = (line.split("  ", 1) for line in text.splitlines() if "  " in line)
    return {name: value.strip() for name, value in pairs}


def test_a_row_above_the_ceiling_has_no_time_and_show_prints_the_samples_and_the_ceiling(tmp_path, called):
    quick = ("--mode", "hot", "--max-time", "0.05", "--threads", "1", "--plugin", ADVERSARIES, "--db", "r.db")
    assert called("run", GEMM, "--kernels", "gemm/test.overstated", *quick).status == 1
    store = Store(tmp_path / "r.db", create=False)
    ((row, _),) = store.results(store.run_ids()[0])
    evidence = store.evidence(row.run_id, row.case)
    assert (row.status, row.samples, row.time_s_median, row.gflop_per_s) == ("mistrusted", 0, None, None)
    assert store.samples(row.run_id, row.case) == []
    store.close()

    printed = called("show", "--row", "overstated", "--db", "r.db").printed
    columns, accusation = printed.split("The evidence against the row")
    said, accused = table(columns), table(accusation)
    assert row.case in columns
    assert (said["status"], said["problem"], said["m"]) == ("mistrusted", GEMM, "96")
    assert not any(name.startswith("time_s") for name in said)
    assert int(accused["samples"]) == len(evidence.samples) >= 6
    assert float(accused["time_s_min"]) == min(evidence.samples)
    assert float(accused["time_s_ci95_low"]) <= float(accused["time_s_median"]) <= float(accused["time_s_ci95_high"])
    assert accused["declared"] == "1,000,000,000,000,000 flop"
    assert accused["over time_s_ci95_high"].endswith(" GFLOP/s")
    assert evidence.excess.rate == 1e15 / evidence.interval.high
    assert " by fma/numba.fma on fma/" in accused["surpassed ceiling"]


def test_a_kernel_that_is_seen_to_spare_itself_work_keeps_the_samples_that_were_taken():
    cheats = EXPECTED["only_when_changed"]
    kernels = (cheats.honest, "gemm/selftest.only_when_changed")
    honest, cheat = _run(cheats.problem, *kernels, plugins=(plugin("cheats"),), budget=Budget(0.3))
    assert (cheat.status, cheat.samples, cheat.parts) == ("mistrusted", [], [])
    assert (cheat.interval, cheat.over_baseline, cheat.stopped_by, cheat.repeated) == (None, None, "", None)
    assert len(cheat.evidence.samples) >= 6
    assert cheat.evidence.excess is None
    assert min(cheat.evidence.samples) < min(honest.samples)
    assert honest.evidence is None
