"""Groups of variants: measured in turn, checked one by one, and measured separately if they do not fit in memory."""

from itertools import count, groupby, pairwise

import msgspec
import pytest

from kernelmark.bench.measure import memory
from kernelmark.bench.measure.measurement import Measurement, ProcessPart
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.report.contest import faster
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.variants import plainer_variants, set_against_variants
from support.runs import copy, declare, nothing

F32, F64 = "copy/m3n5/f32", "copy/m3n5/f64"
BASE, OTHER = "copy/numpy.copyto", "copy/numpy.threaded"
SUITE = "[[sweep]]\nop = 'copy'\ndtype = ['f32', 'f64']\npoints = [[3, 5]]\ntogether = ['dtype']\n"
APART = "measured separately from its variants"


def group(*kernels, **values):
    job = Job((F32, F64), kernels, Mode.HOT, (), 0, Budget(0.02), 1, kernels[0])
    rows = run_job(msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(job, **values)), type=Job))
    return {name: list(of_problem) for name, of_problem in groupby(rows, lambda row: row.problem)}


@pytest.fixture
def session(measured, tmp_path):
    """Return a function that measures the suite of two variants in this process; it returns the jobs and the rows."""
    suite = tmp_path / "s.toml"
    suite.write_text(SUITE)

    def of(*kernels, **plan):
        job_list = []

        def execute(job, key):
            job_list.append(job)
            return run_job(job)

        rows, *_ = measured(str(suite), kernels=kernels, execute=execute, **plan)
        return job_list, rows

    return of


def test_variants_are_sampled_in_turn_and_share_a_job(registry):
    calls = []

    def noted(problem, x):
        def launch():
            calls.append(problem.id)
            x.b[...] = x.a

        return launch

    declare("noted", noted)
    rows = group("copy/mine.noted")
    (f32,), (f64,) = rows[F32], rows[F64]
    assert f32.job == f64.job != ""
    assert sum(before != after for before, after in pairwise(calls)) >= len(f32.samples) >= 6


def test_each_row_is_set_against_the_baseline_on_its_own_problem(registry):
    declare("other", copy)
    rows = group(BASE, "copy/mine.other", baselines={F64: "copy/mine.other"})
    assert [row.over_baseline is None for row in rows[F32]] == [True, False]
    assert [row.over_baseline is None for row in rows[F64]] == [False, True]


def greedy(problem, x):
    raise MemoryError("too large")


@pytest.mark.parametrize(
    ("on_f32", "on_f64", "expected"),
    [(copy, nothing, ["ok", "ok", "ok", "wrong"]), (greedy, greedy, ["ok", "oom", "ok", "oom"])],
)
def test_a_kernel_fails_on_a_problem_alone_and_the_others_stand(registry, on_f32, on_f64, expected):
    declare("half", lambda problem, x: (on_f32 if problem.dtype == "f32" else on_f64)(problem, x))
    rows = group(BASE, "copy/mine.half")
    assert [row.status for row in rows[F32] + rows[F64]] == expected


def test_variants_that_do_not_fit_together_are_measured_apart_and_say_so(registry, monkeypatch):
    """The larger variant fits into memory alone, but not together with the smaller variant."""
    # These are the drawn values, one operand set, and sixteen outputs to judge.
    bytes_of = {"f32": (2 + 2 + 16) * 4 * 300 * 500, "f64": (2 + 2 + 16) * 8 * 300 * 500}
    available = bytes_of["f64"] + bytes_of["f32"] / 2
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda: available / memory.MEMORY_SHARE)
    names = tuple(f"copy/m300n500/{dtype}" for dtype in bytes_of)
    (f32,), (f64,) = group(BASE, problems=names).values()
    assert (f32.status, f64.status) == ("ok", "ok")
    assert f32.job != f64.job
    note = f"{APART}, since together they exceed the memory: operands need 0.036 GB of host memory; "
    assert all(note in row.disturbed for row in (f32, f64))


def test_what_has_no_memory_left_beside_its_variants_gets_it_alone(registry):
    made = []

    def crowded(problem, x):
        made.append(problem.id)
        if len(set(made)) == 2 and len(made) < 4:
            raise MemoryError("no room")
        return copy(problem, x)

    declare("crowded", crowded)
    rows = group("copy/mine.crowded", BASE)
    assert {row.status for of_problem in rows.values() for row in of_problem} == {"ok"}
    assert f"{APART}, since together they exceed the memory: copy/mine.crowded: no room" in rows[F64][0].disturbed
    assert len({of_problem[0].job for of_problem in rows.values()}) == 2


def test_a_crash_on_one_variant_costs_that_row_and_the_others_are_measured_in_turn_again(measure):
    rows = measure("honest", "segv_on_f64", problems=(F32, F64))
    cases = [(row.problem, row.status, row.attempt) for row in rows]
    assert cases == [(F32, "ok", 2), (F32, "ok", 2), (F64, "ok", 2), (F64, "crashed", 2)]
    assert (rows[3].reason, len({row.job for row in rows[:3]})) == ("verification: SIGSEGV", 1)
    assert rows[1].over_baseline is not None


@pytest.mark.long
def test_variants_that_the_system_kills_for_memory_are_measured_apart(measure, monkeypatch):
    monkeypatch.setattr(memory, "kills_by_system", count().__next__)
    rows = measure("killed_beside_variants", problems=(F32, F64))
    assert [(row.problem, row.status, row.attempt) for row in rows] == [(F32, "ok", 2), (F64, "ok", 3)]
    assert rows[0].job != rows[1].job
    why = "with them the worker was lost (verification: killed by the system for lack of memory)"
    assert f"measured separately from its variants, since {why}" in rows[0].disturbed


def test_rows_of_variants_are_stored_under_their_problems_and_have_a_ratio_measured_in_turn(session, store):
    (job,), rows = session(BASE, OTHER)
    assert job.problems == (F32, F64)
    assert [row.problem for row in rows] == [F32, F32, F64, F64]
    assert {row.baseline for row in rows} == {BASE}
    assert [row.dtype for row in rows] == ["f32", "f32", "f64", "f64"]
    ratio = faster(store, rows[0], rows[2])
    assert ratio.in_turn
    columns = (rows[0].ratio, rows[0].ratio_ci95_low, rows[0].ratio_ci95_high)
    assert [row.against for row in rows] == [F64, F64, "", ""]
    assert columns == pytest.approx(ratio[:3])


@pytest.mark.parametrize(
    ("variants", "against"),
    [
        (["gemm/m3n5k7/f32/NT", "gemm/m3n5k7/f32/NN"], {0: 1}),
        (["gemm/m3n5k7/f32/TT", "gemm/m3n5k7/f32/TN", "gemm/m3n5k7/f32/NT"], {0: 2, 1: 2}),
        (["transpose/m3n5/f32/in", "transpose/m3n5/f32/out"], {0: 1}),
        (["gemm/m3n5k7/f32/NT", "gemm/m3n5k7/f32/NN", "gemm/m3n5k7/f16/NT", "gemm/m3n5k7/f16/NN"],
         {0: 1, 2: 3, 3: 1}),
        (["gemm/m3n5k7/f32/NT", "gemm/m4n5k7/f32/NN"], {}),
        (["gemm/m3n5k7/f32/NT/zeros", "gemm/m3n5k7/f32/NN/zeros", "gemm/m3n5k7/f32/NT", "gemm/m3n5k7/f32/NN"],
         {0: 1, 1: 3, 2: 3}),
    ],
)  # fmt: skip
def test_a_problem_is_held_against_its_plainest_variant(registry, variants, against):
    plainer = plainer_variants([registry.problem(name) for name in variants])
    assert plainer == {variants[variant]: variants[other] for variant, other in against.items()}


def timed(kernel, problem, numerics, *times):
    parts = [ProcessPart(12, time) for time in times]
    interval = Interval(times[0], times[0], times[0])
    samples = [time for time in times for _ in range(12)]
    fields = {"numerics": numerics, "samples": samples, "parts": parts, "interval": interval}
    return Measurement(kernel=kernel, problem=problem, job="one", **fields)


def test_a_kernel_without_a_time_on_the_variant_is_held_against_the_fastest_of_its_provider(registry):
    out, within = "transpose/m3n5/f32/out", "transpose/m3n5/f32/in"
    rows = [
        timed("transpose/numpy.out", out, "fp32", 1.0, 1.0, 1.0),
        timed("transpose/openblas.omatcopy", out, "fp32", 2.0, 2.0, 2.0),
        timed("transpose/openblas.imatcopy", within, "fp32", 4.0, 5.0, 5.0),
    ]
    set_against_variants(rows, registry)
    ratio = rows[2].over_variant
    assert [row.over_variant for row in rows[:2]] == [None, None]
    assert ratio.against == f"{out} by transpose/openblas.omatcopy"
    assert (ratio.ratio.low < 0.4, ratio.ratio.high > 0.5, ratio.ratio.median) == (True, True, 0.4)


def test_an_fft_is_held_against_the_fastest_kernel_that_is_none(registry):
    problem = "conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop"
    direct, fft = "conv/cpu.im2col", "conv/pyfftw.full"
    rows = [timed(direct, problem, "fp32", 3.0), timed(fft, problem, "fft", 2.0)]
    set_against_variants(rows, registry)
    assert rows[0].over_variant is None
    assert (rows[1].over_variant.against, rows[1].over_variant.ratio.median) == (f"{problem} by {direct}", 1.5)


def test_a_run_that_was_left_within_a_group_measures_the_cases_left_beside_their_baseline(session, store, monkeypatch):
    add, room = store.add, iter(range(3))

    def full(*row):
        if next(room, None) is None:
            raise UsageError("the disk is full")
        add(*row)

    monkeypatch.setattr(store, "add", full)
    with pytest.raises(UsageError, match="full"):
        session(BASE, OTHER)
    monkeypatch.undo()
    run_id = store.find_run(None)["run_id"]
    before = [row for row, _ in store.results(run_id)]
    (job,), after = session(BASE, OTHER, resume=run_id)
    assert (job.entrants, after[:3]) == (((F64, BASE), (F64, OTHER)), before)
    assert after[3].speedup is not None
    assert after[3].job not in {row.job for row in before}
    assert not faster(store, after[1], after[3]).in_turn
