"""Figures: those for which a run has the data, their contents, and equal bytes for equal data."""

import re
from itertools import pairwise, product

import msgspec
import pytest

from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.figures import draw, first, heat, kinds, speedups, style
from kernelmark.bench.report.figures.aggregation import aggregations
from kernelmark.bench.report.figures.scaling import scaling_of_run
from kernelmark.bench.report.figures.style import Figure, Kind, kind
from kernelmark.bench.report.figures.threads import gains_over_size
from kernelmark.bench.report.figures.winners import TITLE, Panel, Spot, most_places
from kernelmark.bench.report.run_data import RunData
from support.rows import BEYOND, DISTURBED, ceilings, fail, in_turn, many, put, varied

#: Kinds that need runs of other contents: the map of algorithms is tested below, the others in their own files.
OF_OTHERS = ["Which algorithm where", "Aggregation of gradients", "Data parallelism", "Over runs"]


def planned(store, registry=None):
    return {kind.title: kind for kind in kinds(RunData(store, "r1"), registry)}


def names(store):
    return [figure.name for kind in planned(store).values() for figure in kind.figures]


def test_a_run_with_everything_has_every_kind_of_figure(store):
    varied(store)
    by_title = planned(store)
    assert [title for title, each in by_title.items() if not each.figures] == OF_OTHERS
    assert list(by_title) == [
        "Speedup",
        "Problems x kernels",
        "Roofline",
        "Rate over size",
        "Ratios of variants",
        "Layouts x kernels",
        "Thread scaling",
        "Thread scaling over size",
        "Crossover of convolution algorithms",
        *OF_OTHERS,
        "Distribution of samples",
    ]


def test_what_cannot_be_drawn_says_why_in_one_line_and_one_row_that_has_not_failed_is_enough_for_its_samples(begun):
    for each in planned(begun).values():
        assert each.figures == []
        assert each.omitted
        assert "\n" not in each.omitted
    fail(begun, "gemm/m8n8k8/f32/NN", "gemm/some.bad")
    assert names(begun) == []
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    assert names(begun) == ["samples-gemm-cpu-t2-cold-fp32"]


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("store") / "results.db") as store:
        varied(store)
        yield store


@pytest.mark.long
def test_figures_are_one_or_two_columns_wide_have_their_fonts_and_are_the_same_bytes_for_the_same_data(every, tmp_path):
    folder, other = tmp_path / "one", tmp_path / "other"
    for path in (folder, other):
        path.mkdir()
    for figure in draw(kinds(RunData(every, "r1")), folder):
        width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', figure.svg).group(1))
        columns = 178 if figure.name.startswith("problems-") else 85
        assert width == pytest.approx(columns / 25.4 * 72, abs=0.01)
        pdf = (folder / f"{figure.name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"/CreationDate" not in pdf
        assert "<text" not in figure.svg
        assert "<dc:date>" not in figure.svg
    again = [each._replace(figures=each.figures[:1]) for each in kinds(RunData(every, "r1"))]
    assert len(list(draw(again, other))) == len(again) - len(OF_OTHERS)
    files = sorted(path.name for path in other.iterdir())
    assert {path.suffix for path in other.iterdir()} == {".svg", ".pdf"}
    assert {file for file in files if (folder / file).read_bytes() != (other / file).read_bytes()} == set()


def rendered(figure):
    from matplotlib import rc_context

    with rc_context(style.RC):
        drawing = figure.draw()
        drawing.draw_without_rendering()
    return drawing


def test_text_of_a_column_is_legible_on_a_phone_and_nothing_sticks_out_of_a_figure(every):
    from matplotlib.text import Text

    pixels = 375 - 2 * 16  # a phone's width less the page's margins
    for figure in (figure for each in kinds(RunData(every, "r1")) for figure in each.figures):
        drawing = rendered(figure)
        smallest = min(text.get_fontsize() for text in drawing.findobj(Text) if text.get_text().strip())
        box, (width, height) = drawing.get_tightbbox(), drawing.get_size_inches()
        is_legible = smallest >= 6.5 if width > style.WIDTH else smallest * pixels / (72 * style.WIDTH) >= 11
        assert is_legible, figure.name
        assert min(box.x0, box.y0) > -0.01, figure.name
        assert max(box.x1 - width, box.y1 - height) < 0.01, figure.name


def test_labels_in_the_margin_do_not_overlap(begun):
    ceilings(begun)
    for n in (16, 64, 256):
        for i in range(8):
            median = n**3 * 1e-10 * (1 + i / 1000)
            put(begun, f"gemm/m{n}n{n}k{n}/f32/NN", f"gemm/some.k{i}", median, gflop_per_s=n**3 * 2e-9 / median)
    by_title = planned(begun)
    for figure in (*by_title["Rate over size"].figures, *by_title["Roofline"].figures):
        drawing = rendered(figure)
        texts = [text for text in drawing.axes[0].texts if text.get_text().startswith("some.k")]
        heights = sorted(text.get_window_extent().y0 * 72 / drawing.dpi for text in texts)
        assert len(heights) == 8
        assert min(above - below for below, above in pairwise(heights)) > 9, figure.name


def test_a_kernel_looks_the_same_whatever_else_was_measured_first_and_unlike_those_of_its_colour():
    assert style.looks(["b", "a", "c"]) == style.looks(["c", "b", "a", "a"])
    looks = style.looks(f"k{i:02}" for i in range(40)).values()
    assert len({(look.colour, look.marker) for look in looks}) == 40


def test_error_bars_reach_to_the_ends_of_an_interval_that_is_known():
    assert style.errors([Ratio(2.0, 1.5, 4.0), Ratio(1.0)]) == [[0.5, 0.0], [2.0, 0.0]]


@pytest.mark.parametrize(("low", "high"), [(0.97, 1.04), (0.5, 1.9), (0.005, 1.1), (0.9, 31), (0.2, 450)])
def test_ratio_ticks_are_few_inside_and_include_one(low, high):
    ticks = style.ratio_ticks(low, high)
    assert 1 in ticks
    assert 2 <= len(ticks) <= 8
    assert low <= min(ticks)
    assert max(ticks) <= high


def test_more_figures_of_a_kind_than_asked_for_are_counted():
    assert kind("Some", [1, 2, 3], "none", 2)[1:] == ([1, 2], "1 more of this kind are left out")
    assert kind("Some", [], "none", 2)[1:] == ([], "none")


def test_a_ceiling_over_size_is_drawn_where_all_kernels_execute_nominal_operations(begun):
    for name, share, expected in (("base", 1.0, ["ceiling 50.0"]), ("fast", 0.4, [])):
        for n in (16, 64, 256):
            rates = {"gflop_per_s": 1.0, "ceiling_gflop_per_s": 50.0, "executed_flop": int(share * 2 * n**3)}
            put(begun, f"gemm/m{n}n{n}k{n}/f32/NN", f"gemm/some.{name}", taken=[2e-9 * n**3] * 12, **rates)
        (figure,) = planned(begun)["Rate over size"].figures
        texts = [text.get_text() for text in figure.draw().axes[0].texts]
        assert [text for text in texts if text.startswith("ceiling")] == expected


def test_each_operation_has_a_roofline_of_its_own_unless_its_ceilings_do_not_hold(begun):
    ceilings(begun)
    for op, rest in (("gemm", "m8n8k8/f32/NN"), ("conv", "n1c8h16w16k8r1s1/f32/nchw/fprop")):
        put(begun, f"{op}/{rest}", f"{op}/some.k")
    put(begun, "fft/b1h8w8/f32/r2c", "fft/some.k", disturbed=BEYOND)
    assert len(planned(begun)["Roofline"].figures) == 2
    for ceiling, _ in begun.ceilings("r1"):
        begun.doubt_ceiling("r1", ceiling, "surpassed")
    assert planned(begun)["Roofline"].figures == []


def test_of_many_figures_the_first_of_each_kind_come_before_the_second_of_any():
    figure = Figure("a", "A", "", lambda: None)
    chosen = first([Kind("one", [figure] * 3, ""), Kind("none", [], "no data"), Kind("two", [figure] * 3, "")], 3)
    assert [len(kind.figures) for kind in chosen] == [2, 0, 1]


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


def test_no_figure_of_speedups_or_heat_map_mixes_baselines_or_operations(begun):
    for op, rest, baseline in (("transpose", "/out", "a"), ("transpose", "/in", "b"), ("copy", "", "a")):
        for n, name in product((1, 2), "kl"):
            ratio = {"baseline": f"{op}/{baseline}", "speedup": 1.1}
            put(begun, f"{op}/m{n}n8/f32{rest}", f"{op}/some.{name}", **ratio)
    data = RunData(begun, "r1")
    baselines = ["copy/a", "transpose/a", "transpose/b"]
    assert sorted((plot.baseline, len(plot.dots)) for plot in speedups.plots(data)) == [(b, 4) for b in baselines]
    assert sorted((m.contests[0].fastest.baseline, len(m.contests)) for m in heat.maps(data)) == [
        (baseline, 2) for baseline in baselines
    ]


def test_a_noisy_dot_is_marked_and_a_long_whisker_is_cut_as_the_caption_says(begun):
    ends = {"speedup": 1.1, "speedup_ci95_low": 0.9, "speedup_ci95_high": 50.0}
    put(begun, "copy/m8n8/f32", "copy/a.k", baseline="copy/b", disturbed=DISTURBED, **ends)
    (plot,) = speedups.plots(RunData(begun, "r1"))
    assert (plot.dots[0].noisy, plot.lanes[0].text) == (True, "~1.1x [0.9, 50]")
    assert plot.range[1] < 3
    assert "Long ones are cut at the edge." in plot.caption


def test_a_heat_map_shows_the_time_of_the_winner_multiples_of_it_and_what_ties_with_it(begun):
    for name, taken in (("a", (1.0, 1.2)), ("b", (1.01, 1.19)), ("c", (4.0, 4.4))):
        put(begun, "copy/m1n8/f32", f"copy/some.{name}", taken=[1e-3 * t for t in taken] * 6)
    for name, median in (("a", 1e-3), ("c", 2e-3)):
        put(begun, "copy/m2n8/f32", f"copy/some.{name}", taken=[median] * 6)
    (heat_map,) = heat.maps(RunData(begun, "r1"))
    tie, win = ([heat_map.cell(c, f"copy/some.{name}") for name in "abc"] for c in heat_map.contests)
    assert [cell.outline for cell in tie] == ["ties", "ties", ""]
    assert [cell and (cell.text, cell.outline) for cell in win] == [("1.00 ms", "wins"), None, ("2.00x", "")]
    assert heat_map.labels == ("n8 f32", ["m1", "m2"])
    assert heat_map.caption.startswith("copy, n8 f32; Some CPU")


def test_values_in_a_heat_map_stay_in_their_cells(begun):
    for n in (1, 2):
        for i in range(heat.MOST_KERNELS):
            problem = f"conv/n2c4h17w15k6r5s3stride{n}/f32/nchw/wgrad/g2"
            put(begun, problem, f"conv/provider.kernel{i}", 1e-3 * (1 + 10 * i), disturbed=DISTURBED)
    (figure,) = heat.heat_maps(RunData(begun, "r1")).figures
    (axes,) = rendered(figure).axes
    width = axes.get_window_extent().width / heat.MOST_KERNELS
    names = [*axes.get_xticklabels(), *axes.texts]
    assert max(text.get_window_extent().width for text in names) < width


CHANNELS, SIDES = (8, 32, 128), (7, 14, 28)


def convolve(store, r, channels=CHANNELS, **times):
    for c in channels:
        for side in SIDES:
            dims = {"n": 1, "c": c, "h": side, "w": side, "k": 64, "r": r, "s": r, "direction": "fprop"}
            in_turn(store, f"conv/n1c{c}h{side}w{side}k64r{r}s{r}/f32/nchw/fprop", dims, "conv/some.direct", **times)


def test_each_filter_is_a_panel_of_its_winners_and_ties_are_no_wins(begun):
    convolve(begun, 5, direct=1e-3, fft=1e-3)
    convolve(begun, 1, direct=1e-3, fft=2e-3)
    convolve(begun, 3, CHANNELS[:2], direct=3e-3, fft=2e-3)
    convolve(begun, 3, CHANNELS[2:], direct=1e-3, fft=2e-3)
    (figure,) = planned(begun)[TITLE].figures
    panels = {panel.title: panel for panel in figure.draw.args[0]}
    assert list(panels) == ["1x1", "3x3", "5x5"]
    assert set(panels["1x1"].spots) == {Spot(c, side, "conv/some.direct") for c in CHANNELS for side in SIDES}
    assert {(spot.channels, spot.kernel) for spot in panels["3x3"].spots} == {
        (8, "conv/some.fft"), (32, "conv/some.fft"), (128, "conv/some.direct"),
    }  # fmt: skip
    assert {spot.certain for spot in panels["5x5"].spots} == {False}
    assert "Certain wins: some.direct 12, some.fft 6, of 27 problems." in figure.caption


def test_storage_types_are_maps_of_their_own_few_places_are_none_and_winners_that_were_disturbed_are_marked(begun):
    convolve(begun, 3, direct=1e-3, fft=2e-3)
    dims = {"h": 7, "w": 7, "r": 3, "s": 3}
    in_turn(begun, "conv/n1c8h7w7k64r3s3/f16/nchw/fprop", dims | {"c": 8}, direct=1, fft=2)
    for kernel, median, disturbed in (("fft", 1.0, DISTURBED), ("direct", 2.0, "")):
        problem = "conv/n1c9h7w7k64r3s3/f32/nchw/fprop"
        put(begun, problem, f"conv/some.{kernel}", median, dims | {"c": 9}, disturbed=disturbed)
    (figure,) = planned(begun)[TITLE].figures
    assert figure.title == f"{TITLE}: convolution, f32/nchw/fprop"
    assert [spot.channels for panel in figure.draw.args[0] for spot in panel.spots if spot.noisy] == [9]


def test_the_four_filters_with_the_most_places_are_shown_in_their_order():
    counts = {"a": 4, "b": 1, "c": 3, "d": 9, "e": 2}
    panels = [Panel(name, [Spot(c, 7, "x") for c in range(of)]) for name, of in counts.items()]
    assert [panel.title for panel in most_places(panels)] == ["a", "c", "d", "e"]


@pytest.mark.long
def test_problems_of_one_place_stand_side_by_side_and_only_winners_are_named(begun):
    convolve(begun, 3, direct=1e-3, fft=2e-3, slow=9e-3)
    same = {"n": 2, "c": 8, "h": 7, "w": 7, "k": 64, "r": 3, "s": 3}
    in_turn(begun, "conv/n2c8h7w7k64r3s3/f32/nchw/fprop", same, "conv/some.direct", direct=2e-3, fft=1e-3)
    drawing = rendered(planned(begun)[TITLE].figures[0])
    xs = sorted(x for line in drawing.axes[0].lines for x in line.get_xdata())
    assert len(set(xs)) == len(CHANNELS) + 2
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["some.direct", "some.fft"]


def gained(store):
    data = RunData(store, "r1")
    return gains_over_size(data, style.looks(r.kernel for r in data.timed))


def gains(store):
    (figure,) = gained(store).figures
    return {gain.row.problem: gain for gain in figure.draw.args[0]}


def pair(store, n: int, one: float, two: float, flop: float = 0, nbytes: float = 1e3, layout: str = "NN", **more):
    problem, flop = f"gemm/m{n}n{n}k{n}/f32/{layout}", flop or 2 * n**3
    for threads, seconds in ((1, one), (2, two)):
        rates = {"gflop_per_s": flop * 1e-9 / seconds, "gbyte_per_s": nbytes * 1e-9 / seconds}
        put(store, problem, "gemm/some.base", taken=[seconds] * 12, threads=threads, **rates, **more)
    return problem


def test_the_gain_over_one_thread_is_not_measured_in_turn_and_ceilings_allow_what_they_leave_where_both_are_known(
    begun,
):
    computes, moves = pair(begun, 64, 3e-3, 2e-3, flop=1e9), pair(begun, 8, 1e-5, 2e-5, flop=1, nbytes=1e9)
    ratios = {problem: gain.ratio for problem, gain in gains(begun).items()}
    assert {problem: ratio.median for problem, ratio in ratios.items()} == pytest.approx({computes: 1.5, moves: 0.5})
    assert not any(ratio.in_turn for ratio in ratios.values())
    assert {gain.allowed for gain in gains(begun).values()} == {None}
    ceilings(begun, 2)
    assert {gain.allowed for gain in gains(begun).values()} == {None}
    for ceiling, _ in RunData(begun, "r1").all_ceilings:
        share = {"fp32": 0.5, "memory": 0.8}[ceiling.kind]
        begun.add_ceiling("r1", msgspec.structs.replace(ceiling, threads=1, rate=share * ceiling.rate))
    allowed = {problem: gain.allowed for problem, gain in gains(begun).items()}
    assert allowed == pytest.approx({computes: 2, moves: 1.25})


def test_one_size_or_one_thread_count_makes_no_figure_and_says_why(begun):
    pair(begun, 8, 1e-5, 2e-5)
    pair(begun, 8, 1e-5, 3e-5, layout="NT")
    put(begun, "gemm/m9n9k9/f32/NN", "gemm/some.base", threads=2)
    pair(begun, 16, 1e-5, 2e-5, disturbed=BEYOND)
    assert gained(begun).figures == []
    assert "--threads 1,2" in gained(begun).omitted


LSTM, RESNET = "aggregate/w4n1048576/f32/ef", "aggregate/w4n25502912/f32/ef"
TIMES = {"cpu.host_serial": 4.0, "cpu.host_parallel": 2.0, "cpu.tree": 3.0, "cpu.onebit": 5.0}


def summed(store, problem, times=TIMES, **more):
    w, n = (int(word) for word in problem.split("/")[1][1:].split("n"))
    for kernel, ms in times.items():
        numerics = {"numerics": "onebit"} if kernel == "cpu.onebit" else {}
        dims = {"w": w, "n": n, "step": "sum", "feedback": "ef"}
        put(store, problem, f"aggregate/{kernel}", ms * 1e-3, dims, **numerics, **more)


def test_each_network_has_its_winner_and_by_how_much(begun, registry):
    summed(begun, LSTM)
    summed(begun, RESNET, {**TIMES, "cpu.onebit": 1.0})
    (figure,) = aggregations(RunData(begun, "r1"), registry).figures
    assert figure.title == "Aggregation: the gradients of 4 workers"
    assert "LSTM: cpu.host_parallel 2x" in figure.caption
    assert "ResNet-50: cpu.onebit 3.99x" in figure.caption
    rendered(figure)


def test_one_network_or_no_baseline_makes_no_figure(begun, registry):
    summed(begun, LSTM)
    summed(begun, RESNET, {"cpu.tree": 1.0, "cpu.ring": 1.0})
    summed(begun, RESNET, {"cpu.host_serial": 1.0}, disturbed=BEYOND)
    kind = aggregations(RunData(begun, "r1"), registry)
    assert (kind.figures, kind.omitted[:31]) == ([], "fewer than two sets of gradient")


def test_a_run_of_layers_and_gradients_shows_what_parallelism_gains_and_keeps_all_its_rows(begun, registry):
    for layer, part in (("gemm/m1n2000k500/f32/NT", "forward"), ("gemm/m2000n500k1/f32/TN", "backward")):
        begun.add_layer("r1", Layer("net", layer, part, 1))
        put(begun, layer, "gemm/numpy.matmul")
    summed(begun, LSTM)
    data = RunData(begun, "r1")
    (figure,) = scaling_of_run(data, registry).figures
    assert figure.title == "Data parallelism, computed: net"
    assert len(list(begun.results("r1"))) == 2 + len(TIMES)
