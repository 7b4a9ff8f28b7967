"""Tuning: measuring, adopting, storing and resuming; its report, and the command."""

import json
import re

import pytest

from kernelmark.bench.cli.tune import _carry_out
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.versions import VersionRatio
from kernelmark.bench.report import contest, findings, founding
from kernelmark.bench.report import tuning as report
from kernelmark.bench.report.figures import tunables
from kernelmark.bench.report.format import factor
from kernelmark.bench.report.page import write_report
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.runs import summaries
from kernelmark.bench.run.session import plan_of
from kernelmark.bench.tune.static import arch_here
from kernelmark.bench.tune.tuned import opened, tiles_in
from kernelmark.bench.tune.tuning import AT_ONCE, CANDIDATES, DefaultFailed, Interrupted, log_adopted, progress
from support.plugins import COUNTED
from support.processes import complaints
from support.rows import BEYOND, PLAN, begin, put

WORK = (4, 1, 2, 3, 5, 6, 7, 8)  # of the plug-in counted.py


def rows(tuned, run_id):
    return {row.kernel: row for row, _ in tuned.store.results(run_id)}


def learned_of(tuned, tuning):
    (search,) = report.searches(RunData(tuned.store, tuning.session.run_id))
    return search


def test_every_tile_is_a_row_of_a_run_every_job_has_the_default_and_values_are_counted_and_ranked(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    others = {f"copy/mine.counted@WORK={work}" for work in WORK[1:]}
    assert set(rows(tuned, tuning.session.run_id)) == {"copy/mine.counted", *others}
    assert all(job.kernels[0] == job.baseline == "copy/mine.counted" for job in tuned.jobs)
    assert all(len(job.kernels) <= 1 + AT_ONCE for job in tuned.jobs)
    search = learned_of(tuned, tuning)
    assert report.space_words(search) == "8 tiles, 8 valid; 8 tiles measured: 8 ok; 1 of 8 within 5 % of the best"
    lines = report.searched_words(search).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("WORK")] == list("12345678")
    text = findings.verdict(RunData(tuned.store, tuning.session.run_id))
    assert text.startswith("copy/mine.counted on copy/m64n1024/f32: undecided, not yet compared with the default; ")
    assert "in the search WORK=1 was fastest, " in text


def test_the_tile_with_the_least_work_is_adopted_and_logged_and_plans_describe_search_and_race(tuned):
    tuning, (verdict,) = tuned.all("counted")
    assert verdict.raced.decision.best == "WORK=1"
    assert set(verdict.raced.rows) == {"WORK=1", "WORK=2", "WORK=3"}
    entry = verdict.entry
    assert (entry.kernel, entry.tile, entry.default) == ("copy/mine.counted", "WORK=1", "WORK=4")
    assert 1 < entry.low < entry.ratio < entry.high
    assert (entry.processes, entry.threads, entry.mode) == (3, 1, "hot")
    assert entry.run == verdict.default.run_id != tuning.session.run_id
    search, race = (run["plan"]["tunes"] for run in tuned.store.runs())
    assert (search["kernel"], search["how"], search["search"]) == ("copy/mine.counted", "exhaustive", "")
    space = {"problem": "copy/m64n1024/f32", "size": 8, "valid": 8, "exact": True, "listed": 8, "default": "WORK=4"}
    assert search["spaces"] == [space]
    assert (race["search"], race["raced"]) == (tuning.session.run_id, ["WORK=1", "WORK=2", "WORK=3"])
    log_adopted(tuned.store, verdict)
    (adopted,) = tuned.store.versions("copy/mine.counted", "copy/m64n1024/f32")
    assert (adopted.version.by, adopted.version.tile, adopted.version.verdict) == ("tune", "WORK=1", "PASS, adopted")
    assert (adopted.version.run, adopted.version.processes) == (verdict.default.run_id, 3)
    assert adopted.version.compared == (VersionRatio(entry.ratio, entry.low, entry.high, "copy/mine.counted"),)
    assert b"def declare(" in adopted.sources["counted.py"]


def test_the_race_takes_fresh_samples_for_ten_times_as_long_in_one_job_per_process(tuned):
    _, (verdict,) = tuned.all("counted")
    raced = ("copy/mine.counted", *(row.kernel for row in verdict.raced.rows.values()))
    assert [(job.kernels, job.budget.max_time_s) for job in tuned.jobs[-3:]] == [(raced, 0.04)] * 3
    assert {job.budget.max_time_s for job in tuned.jobs[:-3]} == {0.004}
    assert len(verdict.raced.rows) == CANDIDATES


def test_both_runs_are_named_after_the_kernel_and_a_second_tuning_begins_anew(tuned):
    tuned.all("counted")
    tuned.all("counted")
    names = [run.name for run in summaries(tuned.store)]
    assert names == ["race-mine.counted-2", "tune-mine.counted-2", "race-mine.counted-1", "tune-mine.counted-1"]


def test_a_tile_that_fails_is_a_row_and_is_not_raced(tuned):
    tuning, (verdict,) = tuned.all("failing")
    tiles = rows(tuned, tuning.session.run_id)
    assert {tiles[f"copy/mine.failing@WORK={work}"].status for work in (2, 3)} == {"failed"}
    assert set(verdict.raced.rows).isdisjoint({"WORK=2", "WORK=3"})
    assert verdict.raced.decision.best == "WORK=1"
    assert "6 ok, 2 failed" in report.space_words(learned_of(tuned, tuning))


def test_a_default_that_is_wrong_ends_the_tuning_before_any_tile_and_the_run_is_not_resumed(tuned):
    tuning = tuned.begin("wrong")
    with pytest.raises(DefaultFailed, match=r"copy/mine.wrong on copy/m64n1024/f32: is wrong with its default tile: b"):
        tuning.search()
    assert [job.kernels for job in tuned.jobs] == [("copy/mine.wrong",)]
    assert tuned.begin("wrong").session.run_id != tuning.session.run_id


def test_an_interrupted_search_keeps_its_rows_and_is_resumed(tuned):
    tuning = tuned.begin("counted")
    tuned.stop_after = 2
    with pytest.raises(Interrupted):
        tuning.search()
    before = rows(tuned, tuning.session.run_id)
    assert len(before) == 1 + AT_ONCE
    tuned.stop_after = 10**6
    again = tuned.begin("counted")
    again.search()
    assert again.session.run_id == tuning.session.run_id
    assert [len(job.kernels) for job in tuned.jobs] == [1 + len(WORK) - 1 - AT_ONCE]
    now = rows(tuned, tuning.session.run_id)
    assert len(now) == len(WORK)
    assert {name: now[name] for name in before} == before


def test_an_interrupted_race_is_resumed(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    tuned.jobs.clear()
    tuned.stop_after = 1
    with pytest.raises(Interrupted):
        tuned.race(tuning)
    tuned.stop_after = 10**6
    again, (verdict,) = tuned.all("counted")
    assert again.session.run_id == tuning.session.run_id
    assert len(tuned.jobs) == 2
    assert verdict.default.processes == 3
    assert [run.name for run in summaries(tuned.store)] == ["race-mine.counted-1", "tune-mine.counted-1"]


def test_another_plan_begins_another_run(tuned):
    others = [{"seed": 1}, {"threads": (2,)}, {"max_time_s": 0.005}, {"strategy": "random", "budget": 3}]
    assert len({tuned.begin("counted", **other).session.run_id for other in [{}, *others]}) == 5


def test_a_slower_tile_races_the_default_which_stays_and_is_not_logged(tuned):
    _, (verdict,) = tuned.all("counted@WORK=8")
    assert set(verdict.raced.rows) == {"WORK=8"}
    assert verdict.default.kernel == "copy/mine.counted"
    assert verdict.raced.decision.best is None
    assert verdict.raced.decision.ratios["WORK=8"].high < 1
    log_adopted(tuned.store, verdict)
    assert list(tuned.store._rows("SELECT kernel FROM version")) == []


def test_a_run_of_a_tuning_is_not_resumed_as_one_of_suites(tuned, complaint):
    run_id = tuned.begin("counted").session.run_id
    refusal = f"--resume {run_id}: is a run of `kernelmark tune`; the command that began the tuning continues it"
    assert complaint(lambda: plan_of(tuned.store, run_id)) == refusal


def test_words_name_the_best_tile_and_those_that_cannot_be_distinguished_from_a_default_that_stays(tuned):
    tuning, (verdict,) = tuned.all("counted")
    undecided = verdict.raced.decision._replace(best=None, tied=["WORK=2"])
    sentence = report.sentence(verdict.raced._replace(decision=undecided))
    assert "the default (WORK=4) stays, as none of 3 tiles is certainly faster over 3 processes" in sentence
    assert sentence.endswith("; it cannot be distinguished from WORK=2")
    assert progress(tuning.screens[0]).startswith("8 of 8 tiles, best so far WORK=1: ")


@pytest.fixture
def two(tmp_path):
    (tmp_path / "two.toml").write_text("[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 1024\nm = [32, 64]\n")
    return str(tmp_path / "two.toml")


@pytest.mark.parametrize("max_time", [0.004, 0.04], ids=["search", "race"])
def test_a_problem_whose_default_fails_is_skipped_and_the_others_are_tuned(tuned, two, tmp_path, capsys, max_time):
    tuned.hangs = ("copy/m32n1024/f32", max_time)
    tuning, file = tuned.begin("counted", two), opened(str(tmp_path / "tuned.json"), "cpu")
    with pytest.raises(SystemExit, match="1"):
        _carry_out(tuning, file)
    assert [tile.problem for tile in tiles_in(file)] == ["copy/m64n1024/f32"]
    (line,) = complaints(capsys.readouterr().err)
    reason = "is timeout with its default tile: a call took longer than 1 s; this problem was skipped"
    assert line == f"kernelmark: copy/mine.counted on copy/m32n1024/f32: {reason}"
    assert tuned.begin("counted", two).session.run_id != tuning.session.run_id


def test_a_default_that_fails_in_the_race_ends_the_tuning_and_the_same_command_begins_anew(tuned):
    tuned.hangs = ("copy/m64n1024/f32", 0.04)
    with pytest.raises(DefaultFailed, match="nothing was tuned"):
        tuned.all("counted")
    tuned.hangs = None
    assert tuned.all("counted")[1][0].adopted


def test_there_is_no_tile_for_all_if_no_tile_was_timed_on_every_problem(tuned, two):
    tuning = tuned.begin("counted", two)
    tuning.search()
    for screen, work in zip(tuning.screens, (1, 2), strict=True):
        screen.trials = {(work,): 1.0}
    assert tuning.overall is None


def test_over_a_suite_each_problem_has_a_verdict_and_one_tile_is_best_for_all(tuned, two):
    tuning, verdicts = tuned.all("counted", two)
    problems = ["copy/m32n1024/f32", "copy/m64n1024/f32"]
    assert [verdict.subject.problem.id for verdict in verdicts] == problems
    assert tuning.overall == (1,)
    raced = [verdict.raced for verdict in verdicts]
    assert all("WORK=1" in each.rows for each in raced)
    assert report.overall_words(raced).startswith("one tile for all: WORK=1, ")
    assert "slower than the best of a problem" in report.overall_words(raced)
    assert [line.split()[0] for line in report.over_suite(raced).splitlines()[2:]] == problems
    data = RunData(tuned.store, verdicts[0].default.run_id)
    assert findings.verdict(data) == (
        "copy/mine.counted: a tile is certainly faster than the default on 2 of 2 problems; "
        "`kernelmark run SUITE --tuned auto` uses them"
    )
    assert findings.numbers(data)[0].label == "speed of the one tile for all over the default (geometric mean)"
    assert len(tunables.tunables(data).figures) == 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"status": "crashed"}, "crashed"),
        ({"job": "alone"}, "not measured in turn"),
        ({"disturbed": BEYOND}, contest.BEYOND),
    ],
)
def test_a_problem_without_a_ratio_of_the_tile_for_all_is_left_out_of_the_mean(tuned, two, changed, why):
    _, (verdict, other) = tuned.all("counted", two)
    run_id, case = verdict.default.run_id, verdict.raced.rows["WORK=1"].case
    ((column, value),) = changed.items()
    tuned.store._db.execute(f'UPDATE result SET {column} = ? WHERE run_id = ? AND "case" = ?', (value, run_id, case))
    data = RunData(tuned.store, run_id)
    raced = report.races(data)
    assert report.over_suite(raced).splitlines()[2].rstrip().endswith(why)
    left = f"; without a ratio on copy/m32n1024/f32 ({why})"
    assert report.overall_words(raced).endswith(left)
    (gain,) = findings.numbers(data)[:1]
    assert (gain.value, gain.note.endswith(left)) == (factor(other.raced.overall), True)
    assert report.overall_words(raced[:1]) == f"one tile for all: WORK=1{left}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none"], "copy/mine.none: has no tunables; the kernels of copy that have tunables are copy/"),
        (["odd"], "copy/m64n1024/f32: copy/mine.odd: no tile is valid: 1 is odd; choose another problem"),
        (["one"], "copy/mine.one on copy/m64n1024/f32: the default is its only valid tile; there is nothing to tune"),
        (["counted@WORK=9"], "copy/mine.counted@WORK=9: WORK is 9, expected one of 4, 1, 2, 3, 5, 6, 7, 8"),
        (["countd"], "kernel 'copy/mine.countd' is unknown, "),
        (["counted", "lstm"], "lstm: has no problem of copy/mine.counted; choose another suite, or give a problem's "),
    ],
)
def test_a_kernel_that_cannot_be_tuned_is_refused_in_one_line_and_leaves_no_run(tuned, complaint, arguments, words):
    assert complaint(lambda: tuned.begin(*arguments)).startswith(words)
    assert tuned.store.runs() == []


def test_a_space_of_a_billion_tiles_is_sampled_and_at_most_the_budget_and_the_default_are_measured(tuned):
    tuning = tuned.begin("vast", strategy="random", budget=2)
    tuning.search()
    assert len(rows(tuned, tuning.session.run_id)) in (2, 3)
    (subject,) = tuning.subjects
    assert (subject.counted.size, len(subject.tiles.configs)) == (10**9, 2000)
    assert report.size_words(subject.space) == "1000000000 tiles, about 1000000000 valid, 2000 of them drawn"


@pytest.fixture
def datas(tuned):
    tuning, (verdict,) = tuned.all("counted")
    return [RunData(tuned.store, run) for run in (tuning.session.run_id, verdict.default.run_id)]


def test_both_runs_have_the_verdict_of_the_race_and_the_numbers_of_the_search(datas):
    (verdict,) = {findings.verdict(data) for data in datas}
    assert re.fullmatch(
        r"copy/mine.counted on copy/m64n1024/f32: WORK=1 is \S+x \[\S+, \S+\] as fast as the default \(WORK=4\) "
        r"over 3 processes; `kernelmark run copy/m64n1024/f32 --tuned auto` uses it",
        verdict,
    )
    for data in datas:
        assert [(number.value, number.label) for number in findings.numbers(data)][1:] == [
            ("1 of 8", "tiles within 5 % of the best of their problem"),
            ("8 of 8", "valid tiles were measured"),
        ]
        assert findings.title(data, None) == "Tuning of mine.counted: copy/m64n1024/f32"
    search, race = datas
    search.store.remove([search.run_id])
    assert "WORK=1 is " in findings.verdict(RunData(race.store, race.run_id))
    assert len(findings.numbers(RunData(race.store, race.run_id))) == 1, "the others were of the search"


def test_the_figure_has_a_panel_for_each_tunable_that_was_varied_and_a_word_about_noise(datas):
    (figure,) = tunables.tunables(datas[0]).figures
    assert figure.caption.startswith("8 tiles; 1x is the default, ")
    assert figure.caption.endswith(" No tile was measured under noise.")
    (panel,) = figure.draw().axes
    assert panel.get_xlabel() == "WORK"
    assert [label.get_text() for label in panel.get_xticklabels()] == list("12345678")


def test_the_page_has_the_race_the_space_and_the_figure_without_the_kernels_declaration(datas, tmp_path):
    page = write_report(datas[1].store, datas[1].run_id, tmp_path / "out", Registry(), pdf=False)
    text = page.read_text(encoding="utf-8").replace("<wbr>", "").replace("\N{NO-BREAK SPACE}", " ")
    assert "8 tiles, 8 valid; 8 tiles measured: 8 ok; 1 of 8 within 5 % of the best" in text
    assert f"search: run {datas[0].run_id}, race: run {datas[1].run_id}" in text
    assert "hold jointly for all raced tiles in 99 % of races" in text
    assert re.search(r"<small>\[\S+, \S+\] \(99 %\), faster</small>", text)
    assert re.search(r"<td[^>]*>WORK=1 *</td><td[^>]*> *\S+x \[\S+, \S+\]</td><td[^>]*>yes", text)
    (svg,) = (tmp_path / "out" / "figures").glob("tunables-*.svg")
    assert "prefers-color-scheme: dark" in svg.read_text()


def test_the_founding_question_is_not_answered_by_a_tuning(store):
    space = {"problem": "gemm/m1024n2048k26752/f32/NT", "size": 2, "valid": 2, "exact": True, "listed": 2}
    tunes = {"kernel": "gemm/some.x", "how": "exhaustive", "source": "", "where": "auto", "search": "gone"}
    dims = {"m": 1024, "n": 2048, "k": 26752}
    for run_id, plan in (("r1", PLAN), ("r2", {**PLAN, "tunes": {**tunes, "spaces": [{**space, "default": "A=1"}]}})):
        begin(store, run_id, plan=plan)
        for name, median in (("matmul", 1e-3), ("tnn", 2e-3)):
            put(store, space["problem"], f"gemm/some.{name}", median, dims, run_id=run_id)
    assert [len(founding.answers(RunData(store, run_id))) for run_id in ("r1", "r2")] == [1, 0]
    assert findings.verdict(RunData(store, "r2")) == "Nothing was tuned: the default tile was not timed."


@pytest.mark.usefixtures("cuda_compiler")
def test_the_resources_of_compiled_tiles_are_stored_and_counted(tuned, folder, monkeypatch):
    discover((str(folder / "turned.py"),))
    monkeypatch.setattr("kernelmark.bench.tune.search.cuda_missing", lambda: None)
    monkeypatch.setattr("kernelmark.bench.tune.search.unavailable", lambda kernel: None)
    monkeypatch.setattr("kernelmark.bench.tune.search.present_limits", lambda: H100)
    tuning, (verdict,) = tuned.all("turned", "transpose/m61n47/f32/out", op="transpose/cuda")
    (search,) = report.searches(RunData(tuned.store, tuning.session.run_id))
    assert report.compiled_words(search) == "2 compiled, 0 of them spilling"
    assert all(used.registers > 0 for used in search.resources.values())
    assert arch_here(tuned.registry.kernels["transpose/cuda.turned"]).startswith("sm_")
    assert verdict.adopted is None


PROBLEM = "copy/m64n1024/f32"
QUICK = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--plugin", COUNTED)


def test_without_a_gpu_a_cuda_kernel_is_offered_static_ranking(called):
    if cuda_missing() is None:
        pytest.skip("there is a GPU")
    done = called("tune", "gemm/cuda.tiled", "gemm/m64n64k64/f32/NT")
    assert done.refusal.startswith("kernelmark: gemm/cuda.tiled: no NVIDIA driver here")
    assert "--static" in done.err


@pytest.mark.long
def test_an_interrupted_tuning_is_continued_and_run_uses_the_tile(tmp_path, kernelmark):
    words = ("tune", "copy/mine.interrupting", PROBLEM, *QUICK, "--processes", "3", "--spread", "0", "--db", "r.db")
    stopped = kernelmark(*words)
    assert (stopped.returncode, complaints(stopped.stderr)) == (130, [])
    assert stopped.stdout.endswith("interrupted; all rows so far are stored, and the same command continues\n")
    done = kernelmark(*words)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert done.stdout.splitlines()[0] == stopped.stdout.splitlines()[0]
    assert "WORK=1 is " in done.stdout
    assert f"`kernelmark run {PROBLEM} --tuned auto` uses it" in done.stdout
    (file,) = (tmp_path / "data" / "kernelmark" / "tuned").iterdir()
    (tile,) = json.loads(file.read_text())["tiles"]
    assert (tile["kernel"], tile["tile"]) == ("copy/mine.interrupting", "WORK=1")
    ran = kernelmark("run", PROBLEM, *QUICK, "--kernels", "copy/mine.inter*", "--tuned", "auto", "--csv", "o.csv")
    assert ran.returncode == 0
    assert f"tuned: copy/mine.interrupting uses WORK=1 on {PROBLEM}, found by run {tile['run']}" in ran.stderr
    assert tile["run"] in (tmp_path / "o.csv").read_text()
    exported = kernelmark("export", "race-mine.interrupting-1", "--format", "c", "--db", "r.db", "-o", "tuned.h")
    assert (exported.returncode, exported.stdout) == (0, "")
    name = "KERNELMARK_COPY_MINE_INTERRUPTING_M64N1024_F32_T1_WORK"
    assert f"#define {name} 1\n" in (tmp_path / "tuned.h").read_text()


@pytest.mark.long
def test_a_default_that_is_wrong_ends_in_one_line_and_exit_status_1(kernelmark):
    done = kernelmark("tune", "copy/mine.wrong", PROBLEM, *QUICK)
    assert done.returncode == 1
    (line,) = complaints(done.stderr)
    assert line.startswith(f"kernelmark: copy/mine.wrong on {PROBLEM}: is wrong with its default tile: b[0, 0] is 0, ")
    assert line.endswith("; nothing was tuned")
