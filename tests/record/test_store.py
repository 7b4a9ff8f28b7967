"""The store: what it acknowledged it keeps, and what it cannot use it refuses in one line."""

import csv
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.measure.ceiling import Ceiling, Excess
from bench.measure.measurement import Evidence, Part
from bench.measure.stats import Interval, Ratio
from bench.plan.errors import UsageError
from bench.record.query import doubles
from bench.record.result import Result
from bench.record.store import Layer, Run, Store

RUN = Run("r1", {"cpu": "some"}, "2026-01-01T00:00:00", ("smoke",), "kernelmark run smoke", {"blas": []}, "c0ffee", {})


def result(**values):
    identity = {"run_id": "r1", "suite": "smoke", "op": "gemm", "problem": "gemm/m8n8k8/f32/NT", "kernel": "gemm/a.b"}
    device = {"provider": "a", "device": "cpu", "device_name": "some", "mode": "cold", "threads": 1}
    kind = {"dtype": "f32", "numerics": "fp32", "layout": "NT", "status": "ok", "reason": ""}
    return Result(**{**identity, **device, **kind, **values})


@pytest.fixture
def begun(store):
    store.begin(RUN)
    return store


def test_a_row_comes_back_as_it_went_in(begun):
    row = result(samples=2, time_s_median=1.25e-6, scratch_bytes=0, reason="a, b\n'c'", count=3, started_at="now")
    dims = {"m": 8, "beta": 0.5, "place": "in"}
    begun.add(row, dims, [1e-6, 1.5e-6], None)
    assert list(begun.results("r1")) == [(row, dims)]


def test_samples_come_back_bit_for_bit_in_their_order(begun):
    samples = [3e-9, 1 / 3, 5e-324, 1.7976931348623157e308, 0.1]
    begun.add(result(), {}, samples, None)
    assert begun.samples("r1", result().case) == samples


def test_a_case_without_samples_has_none(begun):
    begun.add(result(status="wrong"), {}, [], None)
    assert begun.samples("r1", result().case) == []
    assert begun.samples("r1", "no such case") == []


def test_a_ratio_is_kept_beside_its_result(begun):
    row = result(baseline="gemm/numpy.matmul", speedup=2.0, speedup_ci95_low=1.5)
    begun.add(row, {}, [1.0], Ratio(2.0, 1.5, float("inf"), "paired", 1.9))
    with sqlite3.connect(begun.path) as db:
        found = db.execute('SELECT "case", ratio.* FROM ratio JOIN result USING (result_id)').fetchall()
    assert [(f[0], *f[2:]) for f in found] == [(row.case, "gemm/numpy.matmul", 2.0, 1.5, None, "paired", 1.9)]


def test_what_accuses_a_row_is_kept_beside_it(begun):
    limit = Ceiling("cpu", 2, "fp32", "fma/n1k1/f32", "fma/a.b", "d", 2.0, 1.0, 3.0, 4.0, "t1")
    evidence = Evidence([3e-9, 1 / 3], Interval(0.1, 3e-9, 1 / 3), Excess(limit, 10**15, 1e16))
    begun.add(result(status="mistrusted"), {}, [], None, evidence=evidence)
    begun.add(result(kernel="gemm/a.seen", status="mistrusted"), {}, [], None, evidence=Evidence([1.0], None))
    begun.add(result(kernel="gemm/a.good"), {}, [1.0], None)
    assert begun.evidence("r1", result().case) == evidence
    assert begun.evidence("r1", result(kernel="gemm/a.seen").case) == Evidence([1.0], None)
    assert begun.evidence("r1", result(kernel="gemm/a.good").case) is None
    assert begun.samples("r1", result().case) == []


def test_a_case_is_found_by_a_part_of_its_name_and_by_the_whole_though_others_contain_it(begun):
    for kernel, threads in (("gemm/a.b", 1), ("gemm/a.b", 12), ("gemm/a.c", 1)):
        begun.add(result(kernel=kernel, threads=threads), {"m": threads}, [], None)
    assert begun.find_cases("r1", "a.c", 9) == ["gemm/a.c gemm/m8n8k8/f32/NT cold t1"]
    assert begun.find_cases("r1", result().case, 9) == [result().case]
    assert len(begun.find_cases("r1", "a.b", 9)) == 2
    assert len(begun.find_cases("r1", "gemm", 2)) == 2
    assert begun.find_cases("r2", "a.c", 9) == begun.find_cases("r1", "%", 9) == []
    assert begun.result("r1", result(threads=12).case) == (result(threads=12), {"m": 12})


@pytest.mark.parametrize("change", [{"threads": 2}, {"isa": "avx2"}, {"mode": "hot"}, {"kernel": "gemm/a.c"}])
def test_threads_isa_mode_and_kernel_make_another_case(begun, change):
    begun.add(result(), {}, [], None)
    begun.add(result(**change), {}, [], None)
    assert len(list(begun.results("r1"))) == 2


def test_a_case_stands_once_in_a_run_and_the_first_row_stays(begun):
    begun.add(result(), {}, [], None)
    with pytest.raises(UsageError, match="UNIQUE"):
        begun.add(result(status="wrong"), {}, [], None)
    assert [row.status for row, _ in begun.results("r1")] == ["ok"]


def test_has_knows_the_cases_of_its_own_run_alone(begun):
    begun.add(result(), {}, [], None)
    assert begun.has("r1", result().case)
    assert not begun.has("r2", result().case)


def test_runs_on_one_machine_share_its_row(begun):
    begun.begin(Run("r2", *(getattr(RUN, name) for name in RUN.__struct_fields__[1:])))
    with sqlite3.connect(begun.path) as db:
        assert db.execute("SELECT count(*) FROM machine").fetchone() == (1,)


def test_dimensions_are_those_of_all_operations_each_once(begun):
    begun.add(result(), {"m": 1, "n": 2, "k": 3}, [], None)
    begun.add(result(op="transpose", kernel="transpose/a.b"), {"m": 1, "n": 2, "place": "in"}, [], None)
    assert begun.dimensions("r1") == ["m", "n", "k", "place"]


def test_the_latest_run_is_found_without_an_id_and_any_by_its_beginning(begun):
    for name in ("x-1", "x-2"):
        begun.begin(Run(name, *(getattr(RUN, field) for field in RUN.__struct_fields__[1:])))
    assert begun.find_run(None)["run_id"] == "x-2"
    assert begun.find_run("r")["run_id"] == "r1"
    assert begun.find_run("x-1")["run_id"] == "x-1"


@pytest.mark.parametrize(
    ("asked", "found"),
    [("zzz", "is not a run"), ("x-", "begins more than one"), ("%", "is not a run"), ("_1", "not a")],
)
def test_an_unknown_run_is_one_line_with_the_latest_ids(begun, complaint, asked, found):
    for name in ("x-1", "x-2"):
        begun.begin(Run(name, *(getattr(RUN, field) for field in RUN.__struct_fields__[1:])))
    line = complaint(lambda: begun.find_run(asked))
    assert line.startswith(f"run {asked!r}: ")
    assert found in line
    assert str(begun.path) in line
    assert "x-2, x-1, r1" in line


def test_a_store_without_a_run_says_how_to_make_one(store, complaint):
    assert complaint(lambda: store.find_run(None)).endswith("holds no run yet; `kernelmark run SUITE` makes one")
    assert "none" in complaint(lambda: store.find_run("r1"))


def test_a_store_that_must_exist_is_not_made(tmp_path, complaint):
    path = tmp_path / "absent.db"
    assert str(path) in complaint(lambda: Store(path, create=False))
    assert not path.exists()


def foreign_text(path):
    path.write_text("these are no pages of a database\n" * 40)


def foreign_database(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE customers (name)")


def foreign_database_of_the_same_version(path):
    foreign_database(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")


@pytest.mark.parametrize("make", [foreign_text, foreign_database, foreign_database_of_the_same_version])
def test_a_foreign_file_is_refused_by_name_and_left_alone(tmp_path, complaint, make):
    path = tmp_path / "foreign.db"
    make(path)
    before = path.read_bytes()
    line = complaint(lambda: Store(path))
    assert line.startswith(f"{path}: ")
    assert "--db names another" in line
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_with_both_versions(store, complaint):
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    assert "has schema 99, this kernelmark reads 5" in complaint(lambda: Store(store.path))


@pytest.mark.parametrize("below", ["", "file/results.db", "file/deep/results.db"])
def test_a_place_where_no_file_can_be_made_is_named(tmp_path, complaint, below):
    (tmp_path / "file").write_text("")
    assert complaint(lambda: Store(tmp_path / below)).startswith(f"{tmp_path / below}: cannot be used as a store")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write in a folder that is read-only")
def test_a_read_only_folder_is_named(tmp_path, complaint):
    (tmp_path / "locked").mkdir(mode=0o500)
    path = tmp_path / "locked" / "results.db"
    assert complaint(lambda: Store(path)).startswith(f"{path}: cannot be used as a store")


WRITER = """
import sys
from pathlib import Path
from test_store import RUN, result
from bench.record.store import Store

store = Store(Path(sys.argv[1]))
store.begin(RUN)
for i in range(10**9):
    store.add(result(threads=i), {"m": i}, [float(i)] * 100, None)
    sys.stdout.write(f"{i}\\n")
    sys.stdout.flush()
"""


def python(*words):
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


@pytest.mark.parametrize("rows", [1, 50, 500])
def test_every_acknowledged_row_outlives_a_writer_that_is_killed(tmp_path, rows):
    path = tmp_path / "results.db"
    with python(WRITER, str(path)) as writer:
        for _ in range(rows):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = rows + sum(line.endswith(b"\n") for line in writer.stdout)
    found = list(Store(path, create=False).results("r1"))
    assert writer.returncode == -signal.SIGKILL
    assert len(found) in (acknowledged, acknowledged + 1)
    assert [row.threads for row, _ in found] == [dims["m"] for _, dims in found] == list(range(len(found)))
    assert Store(path).samples("r1", found[-1][0].case) == [len(found) - 1.0] * 100


OPENER = """
import sys
from pathlib import Path
from bench.record.store import Store

sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
for i in range(20):
    Store(Path(sys.argv[1]) / f"{i}.db")
"""


def test_processes_that_make_one_store_at_once_all_get_it(tmp_path):
    openers = [python(OPENER, str(tmp_path)) for _ in range(4)]
    for opener in openers:
        opener.stdout.readline()
    for opener in openers:
        opener.stdin.write(b"go\n")
        opener.stdin.flush()
    for opener in openers:
        opener.communicate()
    assert [opener.returncode for opener in openers] == [0] * 4


def test_ceilings_are_kept_in_their_order_with_what_speaks_against_them(begun):
    one = Ceiling("cpu", 2, "fp32", "fma/n1k1/f32", "fma/a.b", "d", 2.0, 1.0, 3.0, 4.0, "t1")
    two = msgspec.structs.replace(one, measured_at="t2")
    for found in (one, two):
        begun.add_ceiling("r1", found)
    begun.doubt_ceiling("r1", two, "surpassed")
    assert begun.ceilings("r1") == [(one, ""), (two, "surpassed")]
    assert begun.ceilings("r2") == []


SINCE_4 = ("job", "tuned", "host", "device_uuid", "wire_bytes", "bus_gbyte_per_s", "compression_error")


def schema_4(path):
    db = sqlite3.connect(path)
    db.executescript((Path(__file__).parents[1] / "data" / "schema4.sql").read_text())
    return db


def test_a_store_that_is_brought_up_to_date_has_the_tables_and_columns_of_a_new_one(tmp_path, store):
    schema_4(tmp_path / "old.db").close()
    Store(tmp_path / "old.db").close()
    of_all_tables = (
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) columns"
    )
    with sqlite3.connect(tmp_path / "old.db") as old, sqlite3.connect(store.path) as new:
        assert set(old.execute(of_all_tables)) == set(new.execute(of_all_tables))


def test_a_store_of_schema_4_opens_with_the_new_columns_empty_is_shown_and_exported(tmp_path, kernelmark):
    with schema_4(tmp_path / "old.db") as db:
        written = db.execute('SELECT "case", time_s_median, sample_blob FROM result').fetchall()
    shown = kernelmark("show", "--db", "old.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    exported = kernelmark("export", "--db", "old.db")
    rows = list(csv.DictReader(exported.stdout.splitlines()))
    store = Store(tmp_path / "old.db", create=False)
    kept = [row for row, _ in store.results(store.run_ids()[0])]
    assert [(r.case, r.time_s_median, store.samples(r.run_id, r.case)) for r in kept] == [
        (case, median, doubles(blob).tolist()) for case, median, blob in written
    ]
    store.close()
    assert all(row["kernel"].rpartition(".")[2] in shown.stdout for row in rows)
    assert [float(row["time_s_median"]) for row in rows] == [median for _, median, _ in written]
    assert {row[name] for row in rows for name in SINCE_4} == {""}
    assert {getattr(r, name) for r in kept for name in SINCE_4} == {"", None}


def test_a_store_of_schema_1_is_brought_up_to_date_and_keeps_its_rows(tmp_path):
    path = tmp_path / "old.db"
    store = Store(path)
    store.begin(RUN)
    store.add(result(), {"m": 1}, [1.0], None)
    store.close()
    with sqlite3.connect(path) as db:
        since = ("bound_by", "ceiling_gflop_per_s", "ceiling_gbyte_per_s", "executed_flop", "setup_s")
        since += ("interval", "outliers", "speedup_of_minima", "repeated", "threads_used", "affinity", "load")
        for name in (*since, "steal_pct", "roofline_pct_cycles", "spread_s", "part_blob", *SINCE_4):
            db.execute(f'ALTER TABLE result DROP COLUMN "{name}"')
        db.execute("ALTER TABLE ratio DROP COLUMN minima")
        db.execute("DROP TABLE ceiling")
        db.execute("DROP TABLE layer")
        db.execute("DROP TABLE pending")
        db.execute("DROP TABLE evidence")
        db.execute("PRAGMA user_version = 1")
    store = Store(path)
    ((row, dims),) = store.results(RUN.run_id)
    assert (row, dims) == (result(), {"m": 1})
    assert store.ceilings(RUN.run_id) == []
    store.close()


def fill(store, *groups, run_id="r1"):
    """A row for each (m, mode, isa), the kernel numbered."""
    for i, (m, mode, isa) in enumerate(groups):
        names = {"run_id": run_id, "problem": f"copy/m{m}n1/f32", "kernel": f"copy/a.k{i}", "mode": mode, "isa": isa}
        store.add(result(**names), {"m": m}, [], None)


APART = [(1, "cold", ""), (2, "cold", ""), (1, "hot", ""), (1, "cold", ""), (1, "cold", "avx2"), (2, "cold", "")]


def grouped(store, **options):
    return [[int(row.kernel.partition(".k")[2]) for row in rows] for rows in store.groups("r1", **options)]


def test_groups_gather_what_stands_apart_in_the_order_of_appearance(begun):
    fill(begun, *APART)
    assert grouped(begun) == [[0, 3], [1, 5], [2], [4]]
    assert begun.group_count("r1") == 4


@pytest.mark.parametrize(("offset", "found"), [(0, [[0, 3], [1, 5]]), (2, [[2], [4]]), (3, [[4]]), (4, [])])
def test_groups_can_be_asked_for_by_the_page(begun, offset, found):
    fill(begun, *APART)
    assert grouped(begun, limit=2, offset=offset) == found


def test_groups_of_more_rows_than_are_fetched_at_a_time_are_whole(begun):
    fill(begun, *((m % 2, "cold", "") for m in range(1101)))
    assert grouped(begun) == [list(range(0, 1101, 2)), list(range(1, 1101, 2))]


def test_rows_of_runs_that_were_written_at_the_same_time_stay_apart(begun):
    begun.begin(msgspec.structs.replace(RUN, run_id="r2"))
    for m in range(3):
        fill(begun, (m, "cold", ""))
        fill(begun, (m + 10, "cold", ""), (m + 10, "hot", ""), run_id="r2")
    assert [row.problem for row, _ in begun.results("r1")] == [f"copy/m{m}n1/f32" for m in range(3)]
    assert (begun.group_count("r1"), begun.group_count("r2"), begun.group_count("r3")) == (3, 6, 0)
    assert begun.statuses("r2") == {"ok": 6}
    assert list(begun.results("r3")) == []


def test_totals_of_a_kernel_are_rows_by_status_and_the_geometric_mean_of_its_speedups(begun):
    rows = [{"speedup": 2.0, "roofline_pct": 40.0}, {"speedup": 8.0, "roofline_pct": 30.0}, {"status": "wrong"}, {}]
    for threads, values in enumerate(rows, 1):
        begun.add(result(threads=threads, **values), {}, [], None)
    begun.add(result(kernel="gemm/a.bad", status="failed"), {}, [], None)
    good, bad = begun.kernel_totals("r1")
    assert (good.kernel, good.statuses, good.roofline_pct) == ("gemm/a.b", {"ok": 3, "wrong": 1}, 40)
    assert (good.speedup, good.speedup_min, good.speedup_max) == (pytest.approx(4), 2, 8)
    assert (bad.statuses, bad.speedup, bad.roofline_pct) == ({"failed": 1}, None, None)


def test_cases_come_in_their_order_with_the_medians_of_their_processes(begun):
    begun.add(result(kernel="gemm/a.c"), {}, [1.0, 2.0, 3.0], None, [Part(1, 1.0), Part(2, 2.5)])
    begun.add(result(), {}, [], None)
    assert [(row.kernel, list(row.medians)) for row in begun.cases("r1")] == [
        ("gemm/a.b", []),
        ("gemm/a.c", [1.0, 2.5]),
    ]
    assert begun.parts("r1", result(kernel="gemm/a.c").case) == [Part(1, 1.0), Part(2, 2.5)]


def test_layer_results_are_the_rows_of_the_layers_alone(begun):
    fill(begun, *APART)
    begun.add_layer("r1", Layer("net", "copy/m2n1/f32", "forward", 3))
    assert [row.kernel for row in begun.layer_results("r1")] == ["copy/a.k1", "copy/a.k5"]


def test_a_snapshot_does_not_see_what_others_write_meanwhile(begun):
    other = Store(begun.path)
    fill(begun, *APART[:2])
    with begun.snapshot():
        assert begun.group_count("r1") == 2
        other.add(result(kernel="gemm/a.new"), {}, [], None)
        assert len(list(begun.results("r1"))) == 2
    assert len(list(begun.results("r1"))) == 3
    other.close()


def test_a_file_that_breaks_while_it_is_read_is_one_line(begun, complaint):
    fill(begun, *((m, "cold", "") for m in range(300)))
    begun.close()
    content = bytearray(begun.path.read_bytes())
    content[16384:] = b"\xff" * (len(content) - 16384)
    begun.path.write_bytes(content)
    broken = Store(begun.path)
    assert complaint(lambda: list(broken.results("r1"))).startswith(f"{begun.path}: cannot be read: ")
    broken.close()
