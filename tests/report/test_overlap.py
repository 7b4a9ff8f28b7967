"""What an overlapped transfer hides, from samples that were taken in turn."""

import pytest

from kernelmark.bench.report.networks import overlap_table, overlaps
from support.rows import DISTURBED, put

ON_HOST, ON_GPU, WITHIN = (f"transfer/n1000/f32/{way}/work64" for way in ("h2h", "h2d", "d2d"))
ROUNDS = (1.0, 1.1, 0.9, 1.0) * 6


@pytest.fixture
def add(begun):
    """Records a row of rounds that the machine slowed and sped up alike: `add(kernel, seconds, ...)`."""

    def record(kernel, seconds, problem=ON_HOST, work=64, job="one", taken=ROUNDS, **values):
        dims = {"n": 1000, "direction": problem.split("/")[3], "node": "", "work": work}
        taken = [seconds * factor for factor in taken]
        provider = kernel.partition(".")[0]
        put(begun, problem, f"transfer/{kernel}", dims=dims, taken=taken, job=job, provider=provider, **values)

    return record


@pytest.fixture
def three(add):
    """Records an overlapped transfer and both that it is set against."""

    def record(arrived=8.0, staged=8.5, **values):
        for name, seconds in (("serial", 10.0), ("arrived", arrived), ("staged", staged)):
            add(f"numba.{name}", seconds, **values)

    return record


def found(store):
    return {each.row.kernel.partition("/")[2]: each.share for each in overlaps(store, store.results("r1"))}


def test_the_overlap_is_what_is_saved_over_the_shorter_of_transfer_and_work(store, three):
    three()
    (share,) = found(store).values()
    assert share.median == pytest.approx(0.75)
    assert share.low == pytest.approx(0.75), "what slows a round slows all three"
    assert share.high == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("arrived", "staged", "taken", "share"),
    [(8.0, 8.5, ROUNDS[:7], 0.75), (2.0, 9.0, ROUNDS, 0.5), (8.0, 12.0, ROUNDS, -1.0)],
    ids=["few rounds are taken one by one", "work may be the shorter", "both at once may take longer"],
)
def test_the_share_holds_for_any_rounds_and_whichever_is_the_shorter(store, three, arrived, staged, taken, share):
    three(arrived, staged, taken=taken)
    assert found(store)["numba.staged"].median == pytest.approx(share)


def test_on_a_gpu_the_work_alone_is_that_of_the_transfer_within_it(store, add):
    add("cuda.serial", 3.0, ON_GPU)
    add("cuda.overlapped", 2.0, ON_GPU)
    add("cuda.arrived", 2.0, WITHIN)
    assert found(store)["cuda.overlapped"].median == pytest.approx(1.0)


@pytest.mark.parametrize("apart", [{"job": "other"}, {"work": 16}, {"mode": "hot"}, {"taken": ROUNDS[:5]}])
def test_rows_that_were_not_measured_in_turn_have_no_overlap(store, add, apart):
    add("numba.serial", 10.0)
    add("numba.arrived", 8.0)
    add("numba.staged", 8.5, **apart)
    assert found(store) == {}
    assert overlap_table(store, store.results("r1")).startswith("no overlap: ")


def test_a_round_in_which_the_transfer_took_no_time_leaves_the_end_open(store, three):
    three(10.0, 9.0)
    table = overlap_table(store, store.results("r1"))
    assert "inf" in table
    assert "[" not in table.splitlines()[-1]


def test_the_table_names_all_three_times(store, three):
    three()
    row = overlap_table(store, store.results("r1")).splitlines()[-1].split("  ")
    assert [cell.strip() for cell in row if cell.strip()] == [
        *(ON_HOST, "numba.staged", "0.75 [0.75, 0.75]", "8.50 s", "10.0 s", "8.00 s"),
    ]


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_no_line_is_wider_than_the_terminal(store, three, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    none = overlap_table(store, store.results("r1"))
    three(disturbed=DISTURBED)
    some = overlap_table(store, store.results("r1"))
    assert [line for line in f"{none}\n{some}".splitlines() if len(line) > int(columns)] == []
    assert "NOISY" in some
