"""What a report shows of a tuning: from the store alone, whichever of its two runs is asked for."""

import re

import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.report import findings, founding
from kernelmark.bench.report.figures import tunables
from kernelmark.bench.report.page import write_report
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tuning import compiled_words, searches
from kernelmark.bench.tune.static import arch_here
from kernelmark.bench.tune.tuning import log_adopted
from support.rows import PLAN, begin, put

SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 1024\nm = [32, 64]\n"


@pytest.fixture
def datas(tuned):
    """The data of the search and of the race of a tuning."""
    tuning, (verdict,) = tuned.all("counted")
    return [RunData(tuned.store, run) for run in (tuning.session.run_id, verdict.default.run_id)]


def test_both_runs_have_the_verdict_of_the_race_and_the_numbers_of_the_search(datas):
    words = {findings.verdict(data) for data in datas}
    (verdict,) = words
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


def test_a_search_whose_race_has_not_ended_is_undecided(tuned):
    tuning = tuned.begin("counted")
    tuning.search()
    text = findings.verdict(RunData(tuned.store, tuning.session.run_id))
    assert text.startswith("copy/mine.counted on copy/m64n1024/f32: undecided, since no race has ended; ")
    assert "in the search WORK=1 was fastest, " in text


def test_a_race_whose_search_was_removed_still_has_its_verdict(tuned):
    tuning, (verdict,) = tuned.all("counted")
    tuned.store.remove([tuning.session.run_id])
    data = RunData(tuned.store, verdict.default.run_id)
    assert "WORK=1 is " in findings.verdict(data)
    assert [number.label for number in findings.numbers(data)] == ["speed of the adopted tile over the default"]


def test_over_a_suite_the_first_screen_counts_the_problems_and_has_one_tile_for_all(tuned, tmp_path):
    (tmp_path / "two.toml").write_text(SUITE)
    _, verdicts = tuned.all("counted", str(tmp_path / "two.toml"))
    data = RunData(tuned.store, verdicts[0].default.run_id)
    assert findings.verdict(data) == (
        "copy/mine.counted: a tile is certainly faster than the default on 2 of 2 problems; "
        "`kernelmark run SUITE --tuned auto` uses them"
    )
    assert findings.numbers(data)[0].label == "speed of the one tile for all over the default (geometric mean)"
    assert len(tunables.tunables(data).figures) == 2


def test_the_figure_has_a_panel_for_each_tunable_that_was_varied_and_a_word_about_noise(datas):
    pytest.importorskip("matplotlib")
    ((figure,),) = ([*tunables.tunables(data).figures] for data in datas[:1])
    assert figure.caption.startswith("8 tiles; 1x is the default, ")
    assert figure.caption.endswith(" No tile was measured under noise.")
    (panel,) = figure.draw().axes
    assert panel.get_xlabel() == "WORK"
    assert [label.get_text() for label in panel.get_xticklabels()] == list("12345678")


def test_the_page_has_the_race_the_space_and_the_figure_without_the_kernels_declaration(datas, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    page = write_report(datas[1]._store, datas[1].run_id, tmp_path / "out", Registry(), pdf=False)
    text = page.read_text(encoding="utf-8").replace("<wbr>", "").replace("\N{NO-BREAK SPACE}", " ")
    assert "8 tiles, 8 valid; 8 tiles measured: 8 ok; 1 of 8 within 5 % of the best" in text
    assert f"search: run {datas[0].run_id}, race: run {datas[1].run_id}" in text
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
    assert findings.verdict(RunData(store, "r2")) == "Nothing was tuned: the default has no time."


@pytest.mark.usefixtures("cuda_compiler")
def test_what_the_compiler_reports_of_tiles_is_kept_and_counted(tuned, folder, monkeypatch):
    from kernelmark.bench.tune import subject

    discover((str(folder / "turned.py"),))
    monkeypatch.setattr(subject, "cuda_missing", lambda: None)
    monkeypatch.setattr(subject, "present_limits", lambda: H100)
    monkeypatch.setattr(subject, "unavailable", lambda kernel: None)
    tuning, (verdict,) = tuned.all("turned", "transpose/m61n47/f32/out", op="transpose/cuda")
    (found,) = searches(RunData(tuned.store, tuning.session.run_id))
    assert compiled_words(found) == "2 compiled, 0 of them spilling"
    assert all(used.registers > 0 for used in found.resources.values())
    assert arch_here(tuned.registry.kernels["transpose/cuda.turned"]).startswith("sm_")
    assert verdict.adopted is None


def test_what_was_adopted_is_a_version_in_the_history_of_the_kernel(tuned):
    _, (verdict,) = tuned.all("counted")
    log_adopted(tuned.store, verdict)
    (kept,) = tuned.store.versions("copy/mine.counted", "copy/m64n1024/f32")
    assert (kept.version.by, kept.version.tile, kept.version.verdict) == ("tune", "WORK=1", "PASS, adopted")
    assert (kept.version.run, kept.version.processes) == (verdict.default.run_id, 3)
    (against,) = kept.version.compared
    assert against.kernel == "copy/mine.counted"
    assert 1 < against.low < against.ratio < against.high
    assert b"def declare(" in kept.sources["counted.py"]


def test_a_default_that_stays_is_no_version(tuned):
    _, (verdict,) = tuned.all("counted@WORK=8")
    log_adopted(tuned.store, verdict)
    assert list(tuned.store._rows("SELECT kernel FROM version")) == []
