"""The dot plots of speedups and the heat maps: what stands in which lane and cell, and how it is marked."""

import pytest

from kernelmark.bench.report.figures import heat, speedups, style
from kernelmark.bench.report.run_data import RunData
from support.rows import many, put

pytest.importorskip("matplotlib")

DISTURBED = "others took 0.98 CPUs during 100 % of the sampling"


def test_dots_of_many_rows_share_a_lane_a_kernel(store):
    many(store, 300)
    (plot,) = speedups.plots(RunData(store, "r1"))
    assert len(plot.lanes) == 9
    assert {len(lane.dots) for lane in plot.lanes} == {30}
    assert "A dot for each of 30 problems" in plot.caption


def test_lanes_of_few_rows_stand_below_their_problem_fastest_first(begun):
    for name, speedup in (("a", 0.8), ("b", 1.5)):
        put(begun, "copy/m8n8/f32", f"copy/{name}.k", baseline="copy/numpy.copyto", speedup=speedup)
    (plot,) = speedups.plots(RunData(begun, "r1"))
    assert [(lane.head, lane.name) for lane in plot.lanes] == [("copy/m8n8/f32", "b.k"), ("copy/m8n8/f32", "a.k")]


def test_no_figure_of_speedups_mixes_baselines_or_operations(begun):
    for problem, baseline in (("transpose/m8n8/f32/out", "a"), ("transpose/m8n8/f32/in", "b"), ("copy/m8n8/f32", "a")):
        op = problem.partition("/")[0]
        put(begun, problem, f"{op}/some.k", baseline=f"{op}/{baseline}", speedup=1.1)
    found = speedups.plots(RunData(begun, "r1"))
    assert sorted((plot.op, plot.baseline, len(plot.dots)) for plot in found) == [
        ("copy", "copy/a", 1),
        ("transpose", "transpose/a", 1),
        ("transpose", "transpose/b", 1),
    ]


def test_a_noisy_dot_is_marked(begun):
    put(begun, "copy/m8n8/f32", "copy/a.k", baseline="copy/b", speedup=1.5, disturbed=DISTURBED)
    ((lane,),) = (plot.lanes for plot in speedups.plots(RunData(begun, "r1")))
    assert lane.dots[0].noisy
    assert lane.text == "~1.5x"


def test_a_long_whisker_is_cut_and_the_caption_says_so(begun):
    ends = {"speedup": 1.1, "speedup_ci95_low": 0.9, "speedup_ci95_high": 50.0}
    put(begun, "copy/m8n8/f32", "copy/a.k", baseline="copy/b", **ends)
    (plot,) = speedups.plots(RunData(begun, "r1"))
    assert plot.range[1] < 3
    assert "Long ones are cut at the edge." in plot.caption


def test_a_heat_map_shows_the_time_of_the_winner_and_multiples_of_it(begun):
    for n in (1, 2):
        for name, median in (("a", 1e-3), ("b", 2e-3)):
            put(begun, f"copy/m{n}n8/f32", f"copy/some.{name}", taken=[median] * 6)
    (found,) = heat.maps(RunData(begun, "r1"))
    cells = [found.cell(c, kernel) for c in found.contests for kernel in found.kernels]
    assert [(cell.text, cell.outline) for cell in cells] == [("1.00 ms", "wins"), ("2.00x", "")] * 2


def test_a_heat_map_marks_all_that_tie_with_the_fastest(begun):
    for n in (1, 2):
        for name, taken in (("a", (1.0, 1.2)), ("b", (1.01, 1.19)), ("c", (9.0, 9.1))):
            put(begun, f"copy/m{n}n8/f32", f"copy/some.{name}", taken=[1e-3 * t for t in taken] * 6)
    (found,) = heat.maps(RunData(begun, "r1"))
    outlines = [found.cell(found.contests[0], f"copy/some.{name}").outline for name in "abc"]
    assert outlines == ["ties", "ties", ""]


def test_heat_maps_of_two_baselines_are_two(begun):
    for place, baseline in (("out", "numpy.out"), ("in", "openblas.imatcopy")):
        for n in (1, 2):
            for name in (baseline, "some.fast"):
                put(begun, f"transpose/m{n}n8/f32/{place}", f"transpose/{name}", baseline=f"transpose/{baseline}")
    assert [len(found.contests) for found in heat.maps(RunData(begun, "r1"))] == [2, 2]


def test_values_in_a_heat_map_stay_in_their_cells(begun):
    from matplotlib import rc_context

    for n in (1, 2):
        for i in range(heat.MOST_KERNELS):
            problem = f"conv/n2c4h17w15k6r5s3stride{n}/f32/nchw/wgrad/g2"
            put(begun, problem, f"conv/provider.kernel{i}", 1e-3 * (1 + 10 * i), disturbed=DISTURBED)
    (figure,) = heat.heat_maps(RunData(begun, "r1")).figures
    with rc_context(style.RC):
        drawing = figure.draw()
        drawing.draw_without_rendering()
        (axes,) = drawing.axes
        width = axes.get_window_extent().width / heat.MOST_KERNELS
        names = [*axes.get_xticklabels(), *axes.texts]
        assert max(text.get_window_extent().width for text in names) < width
