"""Figures: which a run has the data for, and that they are the same bytes for the same data."""

import re
from itertools import pairwise

import pytest

from kernelmark.bench.report.figures import draw, first, kinds, style
from kernelmark.bench.report.figures.style import Figure, Kind, file_name, kind
from kernelmark.bench.report.run_data import RunData
from support.rows import ceilings, fail, put, varied

pytest.importorskip("matplotlib")


#: Which take a run of their own: tests/report/test_winners.py, tests/report/test_aggregation_figure.py.
OF_OTHERS = ["Which algorithm where", "Aggregation of gradients", "Data parallelism"]


def planned(store, registry=None):
    return {found.title: found for found in kinds(RunData(store, "r1"), registry)}


def names(store):
    return [figure.name for found in planned(store).values() for figure in found.figures]


def test_a_run_with_everything_has_every_kind_of_figure(store):
    varied(store)
    found = planned(store)
    assert [title for title, each in found.items() if not each.figures] == OF_OTHERS
    assert list(found) == [
        "Speedup",
        "Problems x kernels",
        "Roofline",
        "Rate over size",
        "Layouts x kernels",
        "Thread scaling",
        "Thread scaling over size",
        "Crossover of convolution algorithms",
        *OF_OTHERS,
        "Distribution of samples",
    ]


def test_what_cannot_be_drawn_says_why_in_one_line(begun):
    for found in planned(begun).values():
        assert found.figures == []
        assert found.omitted
        assert "\n" not in found.omitted


def test_failures_are_in_no_figure(begun):
    fail(begun, "gemm/m8n8k8/f32/NN", "gemm/some.bad")
    assert names(begun) == []


def test_one_row_is_enough_for_its_samples(begun):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    assert names(begun) == ["samples-gemm-cpu-t2-cold-fp32"]


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """A store whose run has every kind of figure."""
    from kernelmark.bench.record.store import Store

    store = Store(tmp_path_factory.mktemp("store") / "results.db")
    varied(store)
    yield store
    store.close()


@pytest.fixture(scope="module")
def drawn(every, tmp_path_factory):
    """Every figure, drawn into a folder, and the first of each kind drawn again into another."""
    folders = [tmp_path_factory.mktemp("drawn") for _ in range(2)]
    found = list(draw(kinds(RunData(every, "r1")), folders[0]))
    again = [each._replace(figures=each.figures[:1]) for each in kinds(RunData(every, "r1"))]
    assert len(list(draw(again, folders[1]))) == len(again) - len(OF_OTHERS)
    return found, folders


@pytest.mark.long
def test_figures_are_the_same_bytes_for_the_same_data(drawn):
    _, (one, other) = drawn
    files = sorted(path.name for path in other.iterdir())
    assert {path.suffix for path in other.iterdir()} == {".svg", ".pdf"}
    assert {file for file in files if (one / file).read_bytes() != (other / file).read_bytes()} == set()


@pytest.mark.long
def test_each_figure_is_svg_and_pdf_and_one_or_two_columns_wide(drawn):
    figures, (folder, _) = drawn
    for figure in figures:
        assert (folder / f"{figure.name}.pdf").read_bytes().startswith(b"%PDF")
        width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', figure.svg).group(1))
        columns = 178 if figure.name.startswith("problems-") else 85
        assert width == pytest.approx(columns / 25.4 * 72, abs=0.01)


@pytest.mark.long
def test_pdfs_embed_truetype_and_svgs_need_no_font(drawn):
    figures, (folder, _) = drawn
    for figure in figures:
        pdf = (folder / f"{figure.name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"/CreationDate" not in pdf
        assert "<text" not in figure.svg
        assert "<dc:date>" not in figure.svg


@pytest.fixture(scope="module")
def laid_out(every):
    """Each figure after its layout, by name."""
    from matplotlib import rc_context

    found = {}
    with rc_context(style.RC):
        for figure in (figure for kind in kinds(RunData(every, "r1")) for figure in kind.figures):
            found[figure.name] = figure.draw()
            found[figure.name].draw_without_rendering()
    return found


def test_no_text_is_smaller_than_six_and_a_half_points(laid_out):
    from matplotlib.text import Text

    for name, drawing in laid_out.items():
        texts = [text for text in drawing.findobj(Text) if text.get_text().strip()]
        assert min(text.get_fontsize() for text in texts) >= 6.5, name


def test_nothing_sticks_out_of_a_figure(laid_out):
    for name, drawing in laid_out.items():
        box, (width, height) = drawing.get_tightbbox(), drawing.get_size_inches()
        assert min(box.x0, box.y0) > -0.01, name
        assert box.x1 < width + 0.01, name
        assert box.y1 < height + 0.01, name


def test_labels_in_the_margin_do_not_overlap(begun):
    from matplotlib import rc_context

    ceilings(begun)
    for n in (16, 64, 256):
        for i in range(8):
            median = n**3 * 1e-10 * (1 + i / 1000)
            put(begun, f"gemm/m{n}n{n}k{n}/f32/NN", f"gemm/some.k{i}", median, gflop_per_s=n**3 * 2e-9 / median)
    found = planned(begun)
    with rc_context(style.RC):
        for figure in (*found["Rate over size"].figures, *found["Roofline"].figures):
            drawing = figure.draw()
            drawing.draw_without_rendering()
            texts = [text for text in drawing.axes[0].texts if text.get_text().startswith("some.k")]
            heights = sorted(text.get_window_extent().y0 * 72 / drawing.dpi for text in texts)
            assert len(heights) == 8
            assert min(above - below for below, above in pairwise(heights)) > 7.4, figure.name


def test_a_kernel_looks_the_same_whatever_else_was_measured_first():
    assert style.looks(["b", "a", "c"]) == style.looks(["c", "b", "a", "a"])


def test_kernels_that_share_a_colour_differ_in_marker_and_hatch():
    found = list(style.looks(f"k{i:02}" for i in range(40)).values())
    assert len({(look.colour, look.marker) for look in found}) == 40


def test_labels_are_pushed_apart_and_stay_in_their_range():
    placed = style.spread_apart([5.0, 5.1, 5.2, 9.9], 1.0, 0.0, 10.0)
    assert all(b - a >= 0.999 for a, b in pairwise(placed))
    assert placed[0] >= 0
    assert placed[-1] <= 10


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


def test_file_names_are_tame():
    assert file_name("rate", "conv/f32", "n'1", "") == "rate-conv-f32-n-1"


def test_a_ceiling_that_does_not_hold_draws_no_roof(begun):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    ceilings(begun)
    assert planned(begun)["Roofline"].figures
    for ceiling, _ in begun.ceilings("r1"):
        begun.doubt_ceiling("r1", ceiling, "surpassed")
    assert not planned(begun)["Roofline"].figures


def test_each_operation_has_a_roofline_of_its_own(begun):
    ceilings(begun)
    for op, rest in (("gemm", "m8n8k8/f32/NN"), ("conv", "n1c8h16w16k8r1s1/f32/nchw/fprop")):
        put(begun, f"{op}/{rest}", f"{op}/some.k")
    assert len(planned(begun)["Roofline"].figures) == 2


def test_an_svg_follows_the_readers_colour_scheme(every, tmp_path):
    for figure in draw(kinds(RunData(every, "r1")), tmp_path, pdf=False):
        assert "@media (prefers-color-scheme: dark)" in figure.svg
        assert "fill: #ffffff" not in figure.svg.partition("</style>")[0]


def test_of_many_figures_the_first_of_each_kind_come_before_the_second_of_any():
    figure = Figure("a", "A", "", lambda: None)
    found = first([Kind("one", [figure] * 3, ""), Kind("none", [], "no data"), Kind("two", [figure] * 3, "")], 3)
    assert [len(kind.figures) for kind in found] == [2, 0, 1]
