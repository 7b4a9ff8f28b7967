"""Crossovers between kernels, transfers hidden by overlap, and the effect of noise on both."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.plan.sweep import Sweep
from kernelmark.bench.report import contest, crossover
from kernelmark.bench.report.figures.crossover import MARKS, crossover_maps
from kernelmark.bench.report.networks import overlap_table, overlaps
from kernelmark.bench.report.noise import marked, noise_of
from kernelmark.bench.report.run_data import RunData
from support.rows import BEYOND, DISTURBED, begin, put, result
from support.texts import csv_rows, text_of

SUITE = """
[[sweep]]
op = "conv"
dtype = "f32"
n = 1
c = 8
h = 16
w = 16
k = 8
axes = ["r", "s"]
points = [[1, 1], [5, 5], [3, 3]]
along = "r"
"""


@pytest.fixture
def suite(registry, tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    return load_suite(tmp_path / "mine.toml", registry)


@pytest.fixture
def measured(store, tmp_path):
    begin(store, suites=(str(tmp_path / "mine.toml"),))

    def of(kernel, r, samples, last="", w=16, **values):
        dims = {"n": 1, "c": 8, "h": 16, "w": w, "k": 8, "r": r, "s": r, "direction": "fprop"}
        dims["distribution"] = last or "uniform"
        problem = f"conv/n1c8h16w{w}k8r{r}s{r}/f32/nchw/fprop" + f"/{last}" * bool(last)
        columns = {"numerics": "fft" if "fft" in kernel else "fp32", **values}
        put(store, problem, kernel, dims=dims, taken=samples, **columns)

    return of


@pytest.fixture
def drawn(store, registry):
    """Return the run's figure: its caption, the places of lines, and the number of marks of each kind."""

    def draw():
        (figure,) = crossover_maps(RunData(store, "r1"), registry).figures
        lines = figure.draw().axes[0].lines
        marks = {look.marker: outline for outline, look in MARKS.items()}
        counts: Counter[str] = Counter()
        for line in (line for line in lines if line.get_marker() in marks):
            kind = "hollow" if line.get_markerfacecolor() == "none" else marks[line.get_marker()]
            counts[kind] += len(line.get_xdata())
        return figure.caption, {line.get_xdata()[0] for line in lines if line.get_marker() == "None"}, +counts

    return draw


@pytest.fixture
def crossing(measured):
    """Direct convolution wins up to 3x3, FFT from 5x5."""
    for r, direct in ((1, 1.0), (3, 2.0), (5, 8.0)):
        measured("conv/a.direct", r, [direct, direct * 1.01] * 20)
        measured("conv/a.fft", r, [4.0, 4.04] * 20)


def test_kernels_are_ranked_by_rounds_and_the_winner_changes_between_neighbours_in_size(suite, store, crossing):
    contests = crossover.standings(suite, store, "r1")
    first, last, _ = contests  # in the order of the file
    assert [r.kernel for r in first.ranked] == ["conv/a.direct", "conv/a.fft"]
    assert first.lead[:3] == pytest.approx((4.0, 4.0, 4.0))
    assert crossover.fft_speedup(last).median == pytest.approx(2.0)
    assert crossover.fft_speedup(first).median == pytest.approx(0.25)
    (change,) = crossover.changes(suite, contests)
    assert (change.gain_before.median, change.gain.median) == pytest.approx((2.0, 2.0))
    text = crossover.render(suite, contests)
    assert text.startswith("Some CPU, 2 threads, cold, fp32\n")
    assert "  r 3 to 5: a.direct, ahead 2x [2, 2], gives way to a.fft, ahead 2x [2, 2] (conv/n1c8" in text
    assert text.endswith("mine: 3 of 3 problems timed")
    rows = csv_rows(text_of(lambda out: crossover.write_csv(suite, "r1", contests, out)))
    assert tuple(rows[0]) == crossover.COLUMNS
    (five,) = (row for row in rows if row["previous"])
    three, problem = (f"conv/n1c8h16w16k8r{r}s{r}/f32/nchw/fprop" for r in (3, 5))
    found = [five[name] for name in ("along", "from", "problem", "previous")]
    assert found == ["r", three, problem, "conv/a.direct"]
    assert float(five["gain"]) == pytest.approx(2.0)


def test_a_problem_has_a_row_for_each_axis_along_which_a_kernel_takes_over_there(registry, store, measured, tmp_path):
    other = SUITE.partition("axes")[0].replace("w = 16", "w = [8, 16]") + "r = 5\ns = 5\n"
    (tmp_path / "two.toml").write_text(SUITE + SUITE + other)
    for r, w, direct in ((1, 16, 1.0), (3, 16, 2.0), (5, 8, 2.0), (5, 16, 8.0)):
        measured("conv/a.direct", r, [direct, direct * 1.01] * 20, w=w)
        measured("conv/a.fft", r, [4.0, 4.04] * 20, w=w)
    suite = load_suite(tmp_path / "two.toml", registry)
    contests = crossover.standings(suite, store, "r1")
    rows = csv_rows(text_of(lambda out: crossover.write_csv(suite, "r1", contests, out)))
    assert [row["along"] for row in rows if row["problem"].startswith("conv/n1c8h16w16k8r5")] == ["r", "w"]
    assert len(rows) == len(contests) + 1


#: Samples that, round by round, are not certainly faster or slower than the same samples in reverse order.
NOISE = [0.7, 1.4, 0.9, 1.3, 0.8, 1.2] * 6


@pytest.mark.parametrize(
    ("direct", "spans", "lines"),
    [
        ({1: 0.5, 3: 0.5, 5: 4.0}, [("r", 3, 5)], {1.5}),  # certain on both sides
        ({1: 0.5, 3: None, 5: 4.0}, [("r", 1, 5)], {0.5, 1.5}),  # a tie between them
        ({1: None, 3: None, 5: 4.0}, [], set()),  # a tie before
        ({1: 0.5, 3: None, 5: None}, [], set()),  # a tie after
    ],
)
def test_a_kernel_takes_over_where_it_is_certain_on_both_sides_also_in_the_figure(
    suite, store, measured, drawn, direct, spans, lines
):
    for r, factor in direct.items():
        measured("conv/a.direct", r, [factor] * 36 if factor else NOISE)
        measured("conv/a.fft", r, [1.0] * 36 if factor else NOISE[::-1])
    contests = crossover.standings(suite, store, "r1")
    assert [change[:3] for change in crossover.changes(suite, contests)] == spans
    assert ("no takeover along r is certain" in crossover.render(suite, contests)) is (spans == [])
    assert not any("ahead 0." in line for line in crossover.render(suite, contests).splitlines())
    caption, at, marks = drawn()
    words = [f"Certain takeovers along r: {here} to {there}, a.direct gives way to a.fft." for _, here, there in spans]
    assert (words or ["No takeover along r is certain."])[0] in caption
    ties = list(direct.values()).count(None)
    assert (at, marks) == (lines, +Counter(wins=3 - ties, ties=2 * ties))


def test_a_figure_marks_noise_and_finds_no_takeover_in_problems_that_no_suite_sweeps(suite, measured, drawn, tmp_path):
    (tmp_path / "mine.toml").unlink()
    for r, direct in ((1, 1.0), (3, 2.0), (5, 8.0)):
        measured("conv/a.direct", r, [direct] * 40, disturbed=DISTURBED)
        measured("conv/a.fft", r, [4.0] * 40)
    caption, at, marks = drawn()
    assert "No suite of the run sweeps these problems, so takeovers are not determined." in caption
    assert (at, marks) == (set(), {"hollow": 2, "wins": 1})


def test_distributions_of_operands_are_figures_and_sizes_that_share_the_axis_are_labelled_by_all_that_differs(
    store, registry, measured
):
    for kernel in ("conv/a.direct", "conv/a.fft"):
        for r, w in ((1, 16), (3, 16), (3, 24)):
            measured(kernel, r, [1.0, 1.01] * 20, w=w)
        for r in (1, 3, 5):
            measured(kernel, r, [1.0, 1.01] * 20, "zeros")
    figures = crossover_maps(RunData(store, "r1"), registry).figures
    assert {
        figure.name.rpartition("zeros")[1]: [label.get_text() for label in figure.draw().axes[0].get_xticklabels()]
        for figure in figures
    } == {"": ["r1 s1 w16", "r3 s3 w16", "r3 s3 w24"], "zeros": ["1x1", "3x3", "5x5"]}


def test_samples_in_turn_decide_which_of_two_kernels_leads_and_no_lead_is_below_one(suite, store, measured):
    """The recorded medians rank the two kernels the other way round than their samples do."""
    measured("conv/a.direct", 1, [1.0] * 40, time_s_median=0.9)
    measured("conv/a.other", 1, [0.5] * 40, time_s_median=1.0)
    (contest,) = crossover.standings(suite, store, "r1")
    assert contest.fastest.kernel == "conv/a.other"
    assert contest.lead.median == pytest.approx(2.0)


def test_a_noisy_winner_is_marked_and_counted_below_the_table(suite, store, measured):
    measured("conv/a.direct", 1, [1.0] * 8, disturbed="other processes used 0.98 CPUs during 40 % of the sampling")
    measured("conv/a.fft", 1, [2.0] * 8)
    text = crossover.render(suite, crossover.standings(suite, store, "r1"))
    assert "  ~1.00 s  " in text
    assert "\n  ~ NOISY: 1 of 2 cases was disturbed (other processes used 0.98 CPUs)\n" in text


def test_rows_that_failed_and_rows_of_other_suites_stand_nowhere(suite, store, measured, complaint):
    measured("conv/a.direct", 7, [1.0] * 8)
    measured("conv/a.direct", 1, [1.0] * 8, status="oom", time_s_median=None)
    assert crossover.standings(suite, store, "r1") == []
    assert crossover.render(suite, []) == "mine: this run has no time for any problem of the suite"
    assert complaint(lambda: crossover.find_run(suite, store, None)).startswith("mine: no run in ")


def test_the_latest_run_with_a_time_is_taken_and_one_that_is_missing_is_said(suite, store, crossing, complaint):
    begin(store, "r2", suites=("other",))
    assert crossover.find_run(suite, store, None) == "r1"
    assert crossover.find_run(suite, store, "r2") == "r2"
    assert "is not a run" in complaint(lambda: crossover.find_run(suite, store, "r3"))


def test_the_ratio_of_two_rows_is_formed_once_however_often_it_is_asked_for(crossing, suite, store, monkeypatch):
    formed, faster = [], contest.faster

    def form(reader, first, second, *pair):
        formed.append([first.case, second.case])
        return faster(reader, first, second, *pair)

    monkeypatch.setattr(contest, "faster", form)
    contests = crossover.standings(suite, store, "r1")
    crossover.render(suite, contests)
    text_of(lambda out: crossover.write_csv(suite, "r1", contests, out))
    assert len(formed) == len(set(map(tuple, formed))) == 5


def test_a_suite_that_is_listed_makes_its_problems_once(crossing, suite, store, monkeypatch):
    made, whole = [], crossover.listed(suite)
    monkeypatch.setattr(Sweep, "groups", lambda sweep: made.append(sweep))
    assert [entry.problem for entry in whole.entries()] == [entry.problem for entry in whole.entries()]
    contests = crossover.standings(whole, store, "r1")
    assert crossover.render(whole, contests).endswith("3 of 3 problems timed")
    assert made == []


def test_a_suite_of_more_problems_than_can_be_gone_through_is_refused_before_one_is_made(registry, tmp_path, complaint):
    path = tmp_path / "vast.toml"
    sweep = 'op = "copy"\ndtype = "f32"\nn = 3\nm = {linear = [1, 200001, 1]}'
    path.write_text(f'title = "T"\nsource = "S"\n[[sweep]]\n{sweep}\n')
    line = complaint(lambda: crossover.listed(load_suite(path, registry)))
    assert line.startswith("vast: has 200,001 problems, expected at most 200,000; ")


ON_HOST, ON_GPU, WITHIN = (f"transfer/n1000/f32/{way}/work64" for way in ("h2h", "h2d", "d2d"))
ROUNDS = (1.0, 1.1, 0.9, 1.0) * 6


@pytest.fixture
def add(begun):
    def record(kernel, seconds, problem=ON_HOST, work=64, job="one", taken=ROUNDS, **values):
        dims = {"n": 1000, "direction": problem.split("/")[3], "node": "", "work": work}
        taken = [seconds * factor for factor in taken]
        provider = kernel.partition(".")[0]
        put(begun, problem, f"transfer/{kernel}", dims=dims, taken=taken, job=job, provider=provider, **values)

    return record


@pytest.fixture
def three(add):
    def record(arrived=8.0, staged=8.5, **values):
        for name, seconds in (("serial", 10.0), ("arrived", arrived), ("staged", staged)):
            add(f"numba.{name}", seconds, **values)

    return record


def shares(store):
    return {each.row.kernel.partition("/")[2]: each.share for each in overlaps(store, store.results("r1"))}


@pytest.mark.parametrize(
    ("arrived", "staged", "taken", "share"),
    [(8.0, 8.5, ROUNDS[:7], 0.75), (2.0, 9.0, ROUNDS, 0.5), (8.0, 12.0, ROUNDS, -1.0)],
    ids=["few rounds are taken one by one", "work may be the shorter", "both at once may take longer"],
)
def test_the_overlap_is_what_is_saved_over_the_shorter_of_transfer_and_work(
    store, three, arrived, staged, taken, share
):
    three(arrived, staged, taken=taken)
    assert shares(store)["numba.staged"].median == pytest.approx(share)


def test_on_a_gpu_the_work_alone_is_that_of_the_transfer_within_it(store, add):
    add("cuda.serial", 3.0, ON_GPU)
    add("cuda.overlapped", 2.0, ON_GPU)
    add("cuda.arrived", 2.0, WITHIN)
    assert shares(store)["cuda.overlapped"].median == pytest.approx(1.0)


@pytest.mark.parametrize(
    "apart", [{"job": "other"}, {"work": 16}, {"mode": "hot"}, {"taken": ROUNDS[:5]}, {"disturbed": BEYOND}]
)
def test_rows_that_were_not_measured_in_turn_have_no_overlap(store, add, apart):
    add("numba.serial", 10.0)
    add("numba.arrived", 8.0)
    add("numba.staged", 8.5, **apart)
    assert shares(store) == {}
    assert overlap_table(store, store.results("r1")).startswith("no overlap: ")


@pytest.mark.parametrize(
    ("arrived", "staged", "cells"),
    [
        (8.0, 8.5, ["0.75 [0.75, 0.75]", "8.50 s", "10.0 s", "8.00 s"]),
        (10.0, 9.0, ["inf", "9.00 s", "10.0 s", "10.0 s"]),
    ],
    ids=["what slows a round slows all three", "a transfer that took no time leaves the end open"],
)
def test_the_table_has_the_share_with_its_interval_and_all_three_times(store, three, arrived, staged, cells):
    three(arrived, staged)
    row = overlap_table(store, store.results("r1")).splitlines()[-1].split("  ")
    assert [cell.strip() for cell in row if cell.strip()] == [ON_HOST, "numba.staged", *cells]


@pytest.mark.parametrize(
    ("disturbed", "noisy"),
    [
        (DISTURBED, True),
        ("other processes used 0.98 CPUs during 9 % of the sampling", False),
        ("other processes used 0.2 CPUs during 3 % of the sampling; quota during 10 % of the sampling", True),
        ("measured alone, since with other kernels the worker was lost (signal 9)", False),
        ("", False),
    ],
)
def test_a_row_is_noisy_if_it_has_a_time_and_was_disturbed_during_a_tenth_of_its_sampling(disturbed, noisy):
    row = result(time_s_median=1e-3, disturbed=disturbed)
    assert marked("1 ms", row) == ("~1 ms" if noisy else "1 ms")
    assert noise_of([result(disturbed=disturbed)]) == (0, 0, "")


def test_the_sentence_counts_noisy_cases_and_names_the_longest_cause():
    causes = ("the hypervisor took 5 % of the time during 20 % of the sampling", DISTURBED, "")
    rows = [result(time_s_median=1e-3, disturbed=cause) for cause in causes]
    noise = noise_of(rows)
    assert noise.badge == "noisy"
    assert noise.sentence == "NOISY: 2 of 3 cases were disturbed (other processes used 0.98 CPUs)"
    assert (noise_of(rows[2:]).badge, noise_of(rows[2:]).sentence) == ("clean", "")


@pytest.mark.long
def test_planted_noise_shows_on_the_terminal_the_page_in_latex_and_in_csv(kernelmark, tmp_path):
    words = ("run", "gemm/m256n256k256/f32/NT", "--kernels", "gemm/numpy.matmul", "--kernels", "gemm/numpy.tnn")
    options = ("--mode", "hot", "--max-time", "0.1", "--no-ceilings", "--fail-noisy", "--csv", "rows.csv")
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cpu_count())]
    try:
        done = kernelmark(*words, *options, "--report", "page")
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert done.returncode == 1, done.stderr
    rows = [row for row in csv_rows(tmp_path / "rows.csv") if was_noisy(row["disturbed"])]
    noisy = {row["kernel"].removeprefix("gemm/"): row["disturbed"] for row in rows}
    # One row may have had its CPUs to itself.
    assert any("other processes used" in disturbed for disturbed in noisy.values())
    assert f"NOISY: {len(noisy)} of " in done.stdout
    assert set(re.findall(r"(numpy\.\w+) +~", done.stdout)) == set(noisy)
    page = (tmp_path / "page" / "index.html").read_text()
    assert 'class="badge noisy"' in page
    latex = "".join(path.read_text() for path in (tmp_path / "page" / "tables").rglob("*.tex"))
    assert r"$\sim$" in latex
    assert "disturbed" in latex
