"""Reading a store: runs, groups of rows, totals and cases; and tables, which hold rows as columns."""

import csv
import math
import random
from array import array

import pytest

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.record.columns import COLUMNS
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.record.table import Builder, Floats, cells
from kernelmark.bench.report.export import write_csv, write_table
from support.rows import begin, many, put, result, varied
from support.texts import csv_rows, text_of


def test_cases_are_found_by_part_of_their_name_and_a_full_name_finds_only_its_own(begun):
    for kernel, threads in (("gemm/a.b", 1), ("gemm/a.b", 12), ("gemm/a.c", 1)):
        begun.add(result(kernel=kernel, threads=threads), {"m": threads}, [], None)
    assert begun.find_cases("r1", "a.c", 9) == ["gemm/a.c gemm/m8n8k8/f32/NT cold t1"]
    assert begun.find_cases("r1", result().case, 9) == [result().case]
    assert (len(begun.find_cases("r1", "a.b", 9)), len(begun.find_cases("r1", "gemm", 2))) == (2, 2)
    assert begun.find_cases("r2", "a.c", 9) == begun.find_cases("r1", "%", 9) == []
    assert begun.result("r1", result(threads=12).case) == (result(threads=12), {"m": 12})


def test_dimensions_of_all_operations_are_listed_once(begun):
    begun.add(result(), {"m": 1, "n": 2, "k": 3}, [], None)
    begun.add(result(op="transpose", kernel="transpose/a.b"), {"m": 1, "n": 2, "place": "in"}, [], None)
    assert begun.dimensions("r1") == ["m", "n", "k", "place"]


NAMED = (("20260101-a", "base2"), ("20260102-b", "base"), ("20260103-c", ""))


def begin_named(store):
    for run_id, name in NAMED:
        begin(store, run_id, name=name)


@pytest.mark.parametrize(
    ("words", "last"), [(None, "c"), ("20260103", "c"), ("20260102-b", "b"), ("base", "b"), ("base2", "a"), ("r", "1")]
)
def test_a_run_is_found_by_name_id_or_unique_beginning_and_by_default_the_latest(begun, words, last):
    begin_named(begun)
    assert begun.find_run(words)["run_id"][-1] == last


def test_a_second_run_of_the_same_name_is_refused_and_leaves_nothing(begun, complaint):
    begin(begun, "r2", name="base")
    line = complaint(lambda: begin(begun, "r3", name="base"))
    assert line.startswith("--name base: run r2 has this name; ")
    assert begun.run_ids() == ["r1", "r2"]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("zzz", "is not a run"),
        ("%", "is not a run"),
        ("_1", "is not a run"),
        ("", "is not a run"),
        ("2026", "is the beginning of more than one run"),
        ("bas", "is the beginning of more than one run"),
    ],
)
def test_an_unknown_or_ambiguous_run_is_refused_in_one_line_with_the_latest_ids(begun, complaint, words, refusal):
    begin_named(begun)
    latest = "20260103-c, 20260102-b, 20260101-a"
    line = complaint(lambda: begun.find_run(words))
    assert line == f"run {words!r}: {refusal} of {begun.path}; the latest are {latest}"


def test_the_refusal_of_a_store_without_a_run_names_the_command_that_makes_one(store, complaint):
    assert complaint(lambda: store.find_run(None)).endswith("contains no run yet; `kernelmark run SUITE` makes one")
    assert "none" in complaint(lambda: store.find_run("r1"))


def fill(store, *groups, run_id="r1"):
    """Add a row with a numbered kernel for each (m, mode, isa)."""
    for i, (m, mode, isa) in enumerate(groups):
        names = {"run_id": run_id, "problem": f"copy/m{m}n1/f32", "kernel": f"copy/a.k{i}", "mode": mode, "isa": isa}
        store.add(result(**names), {"m": m}, [], None)


SCATTERED = [(1, "cold", ""), (2, "cold", ""), (1, "hot", ""), (1, "cold", ""), (1, "cold", "avx2"), (2, "cold", "")]


def grouped(store, **options):
    return [[int(row.kernel.partition(".k")[2]) for row in rows] for rows in store.groups("r1", **options)]


def test_groups_collect_scattered_rows_in_order_of_appearance_page_by_page(begun):
    fill(begun, *SCATTERED)
    assert (grouped(begun), begun.group_count("r1")) == ([[0, 3], [1, 5], [2], [4]], 4)
    pages = [grouped(begun, limit=2, offset=offset) for offset in (0, 2, 3, 4)]
    assert pages == [[[0, 3], [1, 5]], [[2], [4]], [[4]], []]


def test_groups_of_more_rows_than_are_fetched_at_once_are_complete(begun):
    fill(begun, *((m % 2, "cold", "") for m in range(1101)))
    assert grouped(begun) == [list(range(0, 1101, 2)), list(range(1, 1101, 2))]


def test_rows_of_two_runs_written_at_the_same_time_are_kept_separate(begun):
    begin(begun, "r2")
    for m in range(3):
        fill(begun, (m, "cold", ""))
        fill(begun, (m + 10, "cold", ""), (m + 10, "hot", ""), run_id="r2")
    assert [row.problem for row, _ in begun.results("r1")] == [f"copy/m{m}n1/f32" for m in range(3)]
    assert (begun.group_count("r1"), begun.group_count("r2"), begun.group_count("r3")) == (3, 6, 0)
    assert (begun.statuses("r2"), list(begun.results("r3"))) == ({"ok": 6}, [])


def test_totals_of_a_kernel_are_rows_by_status_and_the_geometric_mean_of_its_speedups(begun):
    rows = [{"speedup": 2.0, "roofline_pct": 40.0}, {"speedup": 8.0, "roofline_pct": 30.0}, {"status": "wrong"}, {}]
    for threads, values in enumerate(rows, 1):
        begun.add(result(threads=threads, **values), {}, [], None)
    begun.add(result(kernel="gemm/a.bad", status="failed"), {}, [], None)
    good, bad = begun.kernel_totals("r1")
    assert (good.kernel, good.statuses, good.roofline_pct) == ("gemm/a.b", {"ok": 3, "wrong": 1}, 40)
    assert (good.speedup, good.speedup_min, good.speedup_max) == (pytest.approx(4), 2, 8)
    assert (bad.statuses, bad.speedup, bad.roofline_pct) == ({"failed": 1}, None, None)


def test_cases_are_sorted_and_have_the_medians_of_their_processes(begun):
    begun.add(result(kernel="gemm/a.c"), {}, [1.0, 2.0, 3.0], None, [ProcessPart(1, 1.0), ProcessPart(2, 2.5)])
    begun.add(result(), {}, [], None)
    cases = [(row.kernel, list(row.medians)) for row in begun.cases("r1")]
    assert cases == [("gemm/a.b", []), ("gemm/a.c", [1.0, 2.5])]
    assert begun.parts("r1", result(kernel="gemm/a.c").case) == [ProcessPart(1, 1.0), ProcessPart(2, 2.5)]


def test_results_on_layers_and_on_given_problems_leave_out_all_others(begun):
    fill(begun, *SCATTERED)
    begun.add_layer("r1", Layer("net", "copy/m2n1/f32", "forward", 3))
    assert [row.kernel for row in begun.layer_results("r1")] == ["copy/a.k1", "copy/a.k5"]
    assert [row.kernel for row in begun.results_on("r1", {"copy/m2n1/f32", "gemm/m1"})] == ["copy/a.k1", "copy/a.k5"]


def test_a_snapshot_leaves_out_rows_that_others_write_meanwhile(begun):
    other = Store(begun.path)
    fill(begun, *SCATTERED[:2])
    with begun.snapshot():
        assert begun.group_count("r1") == 2
        other.add(result(kernel="gemm/a.new"), {}, [], None)
        assert len(list(begun.results("r1"))) == 2
    assert len(list(begun.results("r1"))) == 3
    other.close()


def test_a_store_with_damaged_pages_is_refused_in_one_line(begun, complaint):
    fill(begun, *((m, "cold", "") for m in range(300)))
    begun.close()
    content = bytearray(begun.path.read_bytes())
    content[98304:] = b"\xff" * (len(content) - 98304)  # earlier pages hold the names of the tables
    begun.path.write_bytes(content)
    broken = Store(begun.path)
    assert complaint(lambda: list(broken.results("r1"))).startswith(f"{begun.path}: cannot be read: ")
    broken.close()


def values_of(rows):
    return [tuple(getattr(r, name) for name in COLUMNS) for r in rows]


def test_a_table_has_the_values_dimensions_and_csv_of_every_row(store):
    varied(store)
    table, results = store.table("r1"), list(store.results("r1"))
    assert values_of(table.rows) == values_of(r for r, _ in results)
    assert list(table.records()) == values_of(r for r, _ in results)
    assert list(table.dims) == [dims for _, dims in results]
    assert [r.case for r in table.rows] == [r.case for r, _ in results]
    assert text_of(lambda out: write_table(table, out)) == text_of(lambda out: write_csv(store, ["r1"], out))


def test_rows_of_more_than_one_chunk_are_in_their_order(store, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.record.reader.CHUNK", 7)
    many(store, 40)
    assert values_of(store.table("r1").rows) == values_of(r for r, _ in store.results("r1"))


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 1), (1, 1, 2)])
def test_a_column_is_constant_only_if_it_is_so_in_every_row(begun, sizes):
    for i, size in enumerate(sizes):
        values = {"seed": size, "load": float(size), "clock_mhz": None if size == 1 else 1000.0}
        put(begun, "copy/m1n1/f32", f"copy/some.k{i}", **values)
    assert values_of(begun.table("r1").rows) == values_of(r for r, _ in begun.results("r1"))


@pytest.mark.parametrize(("values", "kind"), [(256, "B"), (257, "H"), (65537, "I")])
def test_codes_take_the_bytes_that_their_values_need(values, kind):
    builder = Builder()
    rows = [(*("x" for _ in COLUMNS[:3]), str(i), *(None for _ in COLUMNS[4:]), "{}") for i in range(values)]
    builder.add(zip(*rows, strict=True))
    column = builder.table().columns[COLUMNS[3]]
    assert (column.codes.typecode, list(column)) == (kind, [str(i) for i in range(values)])


def test_a_run_without_rows_is_an_empty_table_and_a_selection_holds_for_tables_too(store):
    begin(store, "empty")
    table = store.table("empty")
    assert (list(table.rows), list(table.records()), list(table.dims)) == ([], [], [])
    varied(store)
    store.select(Selection(op=("conv",)))
    assert {r.op for r in store.table("r1").rows} == {"conv"}


def test_a_value_of_a_wrong_type_is_named_in_one_line(begun, complaint):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    begun._db.execute("UPDATE result SET time_s_min = 'soon'")
    line = complaint(lambda: begun.table("r1"))
    assert line.startswith(f"{begun.path}: cannot be read: Expected `float | null`, got `str` - at `$.time_s_min`; ")


def test_a_number_that_is_not_finite_is_empty_and_the_rows_around_it_are_whole(store):
    varied(store)
    before = [r.time_s_min for r in store.table("r1").rows]
    store._db.execute("UPDATE result SET time_s_min = 9e999 WHERE result_id = 3")
    assert [r.time_s_min for r in store.table("r1").rows] == [*before[:2], None, *before[3:]]
    rows = csv_rows(text_of(lambda out: write_csv(store, ["r1"], out)))
    assert [row["time_s_min"] for row in rows][1:4] == [repr(before[1]), "", repr(before[3])]


def test_a_table_of_given_columns_has_no_others_and_samples_are_in_the_order_of_rows(store):
    varied(store)
    whole, narrow = store.table("r1"), store.table("r1", ("kernel", "time_s_median"))
    assert list(narrow.records()) == [(r.kernel, r.time_s_median) for r in whole.rows]
    samples = [array("d", blob).tolist() for blob in store.sample_blobs("r1")]
    assert samples == [store.samples("r1", r.case) if r.time_s_median else [] for r in whole.rows]


@pytest.mark.parametrize(
    "blob",
    [
        *("x'00'", "x'000000000000f07f'", "x'000000000000f8ff'", "x'000000000000f0bf'", "'text'"),
        *("x'0000000000000000'", "x'0100000000000000'", "x'ffffffffffffef7f'"),  # 0, the smallest, the largest
    ],
)
def test_samples_that_cannot_be_seconds_are_refused_in_one_line(store, complaint, blob):
    varied(store)
    store._db.execute(f"UPDATE result SET sample_blob = {blob} WHERE result_id = 1")
    case = next(iter(store.table("r1").rows)).case
    for read in (lambda: list(store.sample_blobs("r1")), lambda: store.samples("r1", case)):
        assert complaint(read).startswith(f"{store.path}: cannot be read: ")


def test_a_table_of_2000_rows_takes_six_statements(store):
    many(store, 2000)
    statements = []
    store._db.set_trace_callback(statements.append)
    store.table("r1")
    assert len(statements) == 6


def by_writer(values):
    rows = [(value, "end") for value in values]
    lines = text_of(lambda out: csv.writer(out, lineterminator="\r\n").writerows(rows))
    return [line.removesuffix(",end") for line in lines.split(",end\r\n")[:-1]]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None, None],
        ["", "plain", " with spaces ", "é", "0"],
        ["a,b", "plain", ""],
        ['say "so"', '"', '""'],
        ["two\nlines", "a\rreturn", "both\r\n", "nul\0"],
        [0, -3, 2**63 - 1, None, 17],
        [1.5, None, 3, 0.1 + 0.2],
        [True, False, None, 1],
        ["text", 3, 2.5, None],
        [[1, 2], {"a": 1}],
    ],
    ids=repr,
)
def test_cells_are_written_as_csv_writer_writes_them(values):
    assert list(cells(values)) == by_writer(values)


def test_numbers_of_every_size_are_written_as_repr_writes_them():
    rng = random.Random(0)
    numbers = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 20) for _ in range(5000)]
    numbers += [0.0, -0.0, 1.0, 1e-4, 0.00012, 9.99e-5, 10.00001, 1e15, 1e16, 1e17, 5e-324, 1.7e308, 0.1 + 0.2]
    for number in numbers:
        assert cells([number]) == [repr(number)]
    assert cells([*numbers, None, math.nan]) == [*map(repr, numbers), "", ""]
    column = Floats()
    column.extend([*numbers, None])
    assert list(column.texts()) == [*map(repr, numbers), ""]
