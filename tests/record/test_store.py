"""The store: its contents, damaged and foreign files, stores of older schemas, and how rows are made for it."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.measurement import Ceiling, Evidence, Excess, Measurement, Roofline
from kernelmark.bench.measure.ratio import BaselineRatio
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Budget, Job, PlannedJob, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.columns import COLUMNS, Result, make_result, row
from kernelmark.bench.record.records import doubles
from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.record.versions import KernelVersion, LaunchResources, VersionRatio
from support.rows import begin, result
from support.texts import csv_rows

LIMIT = Ceiling("cpu", 2, "fp32", "fma/n1k1/f32", "fma/a.b", "d", 2.0, 1.0, 3.0, 4.0, "t1")


def test_a_row_comes_back_as_it_went_in(begun):
    row = result(samples=2, time_s_median=1.25e-6, scratch_bytes=0, reason="a, b 'c'", count=3, started_at="now")
    dims = {"m": 8, "beta": 0.5, "place": "in"}
    begun.add(row, dims, [1e-6, 1.5e-6], None)
    assert list(begun.results("r1")) == [(row, dims)]


def test_samples_come_back_bit_for_bit_in_their_order_and_a_failed_case_has_none(begun):
    samples, wrong = [3e-9, 1 / 3, 1e-18, 1e9, 0.1], result(kernel="gemm/a.bad", status="wrong")
    begun.add(result(), {}, samples, None)
    begun.add(wrong, {}, [], None)
    assert [begun.samples("r1", case) for case in (result().case, wrong.case, "no such case")] == [samples, [], []]


def test_a_ratio_is_stored_with_its_result(begun):
    row = result(baseline="gemm/numpy.matmul", speedup=2.0, speedup_ci95_low=1.5)
    begun.add(row, {}, [1.0], BaselineRatio(2.0, 1.5, float("inf"), "paired", 1.9))
    with sqlite3.connect(begun.path) as db:
        ratios = db.execute('SELECT "case", ratio.* FROM ratio JOIN result USING (result_id)').fetchall()
    assert [(f[0], *f[2:]) for f in ratios] == [(row.case, "gemm/numpy.matmul", 2.0, 1.5, None, "paired", 1.9)]


def test_the_evidence_against_a_row_is_stored_with_it(begun):
    evidence = Evidence([3e-9, 1 / 3], Interval(0.1, 3e-9, 1 / 3), Excess(LIMIT, 10**15, 1e16))
    begun.add(result(status="mistrusted"), {}, [], None, evidence=evidence)
    begun.add(result(kernel="gemm/a.seen", status="mistrusted"), {}, [], None, evidence=Evidence([1.0], None))
    begun.add(result(kernel="gemm/a.good"), {}, [1.0], None)
    assert begun.evidence("r1", result().case) == evidence
    assert begun.evidence("r1", result(kernel="gemm/a.seen").case) == Evidence([1.0], None)
    assert begun.evidence("r1", result(kernel="gemm/a.good").case) is None
    assert begun.samples("r1", result().case) == []


def test_a_run_has_one_row_per_case_and_keeps_the_first(begun):
    begun.add(result(), {}, [], None)
    with pytest.raises(UsageError, match="UNIQUE"):
        begun.add(result(status="wrong"), {}, [], None)
    assert [row.status for row, _ in begun.results("r1")] == ["ok"]
    assert (begun.has("r1", result().case), begun.has("r2", result().case)) == (True, False)
    assert (begun.recorded("r1"), begun.recorded("r2")) == ({result().case}, set())


def test_runs_on_one_machine_share_its_row(begun):
    begin(begun, "r2")
    with sqlite3.connect(begun.path) as db:
        assert db.execute("SELECT count(*) FROM machine").fetchone() == (1,)


@pytest.mark.parametrize("sql", ["", "CREATE TABLE mine (name)", "CREATE TABLE mine (name); PRAGMA user_version = 1"])
def test_a_foreign_file_is_refused_by_name_and_left_unchanged(tmp_path, complaint, sql):
    path = tmp_path / "foreign.db"
    if sql:
        with sqlite3.connect(path) as db:
            db.executescript(sql)
    else:
        path.write_text("these are no pages of a database\n" * 40)
    before = path.read_bytes()
    line = complaint(lambda: Store(path))
    assert line.startswith(f"{path}: ")
    assert "--db names another" in line
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [50, 4096, 0.25, 0.5, 0.9])
def test_a_store_that_is_cut_short_is_refused_in_one_line(store, complaint, left):
    store.close()
    os.truncate(store.path, int(left * store.path.stat().st_size) if left < 1 else left)
    assert "cannot be used as a store: database disk image is malformed" in complaint(lambda: Store(store.path))


#: Damage to the log of a store or the log's index, and how many of the store's five rows are read then.
DAMAGES = {
    "the index of the log is missing": (lambda wal, shm: shm.unlink(), {5}),
    "the index of the log is noise": (lambda wal, shm: shm.write_bytes(bytes(range(256)) * 128), {5}),
    "the log is cut short": (lambda wal, shm: os.truncate(wal, wal.stat().st_size * 2 // 3), {0, 1, 2, 3, 4}),
    "the log is noise": (lambda wal, shm: wal.write_bytes(bytes(range(256)) * 256), {0}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_store_with_a_damaged_log_has_whole_rows_or_none(begun, tmp_path, name):
    begun.close()
    writer, copied = Store(begun.path), tmp_path / "copied.db"
    for number in range(5):
        writer.add(result(kernel=f"gemm/a.k{number}"), {}, [1.0], None)
    for end in ("", "-wal", "-shm"):
        Path(f"{copied}{end}").write_bytes(Path(f"{begun.path}{end}").read_bytes())
    writer.close()
    damage, counts = DAMAGES[name]
    damage(Path(f"{copied}-wal"), Path(f"{copied}-shm"))
    with Store(copied) as store:
        rows = [row.kernel for row, _ in store.results("r1")]
    assert rows == [f"gemm/a.k{number}" for number in range(len(rows))]
    assert len(rows) in counts


WRITER = """
import sys
from pathlib import Path
from support.rows import begin, result
from kernelmark.bench.record.store import Store

store = Store(Path(sys.argv[1]))
begin(store)
for i in range(10**9):
    store.add(result(threads=i), {"m": i}, [i + 1.0] * 100, None)
    sys.stdout.write(f"{i}\\n")
    sys.stdout.flush()
"""


def python(*words):
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


@pytest.mark.parametrize("rows", [1, 50, 500])
def test_every_acknowledged_row_outlives_a_writer_that_is_killed(tmp_path, rows):
    path = tmp_path / "results.db"
    with python(WRITER, str(path)) as writer:
        for _ in range(rows):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = rows + sum(line.endswith(b"\n") for line in writer.stdout)
    survivors = list(Store(path, create=False).results("r1"))
    assert writer.returncode == -signal.SIGKILL
    assert len(survivors) in (acknowledged, acknowledged + 1)
    assert [row.threads for row, _ in survivors] == [dims["m"] for _, dims in survivors] == list(range(len(survivors)))
    assert Store(path).samples("r1", survivors[-1][0].case) == [float(len(survivors))] * 100


OPENER = """
import sys
from pathlib import Path
from kernelmark.bench.record.store import Store

sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
for i in range(20):
    Store(Path(sys.argv[1]) / f"{i}.db")
"""


def test_processes_that_create_the_same_store_at_once_can_all_open_it(tmp_path):
    openers = [python(OPENER, str(tmp_path)) for _ in range(4)]
    for opener in openers:
        opener.stdout.readline()
    for opener in openers:
        opener.stdin.write(b"go\n")
        opener.stdin.flush()
    for opener in openers:
        opener.communicate()
    assert [opener.returncode for opener in openers] == [0] * 4


def test_ceilings_are_kept_in_their_order_with_the_doubts_about_them(begun):
    first, second = LIMIT, msgspec.structs.replace(LIMIT, measured_at="t2")
    for limit in (first, second):
        begun.add_ceiling("r1", limit)
    begun.doubt_ceiling("r1", second, "surpassed")
    assert (begun.ceilings("r1"), begun.ceilings("r2")) == ([(first, ""), (second, "surpassed")], [])
    for run_id, plan in (("r2", {"plugins": ["p.py"]}), ("r3", {}), ("r4", {"plugins": []})):
        begin(begun, run_id, plan=plan)
    assert [*begun.earlier_ceilings("r4", first.need)] == [(first, ""), (second, "surpassed")]
    begun.add_ceiling("r2", first)  # its plug-in may have changed the measurement
    assert len([*begun.earlier_ceilings("r4", first.need)]) == 2
    assert len([*begun.earlier_ceilings("r2", first.need)]) == 3


def test_a_run_is_removed_from_all_tables_and_other_runs_stay(begun):
    begin(begun, "r2", machine={"cpu": "other"})
    for run_id in begun.run_ids():
        row = result(run_id=run_id, baseline="gemm/numpy.matmul", speedup=2.0)
        begun.add(row, {}, [1.0], BaselineRatio(2.0, 1.5, 2.5, "paired", 1.9), evidence=Evidence([1.0], None))
        begun.add_ceiling(run_id, LIMIT)
        begun.add_layer(run_id, Layer("net", row.problem, "forward", 1))
        begun.set_aside(run_id, 0, 1, [])
        begun.add_resources(run_id, row.case, LaunchResources(40, 0))
        begun.add_host(run_id, Host("one", "c0ffee", "1.0"))

    def rows():
        with sqlite3.connect(begun.path) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            tables -= {"source", "version"}  # they belong to a kernel, not to a run
            return {db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}

    assert rows() == {2}
    begun.remove(["r1"])
    assert (rows(), [r.run_id for r, _ in begun.results("r2")]) == ({1}, ["r2"])


SINCE_4 = (
    *("job", "tuned", "host", "device_uuid", "wire_bytes", "bus_gbyte_per_s", "compression_error", "launched"),
    *("entropy", "llc_bytes", "judged_by", "against", "ratio", "ratio_ci95_low", "ratio_ci95_high"),
)


def schema_4(path):
    db = sqlite3.connect(path)
    db.executescript((Path(__file__).parents[1] / "data" / "schema4.sql").read_text())
    return db


def test_an_upgraded_store_has_the_tables_and_columns_of_a_new_one(tmp_path, store):
    schema_4(tmp_path / "old.db").close()
    Store(tmp_path / "old.db").close()
    of_all_tables = "SELECT tables.name, columns.name FROM sqlite_master tables, pragma_table_info(tables.name) columns"
    with sqlite3.connect(tmp_path / "old.db") as old, sqlite3.connect(store.path) as new:
        assert set(old.execute(of_all_tables)) == set(new.execute(of_all_tables))


def test_a_store_of_schema_4_is_shown_and_exported_with_newer_columns_empty_and_takes_new_runs(tmp_path, called):
    with schema_4(tmp_path / "old.db") as db:
        written = db.execute('SELECT "case", time_s_median, sample_blob FROM result').fetchall()
    shown = called("show", "--db", "old.db").printed
    rows = csv_rows(called("export", "--db", "old.db").out)
    store = Store(tmp_path / "old.db", create=False)
    (run_id,) = store.run_ids()
    results = [row for row, _ in store.results(run_id)]
    assert [(r.case, r.time_s_median, store.samples(r.run_id, r.case)) for r in results] == [
        (case, median, doubles(blob).tolist()) for case, median, blob in written
    ]
    begin(store, name="new", planned=3)
    runs = [(run.run_id, run.name, run.planned) for run in map(store.run, (run_id, "new"))]
    assert runs == [(run_id, "", None), ("r1", "new", 3)]
    store.close()
    assert all(row["kernel"].rpartition(".")[2] in shown for row in rows)
    assert [float(row["time_s_median"]) for row in rows] == [median for _, median, _ in written]
    assert {row[name] for row in rows for name in SINCE_4} == {""}
    assert {getattr(r, name) for r in results for name in SINCE_4} == {"", None}


KNOWN = KernelVersion(kernel="k", problem="p", saved_at="t", by="watch", verdict="PASS", right=True, registers=40)


def test_versions_come_back_in_their_order_with_their_sources(store):
    texts = [{"a.cu": b"one", "a.cuh": b"\xff"}, {"a.cu": b"two"}]
    other = msgspec.structs.replace(KNOWN, compared=(VersionRatio(1.5, 1.4, None, version=1),))
    numbers = [store.add_version(version, text) for version, text in zip((KNOWN, other), texts, strict=True)]
    versions = [(each.number, each.version, each.sources) for each in store.versions("k", "p")]
    assert versions == [(numbers[0], KNOWN, texts[0]), (numbers[1], other, texts[1])]
    assert store.versions("k", "q") == []


def test_sources_of_equal_names_and_contents_are_kept_once_and_compressed(store):
    for sources in (*[{"a.cu": b"  b[i] = a[i];\n" * 1000}] * 3, {"a.cu": b"one"}, {"b.cu": b"one"}, {"a.cu": b"two"}):
        store.add_version(KNOWN, sources)
    with closing(sqlite3.connect(store.path)) as db:
        ((count, size),) = db.execute("SELECT count(*), sum(length(files)) FROM source")
    assert count == 4
    assert size < 1000
    assert len({each.digest for each in store.versions("k", "p")}) == 4


@pytest.mark.parametrize("damage", ["UPDATE source SET files = x'00'", "UPDATE version SET facts = '{'"])
def test_damaged_versions_are_refused_in_one_line(store, complaint, damage):
    store.add_version(KNOWN, {"a.cu": b"one"})
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(damage)
    assert f"{store.path}: cannot be read: " in complaint(lambda: store.versions("k", "p"))


TIMES = [name for name in COLUMNS if name.startswith("time_s_")]
RATES = ["gflop_per_s", "gbyte_per_s", "roofline_pct", "speedup", "speedup_ci95_low", "speedup_ci95_high"]


@pytest.fixture
def made(registry):
    def of(problem="gemm/m10n20k30/f32/NT", mode=Mode.COLD, kind=Measurement, **measured):
        problem = registry.problem(problem)
        kernel = next(k for k in registry.kernels.values() if k.op == problem.op)
        job = Job((problem.id,), (kernel.id,), mode, (), 5, Budget(), 2, baseline="gemm/x.base")
        planned = PlannedJob(job, WorkerKey("cpu", 2), "suite", 7)
        samples = {"samples": [2e-6, 1e-6, 6e-6], "interval": Interval(2e-6, 1e-6, 6e-6)}
        measurement = kind(**{"kernel": kernel.id, **samples, **measured})
        return make_result(measurement, kernel, problem, planned, "r", "c")

    return of


def test_times_come_from_the_samples_and_rates_are_nominal_work_over_the_median(made):
    r = made(over_baseline=BaselineRatio(2.0, 1.5, 2.5, "paired"))
    assert (r.samples, r.time_s_median, r.time_s_min, r.time_s_mean) == (3, 2e-6, 1e-6, pytest.approx(3e-6))
    assert r.time_s_std == pytest.approx(math.sqrt(7) * 1e-6)  # (1 + 4 + 9) / (3 - 1) = 7
    assert made(samples=[2e-6]).time_s_std is None
    assert (r.time_s_ci95_low, r.time_s_ci95_high) == (1e-6, 6e-6)
    assert r.gflop_per_s == pytest.approx(2 * 10 * 20 * 30 / 2e-6 / 1e9)
    assert r.gbyte_per_s == pytest.approx(4 * (10 * 30 + 20 * 30 + 10 * 20) / 2e-6 / 1e9)
    assert (r.speedup, r.speedup_ci95_low, r.speedup_ci95_high, r.baseline) == (2.0, 1.5, 2.5, "gemm/x.base")


@pytest.mark.parametrize("problem", ["copy/m10n20/f32", "transpose/m10n20/f32/in", "transpose/m10n20/f32/out"])
def test_an_operation_that_only_moves_data_has_no_rate_in_flop(made, problem):
    r = made(problem)
    assert r.gflop_per_s is None
    assert r.gbyte_per_s == pytest.approx(2 * 4 * 10 * 20 / 2e-6 / 1e9)


@pytest.mark.parametrize("status", ["unsupported", "wrong", "oom", "timeout", "crashed", "failed", "mistrusted"])
def test_a_row_that_is_not_ok_has_neither_times_nor_rates_nor_speedup(made, status):
    r = made(status=status, reason="because", over_baseline=BaselineRatio(2.0, 1.5, 2.5, "paired"))
    assert (r.status, r.reason, r.samples) == (status, "because", 0)
    assert [name for name in (*TIMES, *RATES) if getattr(r, name) is not None] == []


def test_a_row_of_mode_verify_is_ok_without_a_time(made):
    r = made(mode=Mode.VERIFY, samples=[], interval=None, max_error=0.0, error_bound=1e-6)
    assert (r.mode, r.status, r.samples, r.max_error, r.error_bound) == ("verify", "ok", 0, 0.0, 1e-6)
    assert [name for name in (*TIMES, *RATES) if getattr(r, name) is not None] == []


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_empty(made, unknown):
    r = made(
        interval=Interval(2e-6, unknown, unknown),
        over_baseline=BaselineRatio(2.0, unknown, unknown, "paired"),
        max_error=unknown,
        error_bound=unknown,
    )
    names = ["time_s_ci95_low", "time_s_ci95_high", "speedup_ci95_low", "speedup_ci95_high", "max_error", "error_bound"]
    assert [name for name in names if getattr(r, name) is not None] == []
    assert (r.time_s_median, r.speedup) == (2e-6, 2.0)


def test_values_that_were_not_measured_are_empty_and_not_zero(made):
    r = made()
    unknown = ["roofline_pct", "clock_mhz", "temperature_c", "power_w", "energy_j", "scratch_bytes", "call_overhead_s"]
    assert [getattr(r, name) for name in unknown] == [None] * len(unknown)


def test_a_row_has_the_values_of_its_job_state_and_roofline_and_fields_named_like_columns(made):
    class Extended(Measurement):
        wire_bytes: int | None = None

    state, roofline = {"clock_mhz": 3000.0}, Roofline(50.0, "memory", None, 12.0)
    r = made(kind=Extended, wire_bytes=12, job="j", threads=2, scratch_bytes=0, state=state, roofline=roofline)
    assert (r.suite, r.seed, r.count, r.clock_mhz, r.scratch_bytes) == ("suite", 5, 7, 3000.0, 0)
    assert (r.dtype, r.layout, r.threads, r.run_id, r.git_commit) == ("f32", "NT", 2, "r", "c")
    assert (r.wire_bytes, r.job) == (12, "j")
    assert (r.roofline_pct, r.bound_by, r.ceiling_gbyte_per_s) == (50.0, "memory", 12.0)
    assert (r.ceiling_gflop_per_s, r.roofline_pct_cycles) == (None, None)
    assert r.case == f"{r.kernel} {r.problem} cold t2"
    assert Result(**{**row(r, {}), "isa": "avx2"}).case.endswith(" avx2")


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.VERIFY])
@pytest.mark.parametrize("problem", ["gemm/m1n1k1/f32/NT", "transpose/m1n2/f32/in"])
def test_every_column_has_its_declared_type(made, mode, problem):
    values = {} if mode.does.times else {"samples": [], "interval": None}
    r = made(problem, mode, **values)
    assert msgspec.convert(msgspec.to_builtins(r), Result) == r
