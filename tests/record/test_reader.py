"""What is read of a store: runs, rows in groups, totals, cases."""

import msgspec
import pytest

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.record.store import Layer, Store
from support.rows import RUN, result


def test_a_case_is_found_by_a_part_of_its_name_and_by_the_whole_though_others_contain_it(begun):
    for kernel, threads in (("gemm/a.b", 1), ("gemm/a.b", 12), ("gemm/a.c", 1)):
        begun.add(result(kernel=kernel, threads=threads), {"m": threads}, [], None)
    assert begun.find_cases("r1", "a.c", 9) == ["gemm/a.c gemm/m8n8k8/f32/NT cold t1"]
    assert begun.find_cases("r1", result().case, 9) == [result().case]
    assert len(begun.find_cases("r1", "a.b", 9)) == 2
    assert len(begun.find_cases("r1", "gemm", 2)) == 2
    assert begun.find_cases("r2", "a.c", 9) == begun.find_cases("r1", "%", 9) == []
    assert begun.result("r1", result(threads=12).case) == (result(threads=12), {"m": 12})


def test_dimensions_are_those_of_all_operations_each_once(begun):
    begun.add(result(), {"m": 1, "n": 2, "k": 3}, [], None)
    begun.add(result(op="transpose", kernel="transpose/a.b"), {"m": 1, "n": 2, "place": "in"}, [], None)
    assert begun.dimensions("r1") == ["m", "n", "k", "place"]


NAMED = (("20260101-a", "base2"), ("20260102-b", "base"), ("20260103-c", ""))


def begin_named(store):
    for run_id, name in NAMED:
        store.begin(msgspec.structs.replace(RUN, run_id=run_id, name=name))


@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, "c"), ("20260103", "c"), ("20260102-b", "b"), ("base", "b"), ("base2", "a"), ("r", "1")],
)
def test_a_run_is_found_by_its_name_its_id_or_what_a_single_one_begins_with_and_the_latest_without(begun, asked, found):
    begin_named(begun)
    assert begun.find_run(asked)["run_id"][-1] == found


def test_two_runs_of_one_name_are_refused_and_the_second_leaves_nothing(begun, complaint):
    begun.begin(msgspec.structs.replace(RUN, run_id="r2", name="base"))
    line = complaint(lambda: begun.begin(msgspec.structs.replace(RUN, run_id="r3", name="base")))
    assert line.startswith("--name base: run r2 has this name; ")
    assert begun.run_ids() == ["r1", "r2"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("zzz", "is not a run"),
        ("%", "is not a run"),
        ("_1", "is not a run"),
        ("", "is not a run"),
        ("2026", "begins more than one run"),
        ("bas", "begins more than one run"),
    ],
)
def test_an_unknown_run_is_one_line_with_the_latest_ids(begun, complaint, asked, found):
    begin_named(begun)
    latest = "20260103-c, 20260102-b, 20260101-a"
    assert (
        complaint(lambda: begun.find_run(asked)) == f"run {asked!r}: {found} of {begun.path}; the latest are {latest}"
    )


def test_a_store_without_a_run_says_how_to_make_one(store, complaint):
    assert complaint(lambda: store.find_run(None)).endswith("holds no run yet; `kernelmark run SUITE` makes one")
    assert "none" in complaint(lambda: store.find_run("r1"))


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
    begun.add(result(kernel="gemm/a.c"), {}, [1.0, 2.0, 3.0], None, [ProcessPart(1, 1.0), ProcessPart(2, 2.5)])
    begun.add(result(), {}, [], None)
    assert [(row.kernel, list(row.medians)) for row in begun.cases("r1")] == [
        ("gemm/a.b", []),
        ("gemm/a.c", [1.0, 2.5]),
    ]
    assert begun.parts("r1", result(kernel="gemm/a.c").case) == [ProcessPart(1, 1.0), ProcessPart(2, 2.5)]


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
    content[98304:] = b"\xff" * (len(content) - 98304)  # the pages before hold the names of the tables
    begun.path.write_bytes(content)
    broken = Store(begun.path)
    assert complaint(lambda: list(broken.results("r1"))).startswith(f"{begun.path}: cannot be read: ")
    broken.close()
