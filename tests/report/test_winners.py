"""The map of convolution algorithms: who won where, where that is a tie, and when there is no map."""

from pathlib import Path

import pytest

from kernelmark.bench.report.figures import draw, kinds
from kernelmark.bench.report.figures.winners import TITLE, Panel, Spot, most_places
from kernelmark.bench.report.run_data import RunData
from support.rows import DISTURBED, in_turn, put

pytest.importorskip("matplotlib")

CHANNELS, SIDES = (8, 32, 128), (7, 14, 28)


def convolve(store, r, channels=CHANNELS, **times):
    """Convolutions of one filter by every side, each by these kernels."""
    for c in channels:
        for side in SIDES:
            dims = {"n": 1, "c": c, "h": side, "w": side, "k": 64, "r": r, "s": r, "direction": "fprop"}
            in_turn(store, f"conv/n1c{c}h{side}w{side}k64r{r}s{r}/f32/nchw/fprop", dims, "conv/some.direct", **times)


def the_map(store):
    return next(kind for kind in kinds(RunData(store, "r1")) if kind.title == TITLE)


def test_each_filter_is_a_panel_of_its_winners_and_ties_are_no_wins(begun):
    convolve(begun, 5, direct=1e-3, fft=1e-3)
    convolve(begun, 1, direct=1e-3, fft=2e-3)
    convolve(begun, 3, CHANNELS[:2], direct=3e-3, fft=2e-3)
    convolve(begun, 3, CHANNELS[2:], direct=1e-3, fft=2e-3)
    (figure,) = the_map(begun).figures
    panels = {panel.title: panel for panel in figure.draw.args[0]}
    assert list(panels) == ["1x1", "3x3", "5x5"]
    assert set(panels["1x1"].spots) == {Spot(c, side, "conv/some.direct") for c in CHANNELS for side in SIDES}
    assert {(spot.channels, spot.kernel) for spot in panels["3x3"].spots} == {
        (8, "conv/some.fft"), (32, "conv/some.fft"), (128, "conv/some.direct"),
    }  # fmt: skip
    assert {spot.certain for spot in panels["5x5"].spots} == {False}
    assert "Certain wins: some.direct 12, some.fft 6, of 27 problems." in figure.caption


def test_storage_types_are_maps_of_their_own_and_few_places_are_none(begun):
    convolve(begun, 3, direct=1e-3, fft=2e-3)
    in_turn(begun, "conv/n1c8h7w7k64r3s3/f16/nchw/fprop", {"c": 8, "h": 7, "w": 7, "r": 3, "s": 3}, direct=1, fft=2)
    (figure,) = the_map(begun).figures
    assert figure.title == f"{TITLE}: convolution, f32/nchw/fprop"


def test_a_run_of_one_shape_has_no_map(begun):
    in_turn(begun, "conv/n1c8h7w7k64r3s3/f32/nchw/fprop", {"c": 8, "h": 7, "w": 7, "r": 3, "s": 3}, direct=1, fft=2)
    found = the_map(begun)
    assert (found.figures, found.omitted[:13]) == ([], "fewer than 8 ")


def test_winners_that_were_disturbed_are_marked_so(begun):
    convolve(begun, 3, direct=1e-3, fft=2e-3)
    put(begun, "conv/n1c9h7w7k64r3s3/f32/nchw/fprop", "conv/some.fft", 1.0,
        dims := {"c": 9, "h": 7, "w": 7, "r": 3, "s": 3}, layout="nchw", disturbed=DISTURBED)  # fmt: skip
    put(begun, "conv/n1c9h7w7k64r3s3/f32/nchw/fprop", "conv/some.direct", 2.0, dims, layout="nchw")
    ((panel,),) = [figure.draw.args[0] for figure in the_map(begun).figures]
    assert [spot.channels for spot in panel.spots if spot.noisy] == [9]


def test_the_four_filters_with_the_most_places_are_shown_in_their_order():
    counts = {"a": 4, "b": 1, "c": 3, "d": 9, "e": 2}
    panels = [Panel(name, [Spot(c, 7, "x") for c in range(of)]) for name, of in counts.items()]
    assert [panel.title for panel in most_places(panels)] == ["a", "c", "d", "e"]


@pytest.mark.long
def test_problems_of_one_place_stand_side_by_side_and_only_winners_are_named(begun, tmp_path: Path):
    convolve(begun, 3, direct=1e-3, fft=2e-3, slow=9e-3)
    same = {"n": 2, "c": 8, "h": 7, "w": 7, "k": 64, "r": 3, "s": 3}
    in_turn(begun, "conv/n2c8h7w7k64r3s3/f32/nchw/fprop", same, "conv/some.direct", direct=2e-3, fft=1e-3)
    found = the_map(begun)
    drawing = found.figures[0].draw()
    xs = sorted(x for line in drawing.axes[0].lines for x in line.get_xdata())
    assert len(set(xs)) == len(CHANNELS) + 2
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["some.direct", "some.fft"]
    (drawn,) = draw([found], tmp_path, pdf=False)
    assert (tmp_path / f"{drawn.name}.svg").exists()
