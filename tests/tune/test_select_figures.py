"""The figure of a selector's choice: what is tinted is what it answers, over the winners that it was made from."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kernelmark.bench.report.figures import draw
from kernelmark.bench.tune.select.answer import answer
from kernelmark.bench.tune.select.figure import choice_figures
from kernelmark.bench.tune.select.train import train
from support.tuning import DIRECT, FIRST, IM2COL, SECOND, at, convolutions, plant

pytest.importorskip("matplotlib")


@pytest.fixture
def model(store, registry):
    """A selector of convolutions of every direction, with four filters."""
    convolutions(store)
    return train(store, registry, ["conv"], []).model


def panels_of(figure):
    return {panel.title.partition(" ")[0]: panel for panel in figure.draw.args[0]}


def test_each_direction_is_a_figure_with_a_panel_for_each_filter(model, registry):
    found = choice_figures(model, registry)
    assert {figure.title.rpartition("/")[2] for figure in found.figures} == {"fprop", "dgrad", "wgrad"}
    assert [list(panels_of(figure)) for figure in found.figures] == [["1x1", "3x3", "5x5", "7x7"]] * 3
    spots = [spot for figure in found.figures for panel in panels_of(figure).values() for spot in panel.spots]
    assert sorted(spot.kernel for spot in spots) == sorted(one.fastest for one in model.measured)
    assert "Tint: the kernel that the selector chooses" in found.figures[0].caption


def test_what_is_tinted_is_what_the_selector_answers(model, registry):
    (figure,) = [one for one in choice_figures(model, registry).figures if one.title.endswith("fprop")]
    panel = panels_of(figure)["3x3"]
    k = int(panel.title.rpartition("= ")[2].rstrip(")"))
    places = [(c, side) for c in (2, 60, 250) for side in (9, 29, 31, 70)]
    ids = [f"conv/n1c{c}h{side}w{side}k{k}r3s3pad1/f32/nchw/fprop" for c, side in places]
    expected = [answer(model, registry.problem(one), registry).kernel for one in ids]
    channels, sides = np.array(places, dtype=float).T
    assert panel.chosen(channels, sides) == expected
    assert set(expected) == {DIRECT, IM2COL}


def test_a_place_without_a_problem_has_no_tint(model, registry):
    panel = panels_of(choice_figures(model, registry).figures[0])["7x7"]
    assert [bool(kernel) for kernel in panel.chosen(np.array([8.0, 8.0]), np.array([0.0, 1.0]))] == [False, True]


def test_a_selector_of_products_has_no_map(store, registry):
    plant(store, {FIRST: at(), SECOND: at(2)})
    found = choice_figures(train(store, registry, ["planted"], []).model, registry)
    assert (found.figures, found.omitted[:13]) == ([], "fewer than 8 ")


def test_a_kernel_that_stands_in_for_one_that_refuses_has_a_look(store, registry):
    convolutions(store)
    model = train(store, registry, ["conv"], []).model
    leaf = msgspec.structs.replace(model.leaves[0], order=[model.kernels.index(name) for name in (IM2COL, DIRECT)])
    measured = [msgspec.structs.replace(one, fastest=IM2COL) for one in model.measured]
    alone = msgspec.structs.replace(model, tree=[leaf], measured=measured)
    registry.kernels[IM2COL] = replace(registry.kernels[IM2COL], supports=lambda problem: "refused")
    figure = choice_figures(alone, registry).figures[0]
    _, looks = figure.draw.args
    assert set(panels_of(figure)["3x3"].chosen(np.array([8.0]), np.array([9.0]))) == {DIRECT} <= looks.keys()


@pytest.mark.long
def test_regions_are_tinted_and_a_border_is_drawn_between_two(model, registry, tmp_path: Path):
    kind = choice_figures(model, registry)
    (figure,) = [one for one in kind.figures if one.title.endswith("fprop")]
    tinted = [len(axes.collections) for axes in figure.draw().axes]
    assert max(tinted) >= 4  # two regions, each with its line
    assert all(path.exists() for path in (tmp_path / f"{one.name}.svg" for one in draw([kind], tmp_path, pdf=False)))
