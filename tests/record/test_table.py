"""The rows of a run in columns: the same values as one by one, and what does not grow with their number.

Cells of CSV are formed by column, and are what csv.writer writes of each row.
"""

import csv
import io
import math
import random
from array import array

import pytest

from kernelmark.bench.record.result import COLUMNS
from kernelmark.bench.record.table import Builder, Floats, cells
from kernelmark.bench.report.export import write_csv, write_table
from support.rows import begin, many, put, varied


def values_of(rows):
    return [tuple(getattr(r, name) for name in COLUMNS) for r in rows]


def test_a_table_has_the_values_of_every_row_and_its_dimensions(store):
    varied(store)
    table, found = store.table("r1"), list(store.results("r1"))
    assert values_of(table.rows) == values_of(r for r, _ in found)
    assert list(table.records()) == values_of(r for r, _ in found)
    assert list(table.dims) == [dims for _, dims in found]
    assert [r.case for r in table.rows] == [r.case for r, _ in found]


def test_rows_of_more_than_one_chunk_are_in_their_order(store, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.record.reader.CHUNK", 7)
    many(store, 40)
    assert values_of(store.table("r1").rows) == values_of(r for r, _ in store.results("r1"))


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 1), (1, 1, 2)])
def test_a_column_is_constant_only_if_it_is_so_in_every_row(store, sizes):
    begin(store)
    for i, size in enumerate(sizes):
        values = {"seed": size, "load": float(size), "clock_mhz": None if size == 1 else 1000.0}
        put(store, "copy/m1n1/f32", f"copy/some.k{i}", **values)
    assert values_of(store.table("r1").rows) == values_of(r for r, _ in store.results("r1"))


@pytest.mark.parametrize(("values", "kind"), [(256, "B"), (257, "H"), (65537, "I")])
def test_codes_take_the_bytes_that_their_values_need(values, kind):
    builder = Builder()
    rows = [(*("x" for _ in COLUMNS[:3]), str(i), *(None for _ in COLUMNS[4:]), "{}") for i in range(values)]
    builder.add(zip(*rows, strict=True))
    column = builder.table().columns[COLUMNS[3]]
    assert column.codes.typecode == kind
    assert list(column) == [str(i) for i in range(values)]


def test_a_run_without_rows_is_an_empty_table(store):
    begin(store)
    table = store.table("r1")
    assert (list(table.rows), list(table.records()), list(table.dims)) == ([], [], [])


def test_a_selection_holds_for_tables_too(store):
    from kernelmark.bench.record.selection import Selection

    varied(store)
    store.select(Selection(op=("conv",)))
    assert {r.op for r in store.table("r1").rows} == {"conv"}


def test_a_value_of_a_wrong_type_is_named_in_one_line(store, complaint):
    begin(store)
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    store._db.execute("UPDATE result SET time_s_min = 'soon'")
    line = complaint(lambda: store.table("r1"))
    assert line.startswith(f"{store.path}: cannot be read: Expected `float | null`, got `str` - at `$.time_s_min`; ")


def test_a_number_that_is_not_finite_is_empty_and_the_rows_around_it_are_whole(store):
    varied(store)
    before = [r.time_s_min for r in store.table("r1").rows]
    store._db.execute("UPDATE result SET time_s_min = 9e999 WHERE result_id = 3")
    assert [r.time_s_min for r in store.table("r1").rows] == [*before[:2], None, *before[3:]]
    out = io.StringIO()
    write_csv(store, "r1", out)
    assert [line["time_s_min"] for line in csv.DictReader(io.StringIO(out.getvalue()))][1:4] == [
        repr(before[1]), "", repr(before[3])
    ]  # fmt: skip


def test_a_table_of_some_columns_has_these_alone(store):
    varied(store)
    whole, narrow = store.table("r1"), store.table("r1", ("kernel", "time_s_median"))
    assert list(narrow.records()) == [(r.kernel, r.time_s_median) for r in whole.rows]


def test_the_samples_of_all_rows_stand_in_the_order_of_the_table(store):
    varied(store)
    found = [array("d", blob).tolist() for blob in store.sample_blobs("r1")]
    assert found == [store.samples("r1", r.case) if r.time_s_median else [] for r in store.table("r1").rows]


@pytest.mark.parametrize(
    "blob", ["x'00'", "x'000000000000f07f'", "x'000000000000f8ff'", "x'000000000000f0bf'", "'text'"]
)
def test_samples_that_are_no_seconds_are_one_line(store, complaint, blob):
    varied(store)
    store._db.execute(f"UPDATE result SET sample_blob = {blob} WHERE result_id = 3")
    assert complaint(lambda: list(store.sample_blobs("r1"))).startswith(f"{store.path}: cannot be read: ")


def test_rows_on_some_problems_are_those_and_no_others(store):
    varied(store)
    problems = {"gemm/m16n16k16/f32/NN", "gemm/m64n64k64/f32/NT"}
    wanted = [r for r, _ in store.results("r1") if r.problem in problems]
    assert list(store.results_on("r1", problems)) == wanted
    assert len(wanted) == 6


def test_the_csv_of_a_table_has_the_bytes_of_the_csv_of_its_run(store):
    varied(store)
    from_store, from_table = io.StringIO(), io.StringIO()
    write_csv(store, "r1", from_store)
    write_table(store.table("r1"), from_table)
    assert from_table.getvalue() == from_store.getvalue()


@pytest.fixture
def statements(store):
    """How many statements a call makes of the store."""

    def of(call):
        made = []
        store._db.set_trace_callback(made.append)
        try:
            call()
        finally:
            store._db.set_trace_callback(None)
        return len(made)

    return of


def test_a_table_takes_as_many_statements_for_few_rows_as_for_many(store, statements):
    many(store, 2000)
    assert statements(lambda: store.table("r1")) == 6


def by_writer(values):
    """What csv.writer writes of each value, next to another cell."""
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\r\n").writerows((value, "end") for value in values)
    return [line.removesuffix(",end") for line in lines.getvalue().split(",end\r\n")[:-1]]


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
def test_cells_are_those_of_the_writer_of_rows(values):
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
