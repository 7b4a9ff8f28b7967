"""A case over runs: the steps that are found, their causes, and the figure."""

import re

import numpy as np
import pytest

from kernelmark.bench.report.anonymity import hashed
from kernelmark.bench.report.figures import draw
from kernelmark.bench.report.figures.style import looks
from kernelmark.bench.report.figures.trends import trends
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.trend import page, trend, write_json
from support.compared import LOOSE, STEADY, add, begin, times
from support.pages import valid
from support.texts import text_of

#: Times of eight runs relative to the first, the medians of processes, and the runs in which a step is found.
SERIES = [
    ("steady", [1] * 8, STEADY, []),
    ("step", [1] * 4 + [1.3] * 4, STEADY, ["r5"]),
    ("back", [1, 1, 1.3, 1, 1, 1, 1, 1], STEADY, ["r3", "r4"]),
    ("small", [1] * 4 + [1.015] * 4, STEADY, []),
    ("loose", [1, 1.03, 1, 0.97, 1, 1.02, 1, 1], LOOSE, []),
    ("single", [1] * 4 + [1.3] * 4, STEADY[:1], []),
]


@pytest.fixture
def history(store):
    for i in range(8):
        commit, versions = ("a" * 40, "numpy 2.4.5; openblas 0.3") if i < 4 else ("b" * 40, "numpy 2.4.6; openblas 0.3")
        begin(store, f"r{i + 1}", started_at=f"2026-01-0{i + 1}T10:00:00+00:00", git_commit=commit)
        for name, factors, medians, _ in SERIES:
            columns = {"kernel": f"copy/a.{name}", "versions": versions, "run_id": f"r{i + 1}"}
            add(store, problem="m3n5/f32", medians=times(factors[i], medians), **columns)
    add(store, "r8", "m9n5/f32", STEADY)
    return trend(store, "copy", "copy/")


def test_steps_are_differences_between_runs_of_several_processes(history):
    assert {case.kernel.partition(".")[2]: [step.to for step in case.steps] for case in history.cases} == {
        name: steps for name, _, _, steps in SERIES
    }
    assert (history.single, history.tests) == (1, 5 * 8)


def test_a_step_names_what_else_changed(history, store):
    (case,) = (case for case in history.cases if case.kernel == "copy/a.step")
    (step,) = case.steps
    assert step.changed == ["commit: aaaaaaaa -> bbbbbbbb", "versions: numpy 2.4.5 -> numpy 2.4.6"]
    assert (step.since, step.ratio) == ("r4", pytest.approx(1.3))
    assert step.ratio_ci95_low < 1.3 < step.ratio_ci95_high
    assert (case.drift.since, case.drift.to) == ("r1", "r8")
    text = "\n".join(page(history))
    assert "a.step copy/m3n5/f32 cold t1: slower in run r5" in text
    assert "a.back copy/m3n5/f32 cold t1: faster in run r4" in text
    assert "no recorded fact changed" in text
    assert "1 case without two runs of several processes" in text
    cases = valid(text_of(lambda out: write_json(history, out)), "trend")["cases"]
    assert [case["case"] for case in cases] == [case.case for case in history.cases]


def test_a_step_names_each_setting_and_the_host_that_changed(store):
    plans = {"launcher": "cuda.core"}, {"launcher": "cupy", "absent": []}
    for i, (host, threads) in enumerate((("a", "1"), ("b", "2"))):
        versions = {"numpy": f"2.4.{i}", "scipy": f"1.{i}"}
        environment = {
            "versions": versions,
            "variables": {"OPENBLAS_NUM_THREADS": threads, "CUDA_PATH": f"/home/{host}"},
        }
        begin(store, f"r{i}", started_at=f"2026-01-0{i + 1}", environment=environment, plan=plans[i])
        columns = {"host": host, "device_uuid": "GPU-1" * i, "versions": f"numpy 2.4.{i}; openblas 0.3"}
        add(store, f"r{i}", "m3n5/f32", times(1 + i), **columns)
    ((step,),) = (case.steps for case in trend(store, "copy", "", ["copy/m3n5/f32"]).cases)
    assert step.changed == [
        "versions: numpy 2.4.0 -> numpy 2.4.1",
        f"host: {hashed('host', 'a')} -> {hashed('host', 'b')}",
        "launcher: cuda.core -> cupy",
        f"CUDA_PATH: /home/{hashed('user', 'a')} -> /home/{hashed('user', 'b')}",
        "OPENBLAS_NUM_THREADS: 1 -> 2",
        "scipy: 1.0 -> 1.1",
    ]


def test_a_slow_drift_shows_between_the_first_run_and_the_last(store):
    for i in range(6):
        begin(store, f"r{i}", started_at=f"2026-01-0{i + 1}")
        add(store, f"r{i}", "m3n5/f32", times(1.012**i))
    (case,) = trend(store, "copy", "", ["copy/m3n5/f32"]).cases
    assert (case.steps, case.drift.to, case.drift.ratio) == ([], "r5", pytest.approx(1.012**5))


def test_last_over_first_is_of_the_times_beside_it_and_has_an_interval_or_a_remark(store):
    series = {"m1": (10, 10, 20, 20, 10), "m2": (10, 10, 20), "m3": (10, 10, 10, 10, 12), "m4": (10, 10, 10, 10, 13)}
    for i in range(5):
        begin(store, f"r{i}", started_at=f"2026-01-0{i + 1}")
        for problem, took in series.items():
            if i < len(took):
                median = 1e-6 * took[i]
                ends = {} if problem == "m4" else {"time_s_ci95_low": 0.9 * median, "time_s_ci95_high": 1.1 * median}
                medians = times(took[i] / 1e3, STEADY if 0 < i < 4 else STEADY[:1])
                add(store, f"r{i}", f"{problem}n5/f32", medians, **ends)
    text = "\n".join(page(trend(store, "copy", "copy/")))
    assert re.findall(r"(\S+) us +(\S+) us +(\S+x .*?)  ", text) == [
        ("10.0", "20.0", "2x [2, 2]"),
        ("10.0", "20.0", "2x [2, 2]"),
        ("10.0", "12.0", "1.2x [0.982, 1.47] (tie)"),
        ("10.0", "13.0", "1.3x (without an interval)"),
    ]


def test_runs_of_another_machine_are_another_trend(store):
    for i, cpu in enumerate(("one", "other", "one", "other")):
        begin(store, f"r{i}", started_at=f"2026-01-0{i + 1}", machine={"cpu": cpu})
        add(store, f"r{i}", "m3n5/f32", times(1 + i % 2))
    history = trend(store, "copy", "", ["copy/m3n5/f32"])
    assert sorted([point.run_id for point in case.points] for case in history.cases) == [["r0", "r2"], ["r1", "r3"]]
    assert [case.steps for case in history.cases] == [[], []]


@pytest.mark.long
def test_runs_that_differ_by_chance_show_a_step_in_five_per_cent_of_questions(store):
    rng, false = np.random.default_rng(1), 0
    for question in range(200):
        for i in range(5):
            if question == 0:
                begin(store, f"r{i}", started_at=f"2026-01-0{i + 1}")
            add(store, f"r{i}", f"m{question + 1}n5/f32", tuple(1e-3 * np.exp(0.05 * rng.standard_normal(5))))
        (case,) = trend(store, "copy", "", [f"copy/m{question + 1}n5/f32"], margin=0).cases
        false += bool(case.steps or case.drift)
    assert false <= 18  # of 10 expected, in all but 1 % of such tests


@pytest.mark.usefixtures("history")
def test_a_figure_shows_a_problem_of_three_runs(store, tmp_path):
    data = RunData(store, "r8")
    kind = trends(data, looks(row.kernel for row in data.timed))
    assert [figure.title for figure in kind.figures] == ["Over runs: copy/m3n5/f32"]
    assert "a.step copy" not in kind.figures[0].caption
    assert "a.step: slower in run r5" in kind.figures[0].caption
    (drawn,) = draw([kind], tmp_path, pdf=False)
    assert "<!-- 2026-01-01 -->" in drawn.svg
    assert drawn.svg.count("stroke-dasharray") >= 3  # a line at each of the steps
    assert trends(RunData(store, "r2"), {}).figures == []
