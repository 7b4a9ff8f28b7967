"""Both stages of a tuning, on kernels whose work is counted: what is measured, adopted, kept and taken up again."""

import pytest

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.runs import summaries
from kernelmark.bench.report.tuning import (
    over_suite,
    overall_words,
    searched_words,
    searches,
    sentence,
    size_words,
    space_words,
)
from kernelmark.bench.tune.tuning import AT_ONCE, CANDIDATES, DefaultFailed, Interrupted, progress

WORK = (4, 1, 2, 3, 5, 6, 7, 8)  # of the plug-in counted.py

SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 1024\nm = [32, 64]\n"


def rows(tuned, run_id):
    return {row.kernel: row for row, _ in tuned.store.results(run_id)}


def learned_of(tuned, tuning):
    (found,) = searches(RunData(tuned.store, tuning.session.run_id))
    return found


def test_every_tile_is_a_row_of_a_run_and_every_job_has_the_default(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    assert set(rows(tuned, tuning.session.run_id)) == {
        "copy/mine.counted",
        *(f"copy/mine.counted@WORK={work}" for work in WORK[1:]),
    }
    assert all(job.kernels[0] == job.baseline == "copy/mine.counted" for job in tuned.jobs)
    assert all(len(job.kernels) <= 1 + AT_ONCE for job in tuned.jobs)


def test_the_tile_that_works_least_is_adopted_with_what_the_file_needs(tuned):
    tuning, (verdict,) = tuned.all("counted")
    assert verdict.raced.decision.best == "WORK=1"
    assert set(verdict.raced.rows) == {"WORK=1", "WORK=2", "WORK=3"}
    entry = verdict.entry
    assert (entry.kernel, entry.tile, entry.default) == ("copy/mine.counted", "WORK=1", "WORK=4")
    assert 1 < entry.low < entry.ratio < entry.high
    assert (entry.processes, entry.threads, entry.mode) == (3, 1, "hot")
    assert entry.run == verdict.default.run_id != tuning.session.run_id


def test_the_race_takes_fresh_samples_for_ten_times_as_long_in_one_job_a_process(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    tuned.jobs.clear()
    (verdict,) = tuned.race(tuning)
    assert len(tuned.jobs) == 3
    assert {job.kernels for job in tuned.jobs} == {
        ("copy/mine.counted", *(row.kernel for row in verdict.raced.rows.values()))
    }
    assert {job.budget.max_time_s for job in tuned.jobs} == {0.04}
    assert len(verdict.raced.rows) == CANDIDATES


def test_both_runs_are_named_after_the_kernel_and_a_second_tuning_begins_anew(tuned):
    tuned.all("counted")
    tuned.all("counted")
    names = [run.name for run in summaries(tuned.store)]
    assert names == ["race-mine.counted-2", "tune-mine.counted-2", "race-mine.counted-1", "tune-mine.counted-1"]


def test_a_tile_that_fails_is_a_row_and_is_not_raced(tuned):
    tuning, (verdict,) = tuned.all("failing")
    found = rows(tuned, tuning.session.run_id)
    assert {found[f"copy/mine.failing@WORK={work}"].status for work in (2, 3)} == {"failed"}
    assert set(verdict.raced.rows).isdisjoint({"WORK=2", "WORK=3"})
    assert verdict.raced.decision.best == "WORK=1"
    assert "6 ok, 2 failed" in space_words(learned_of(tuned, tuning))


def test_a_default_that_is_wrong_ends_the_tuning_before_any_tile_and_is_not_taken_up_again(tuned):
    tuning = tuned.begin("wrong")
    with pytest.raises(
        DefaultFailed, match=r"copy/mine.wrong on copy/m64n1024/f32: is wrong with its default tile: b\["
    ):
        tuning.search()
    assert [job.kernels for job in tuned.jobs] == [("copy/mine.wrong",)]
    assert tuned.begin("wrong").session.run_id != tuning.session.run_id


def test_an_interrupted_search_keeps_its_rows_and_goes_on_where_it_was(tuned):
    tuning = tuned.begin("counted")
    tuned.stop_after = 2
    with pytest.raises(Interrupted):
        tuning.search()
    kept = rows(tuned, tuning.session.run_id)
    assert len(kept) == 1 + AT_ONCE
    tuned.stop_after = 10**6
    again = tuned.begin("counted")
    again.search()
    assert again.session.run_id == tuning.session.run_id
    assert [len(job.kernels) for job in tuned.jobs] == [1 + len(WORK) - 1 - AT_ONCE]
    now = rows(tuned, tuning.session.run_id)
    assert len(now) == len(WORK)
    assert {name: now[name] for name in kept} == kept


def test_an_interrupted_race_goes_on_where_it_was(tuned):
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


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"threads": (2,)}, {"max_time_s": 0.005}, {"strategy": "random", "budget": 3}]
)
def test_another_plan_begins_another_run(tuned, other):
    tuning, another = tuned.begin("counted"), tuned.begin("counted", **other)
    assert another.session.run_id != tuning.session.run_id


def test_a_random_search_measures_no_more_than_its_budget_and_the_default(tuned):
    tuning = tuned.begin("counted", strategy="random", budget=3)
    tuning.search()
    assert len(rows(tuned, tuning.session.run_id)) in (3, 4)


def test_a_kernel_with_a_tile_searches_the_rest_and_races_its_own_default(tuned):
    _, (verdict,) = tuned.all("counted@WORK=8")
    assert set(verdict.raced.rows) == {"WORK=8"}
    assert verdict.default.kernel == "copy/mine.counted"
    assert verdict.raced.decision.best is None
    assert verdict.raced.decision.ratios["WORK=8"].high < 1


def test_a_run_of_a_tuning_is_not_resumed_as_one_of_suites(tuned, complaint):
    from kernelmark.bench.run.session import plan_of

    tuning = tuned.begin("counted")
    assert complaint(lambda: plan_of(tuned.store, tuning.session.run_id)) == (
        f"--resume {tuning.session.run_id}: is a run of `kernelmark tune`; the command that began the tuning goes on "
        "with it"
    )


def test_words_name_the_tile_its_factor_and_the_command_that_uses_it(tuned):
    tuning, (verdict,) = tuned.all("counted")
    text = sentence(verdict.raced)
    assert text.startswith("copy/mine.counted on copy/m64n1024/f32: WORK=1 is ")
    assert " as fast as the default (WORK=4) over 3 processes" in text
    assert text.endswith("; `kernelmark run copy/m64n1024/f32 --tuned auto` uses it")
    undecided = verdict.raced.decision._replace(best=None, tied=["WORK=2"])
    kept = sentence(verdict.raced._replace(decision=undecided))
    assert "the default (WORK=4) stays: of 3 tiles none is certainly faster over 3 processes" in kept
    assert kept.endswith("; it cannot be distinguished from WORK=2")
    assert progress(tuning.screens[0]).startswith("8 of 8 tiles, best so far WORK=1: ")


def test_what_was_learned_counts_the_tiles_and_ranks_the_values_of_each_tunable(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    found = learned_of(tuned, tuning)
    assert space_words(found) == "8 tiles, 8 valid; 8 tiles measured: 8 ok; 1 of 8 within 5 % of the best"
    lines = searched_words(found).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("WORK")] == list("12345678")


def test_over_a_suite_each_problem_has_a_verdict_and_one_tile_is_best_for_all(tuned, tmp_path):
    (tmp_path / "two.toml").write_text(SUITE)
    tuning, verdicts = tuned.all("counted", str(tmp_path / "two.toml"))
    assert [verdict.subject.problem.id for verdict in verdicts] == ["copy/m32n1024/f32", "copy/m64n1024/f32"]
    assert tuning.overall == (1,)
    raced = [verdict.raced for verdict in verdicts]
    assert all("WORK=1" in each.rows for each in raced)
    assert overall_words(raced).startswith("one tile for all: WORK=1, ")
    assert "slower than the best of a problem" in overall_words(raced)
    assert [line.split()[0] for line in over_suite(raced).splitlines()[2:]] == [
        "copy/m32n1024/f32",
        "copy/m64n1024/f32",
    ]


def test_a_plan_holds_what_is_tuned_and_how(tuned):
    tuning, _ = tuned.all("counted")
    search, race = (run["plan"]["tunes"] for run in tuned.store.runs())
    assert (search["kernel"], search["how"], search["search"]) == ("copy/mine.counted", "exhaustive", "")
    assert search["spaces"] == [
        {"problem": "copy/m64n1024/f32", "size": 8, "valid": 8, "exact": True, "listed": 8, "default": "WORK=4"}
    ]
    assert (race["search"], race["raced"]) == (tuning.session.run_id, ["WORK=1", "WORK=2", "WORK=3"])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("none", "copy/mine.none: has no tunables; those of copy that have some are copy/"),
        ("odd", "copy/m64n1024/f32: copy/mine.odd: no tile is valid: 1 is odd; take another problem"),
        ("one", "copy/mine.one on copy/m64n1024/f32: the default is its only valid tile; there is nothing to tune"),
        ("counted@X=1", "copy/mine.counted@X=1: X is unknown, expected one of WORK"),
        ("counted@WORK=9", "copy/mine.counted@WORK=9: WORK is 9, copy/mine.counted has 4, 1, 2, 3, 5, 6, 7, 8"),
        ("countd", "kernel 'copy/mine.countd' is unknown, "),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(tuned, complaint, kernel, words):
    assert complaint(lambda: tuned.begin(kernel)).startswith(words)


def test_a_space_of_a_billion_tiles_is_drawn_from_and_never_listed(tuned):
    tuning = tuned.begin("vast", strategy="random", budget=2)
    tiles = tuning.subjects[0].tiles
    assert (tiles.counted.size, len(tiles.configs)) == (10**9, 2000)
    words = "1000000000 tiles, about 1000000000 valid, 2000 of them drawn"
    assert size_words(tuning.subjects[0].space) == words


def test_a_suite_without_a_problem_of_the_kernel_is_refused(tuned, complaint):
    assert complaint(lambda: tuned.begin("counted", "lstm")) == (
        "lstm: has no problem of copy/mine.counted; take another suite, or a problem's id"
    )


def test_usage_errors_leave_no_run(tuned):
    with pytest.raises(UsageError):
        tuned.begin("none")
    assert tuned.store.runs() == []
