"""The bars of `make gpu`, on CPU kernels in the place of CUDA ones."""

import pytest

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Interval, Ratio
from kernelmark.bench.measure.timing import now

TOOL = "gpu_bars"


def figure(ratio, errors=None):
    return {"promise": "p", "kernel": "gemm/a.b", "ratio": ratio, "errors": errors}


def test_every_bar_names_kernels_and_problems_that_exist(tool, registry):
    bars = tool.all_bars()
    assert len(bars) == 8 + 3 + 1 + 1 + 5 + 13
    for bar in bars:
        problem = registry.problem(bar.problem)
        assert bar.kernels, bar.promise
        assert any(registry.kernels[name].refuses(problem) is None for name in bar.kernels), bar.promise
        assert bar.rival in registry.kernels or bar.rival_problem
        assert set(bar.rivals) <= set(registry.kernels)


@pytest.mark.long
def test_a_ratio_is_taken_in_one_job_and_across_operations(tool, monkeypatch):
    gemm = tool.Bar("g", "gemm/m32n32k32/f32/NN", ("gemm/scipy.sgemm",), "gemm/numpy.matmul", 0.1, errors=100.0)
    move = tool.Bar("t", "transpose/m64n64/f32/out", ("transpose/numpy.out",), "copy/numpy.*", 0.01, "copy/m64n128/f32")
    lost = tool.Bar("l", "gemm/m8n8k8/f64/NN", ("gemm/scipy.sgemm",), "gemm/numpy.matmul", 1.0)
    first, second, third = map(tool.figure, [gemm, move, lost])
    assert first["kernel"] == "gemm/scipy.sgemm"
    assert first["ratio"] > 0
    assert first["errors"] > 0
    assert second["kernel"] == "transpose/numpy.out"
    assert 0 < second["ratio"] < 100
    assert third["missing"] == "gemm/scipy.sgemm: unsupported: gemm/scipy.sgemm has no f64 path; it has f32"


def test_of_several_rivals_the_fastest_counts(tool, monkeypatch):
    def row(kernel, median, ratio, status="ok"):
        interval = Interval(median, median, median)
        ratio = ratio and Ratio(ratio, ratio, ratio, "paired")
        return Measurement(kernel=kernel, status=status, reason="slow", interval=interval, ratio=ratio, max_error=1.0)

    rows = [row("a", 4.0, None), row("b", 2.0, 2.1), row("c", 1.0, 9.0, "wrong"), row("ours", 1.0, 4.2)]
    monkeypatch.setattr(tool, "run_job", lambda job: rows)
    bar = tool.Bar("p", "conv/x", ("ours",), "a", 1.5, rivals=("b", "c"))
    found = tool.figure(bar)
    assert found == {"kernel": "ours", "ratio": 2.0, "rival": "b", "errors": 1.0}
    ((holds, _, text, _),) = tool.verdicts([bar], {"p": [found]})
    assert (holds, text) == ("holds", "2.000x [2.000, 2.000] by ours over b")
    rows[:] = [row("a", 4.0, None), row("b", 2.0, None, "unsupported"), row("c", 1.0, 9.0, "wrong"), rows[3]]
    alone = tool.figure(bar)
    assert (alone["rival"], alone["ratio"]) == ("a", 4.2)


@pytest.mark.parametrize(
    ("ratios", "least", "verdict"),
    [((0.9, 1.1, 1.2), 1.0, "holds"), ((0.9, 0.95, 1.2), 1.0, "MISSED"), ((1.0,), 1.0, "holds")],
)
def test_a_bar_holds_by_its_median_over_processes(tool, ratios, least, verdict):
    bar = tool.Bar("p", "x", (), "y", least)
    ((found, _, text, processes),) = tool.verdicts([bar], {"p": [figure(ratio) for ratio in ratios]})
    assert (found, processes) == (verdict, len(ratios))
    assert "gemm/a.b" in text


@pytest.mark.parametrize(("errors", "verdict"), [(1.9, "holds"), (2.1, "MISSED"), (None, "MISSED")])
def test_speed_bought_with_error_does_not_hold(tool, errors, verdict):
    bar = tool.Bar("p", "x", (), "y", 1.0, errors=2.0)
    ((found, *_),) = tool.verdicts([bar], {"p": [figure(3.0, errors)]})
    assert found == verdict


def test_what_one_process_could_not_measure_is_absent_with_the_reason(tool):
    bar, missing = tool.Bar("p", "x", (), "y", 1.0), {"promise": "p", "missing": "gemm/a.b: oom: too large"}
    assert tool.verdicts([bar], {"p": [figure(2.0), missing]}) == [("absent", "p", "gemm/a.b: oom: too large", 2)]
    assert tool.verdicts([bar], {}) == [("absent", "p", "not measured", 0)]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that stands for the bars in a process of its own, and return its name."""

    def of(text):
        (tmp_path / "some_bars.py").write_text(f"import os\n\n\ndef replies(names):\n{text}")
        monkeypatch.syspath_prepend(str(tmp_path))
        return "some_bars"

    return of


def bars_of(tool, *promises):
    return [tool.Bar(promise, "x", (), "y", 1.0) for promise in promises]


def test_each_pass_over_the_bars_is_a_fresh_process(tool, module):
    name = module("    yield from ({'ratio': os.getpid()} for _ in names)\n")
    passes = tool.measure(bars_of(tool, "p", "q"), now() + 60, name)
    for _ in range(4):
        found = next(passes)
    passes.close()
    first, second = ([figure["ratio"] for figure in found[promise]] for promise in "pq")
    assert first == second
    assert len(set(first)) == 2


def test_a_bar_that_takes_its_process_along_is_absent_with_the_reason_and_harms_no_other(tool, module):
    name = module(
        "    good = {'ratio': 2.0, 'kernel': 'gemm/a.b', 'errors': None}\n"
        "    yield from (os._exit(3) if name == 'q' else good for name in names)\n"
    )
    bars = bars_of(tool, "p", "q", "r")
    passes = tool.measure(bars, now() + 60, name)
    for _ in range(5):
        found = next(passes)
    passes.close()
    assert [(line[0], line[2], line[3]) for line in tool.verdicts(bars, found)] == [
        ("holds", "2.000x [2.000, 2.000] by gemm/a.b", 2),
        ("absent", "the process ended with status 3", 1),
        ("holds", "2.000x [2.000, 2.000] by gemm/a.b", 2),
    ]


def test_without_time_no_bar_is_measured(tool):
    assert list(tool.measure(tool.all_bars(), 0.0)) == []
