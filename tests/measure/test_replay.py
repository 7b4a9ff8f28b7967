"""Recorded times of calls, replayed on a fake device without real time: equal traces give bit-identical rows."""

import json
from pathlib import Path

import pytest

from kernelmark.bench.measure.sample import Series
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job
from support.plugins import FAKE
from support.shards import measure, rows, suite_file

#: The samples of `gemm/numpy.matmul` (`base`) and `gemm/scipy.sgemm` on gemm/m256n256k256/f32/NT, taken in turn on a
#: virtual machine with two CPUs, one thread, in seconds.
RECORDED = Path(__file__).with_name("sgemm_256.json")
SMALL = "copy/m3n5/f32"
BASE, OTHER = "copy/fake.base", "copy/fake.other"
GOLDEN = """\
status = 'ok'
time_s_median = 0.000296204
time_s_min = 0.000284356
time_s_mean = 0.0008748026911764706
time_s_std = 0.0021285687890383264
time_s_ci95_low = 0.000294753
time_s_ci95_high = 0.000297296
call_overhead_s = 1e-07
speedup = 0.9605986555090009
speedup_ci95_low = 0.9509058752041063
speedup_ci95_high = 0.9710862749337803
speedup_of_minima = 0.9661902685366233
stopped_by = 'interval'
interval = 'within-process'
outliers = 22
repeated = 0
disturbed = ''
attempt = 1
"""


@pytest.fixture
def set_trace(tmp_path, monkeypatch):
    """Return a function that sets the seconds of the calls of `base`, and of other kernels."""

    def to(base, **other):
        calls = {"base": base, **other.pop("calls", {})}
        (tmp_path / "trace.json").write_text(json.dumps({"calls": calls, **other}))
        monkeypatch.setenv("FAKE_TRACE", str(tmp_path / "trace.json"))

    return to


@pytest.fixture
def replay(set_trace):
    """Return a function that measures `base` with calls of these seconds, repeated in this order."""

    def of(*seconds, max_time_s=2.0, rel_ci=0.01, mode=Mode.HOT, **trace):
        set_trace(list(seconds), **trace)
        (row,) = run_job(Job((SMALL,), (BASE,), mode, (FAKE,), 0, Budget(max_time_s, rel_ci), 1))
        return row

    return of


def test_a_recorded_trace_gives_the_same_row_to_the_last_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRACE", str(RECORDED))
    db, suite = tmp_path / "r.db", suite_file(tmp_path, [3])
    first, second = (rows(db, measure(db, suite, kernels=(BASE, OTHER), max_time_s=2.0)) for _ in range(2))
    assert first == second
    (row,) = (row for row in first if (row["kernel"], row["dtype"]) == (OTHER, "f32"))
    assert "".join(f"{line.split()[0]} = {row[line.split()[0]]!r}\n" for line in GOLDEN.splitlines()) == GOLDEN
    assert len(row["samples"]) == 204


def test_the_samples_are_those_of_the_trace_in_their_order_after_the_warm_up(replay):
    recorded = [1e-3 + 1e-6 * i for i in range(3000)]
    samples = replay(*recorded, rel_ci=0.0).samples
    first, last = recorded.index(samples[0]), recorded.index(samples[-1])
    assert samples == sorted(samples)
    assert 2 * len(samples) < last - first < 3 * len(samples)  # one or two waking calls precede each
    warm_up_s = sum(recorded[:first])
    assert 10e-3 <= warm_up_s <= 2 * 10e-3 + 4e-3  # two blocks: the second was no faster


@pytest.mark.usefixtures("without_waking")
def test_a_steady_kernel_stops_by_its_interval_after_a_second_and_one_that_never_settles_by_time(replay):
    row = replay(10e-3)
    assert (row.stopped_by, set(row.samples)) == ("interval", {10e-3})
    assert 1.0 <= len(row.samples) * 10e-3 < 2.0
    row = replay(10e-3, 20e-3, max_time_s=3.0)
    assert row.stopped_by == "time"
    assert 3.0 <= sum(row.samples) < 3.0 + 0.1 + 2 * 20e-3  # the end is checked every 0.1 s
    row = replay(3600.0, max_time_s=0.1)
    assert (row.stopped_by, len(row.samples)) == ("time", 6)


@pytest.mark.usefixtures("without_waking")
def test_a_wider_interval_is_reached_with_fewer_samples(replay):
    noisy = [10e-3 * (1 + 0.02 * ((i * 7919) % 101) / 101) for i in range(101)]
    counts = [len(replay(*noisy, rel_ci=rel_ci, max_time_s=100.0).samples) for rel_ci in (0.02, 0.01, 0.005)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


def test_short_calls_are_batched_and_a_sample_is_their_mean(replay, monkeypatch):
    monkeypatch.setattr(Series, "_check_if_affordable", lambda *_: False)  # a check adds a waking call
    micros = [10, 12, 10, 14]
    row = replay(*(1e-6 * micro for micro in micros), max_time_s=0.2, rel_ci=0.0)
    assert row.samples == pytest.approx([11.5e-6] * len(row.samples))  # a batch has 20 calls, five traces


@pytest.mark.parametrize(
    ("refused", "taken", "reason"),
    [
        ({"resolution_s": 1e-3}, {"resolution_s": 5e-6}, "100 calls take 0.0002 s, the clock needs 0.02 s"),
        ({"empty_call_s": 2e-6}, {"empty_call_s": 1.9e-6}, "a call takes 2e-06 s, an empty one 2e-06 s"),
    ],
)
def test_a_call_too_short_for_the_clock_or_no_longer_than_an_empty_one_is_refused(replay, refused, taken, reason):
    row = replay(2e-6, **refused)
    assert (row.status, row.samples) == ("unsupported", [])
    assert row.reason == f"too short to be timed: {reason}; use a larger problem"
    row = replay(2e-6, max_time_s=0.01, **taken)
    assert (row.status, row.call_overhead_s) == ("ok", taken.get("empty_call_s", 1e-7))


def test_baselines_go_on_until_the_last_of_all_variants_is_known(set_trace):
    set_trace([2e-3], calls={"other": [1e-3, 2e-3]})
    job = Job((SMALL, "copy/m3n5/f64"), (BASE, OTHER), Mode.HOT, (FAKE,), 0, Budget(2.0), 1, BASE)
    rows = run_job(job.only([e for e in job.entrants if e != (SMALL, OTHER)]))
    assert [row.stopped_by for row in rows] == ["interval", "interval", "time"]
    assert len({len(row.samples) for row in rows}) == 1


@pytest.mark.long
def test_no_disturbance_that_was_recorded_is_dropped(replay):
    recorded = json.loads(RECORDED.read_text())["calls"]["base"]
    samples = replay(*recorded, rel_ci=0.0, max_time_s=20.0).samples
    assert len(samples) > 5 * len(recorded)
    assert set(samples) == set(recorded)
