"""Selectors as code and as figures: exports choose the same kernel as the model, and tints show its answers."""

import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kernelmark.bench.report.figures import draw
from kernelmark.bench.tune.select.export import as_c, as_python
from kernelmark.bench.tune.select.growers import CLIP, DEPTH, GROWERS, LEAST, descend, grow, taught
from kernelmark.bench.tune.select.model import answer, placed, space_in
from kernelmark.bench.tune.select.train import held_out, losses, train
from kernelmark.bench.tune.select.training import data_of, read_times, space_of
from kernelmark.bench.tune.select.view import choice_figures
from support.tuning import DIRECT, FIRST, IM2COL, SECOND, at, convolutions, plant


@pytest.fixture(params=["alone", "formula"])
def convolution(request, store, registry, monkeypatch):
    """A selector of such a run, with 10,000 problems within it and beyond, and its orders of kernels for them."""
    convolutions(store)
    monkeypatch.setattr("kernelmark.bench.tune.select.train.GROWERS", {request.param: GROWERS[request.param]})
    model = train(store, registry, ["conv"], ()).model
    assert not model.single
    assert (model.formula is not None) == (request.param == "formula")
    rng, drawn = random.Random(1), []
    while len(drawn) < 10_000:
        numbers = [float(rng.randint(1, 2 ** rng.randint(1, 11))) for _ in model.inputs]
        drawn.append([*numbers, float(rng.randrange(3))])
    splits = [node for node in model.tree if node.expression and "==" not in node.expression]
    for i, row in enumerate(drawn[::2] if splits else ()):  # half of them at a threshold, where less and equal differ
        node = splits[i % len(splits)]
        first, *others = re.findall(r"[a-z]\w*", node.expression)
        row[model.inputs.index(first)] = node.threshold
        for name in {*others} - {first}:
            row[model.inputs.index(name)] = 1.0
    space = space_in(model, registry)
    return model, drawn, [placed(model, space, np.array([row]))[1] for row in drawn]


def test_the_python_and_the_c_export_choose_as_the_model_does_on_10_000_shapes(convolution, tmp_path):
    model, drawn, expected = convolution
    scope = {}
    exec(as_python(model), scope)
    found = [scope["select"](*row[:-1], model.words["direction"][int(row[-1])]) for row in drawn]
    assert [list(order) for order in found] == expected
    assert len({order[0] for order in found}) == 2
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler; apt-get install gcc")
    count = len(model.inputs)
    (tmp_path / "select.h").write_text(as_c(model))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "select.h"\nint main(void) {\n'
        f"    double v[{count}]; int word;\n    for (;;) {{\n"
        f'        for (int i = 0; i < {count}; i++) if (scanf("%lf", &v[i]) != 1) return 0;\n'
        '        if (scanf("%d", &word) != 1) return 1;\n'
        f"        for (int rank = 0; rank < KERNELMARK_CONV_KERNELS; rank++)\n"
        f"            puts(kernelmark_conv_kernels[kernelmark_conv_select("
        f"{', '.join(f'v[{i}]' for i in range(count))}, word, rank)]);\n    }}\n}}\n"
    )
    words = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "main.c", "-o", "main", "-lm"]
    subprocess.run(words, cwd=tmp_path, check=True)
    text = "\n".join(" ".join([*map(repr, row[:-1]), str(int(row[-1]))]) for row in drawn)
    done = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [kernel for order in expected for kernel in order]


def scattered(store, registry, noise=0.2):
    """Convolutions whose times are a fifth off by what no size explains."""
    convolutions(store, 160, noise)
    times = read_times(store, registry, ["conv"])
    return data_of(times, space_of(times.problems))


def test_a_tree_agrees_with_that_of_scikit_learn_where_it_is_installed(store, registry):
    trees = pytest.importorskip("sklearn.tree", reason="scikit-learn is not installed; pip install scikit-learn")
    data = scattered(store, registry, 0.0)
    costs = np.minimum(data.costs, CLIP)
    theirs = trees.DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAST, random_state=0)
    features = data.space.features(data.known)
    chosen = theirs.fit(features, costs).predict(features).argmin(axis=1)
    own = grow(features, data.costs)
    same = [int(descend(own, row).order[0]) == place for row, place in zip(features, chosen, strict=True)]
    assert sum(same) / len(same) > 0.97


def test_of_all_ways_to_make_a_selector_the_one_is_kept_that_loses_least_on_held_out_families(store, registry):
    data = scattered(store, registry)
    lost = {grown: losses(data.times, held_out(data, grown))[0].logs.mean() for grown in GROWERS}
    model = train(store, registry, ["conv"], ()).model
    assert len(set(lost.values())) == len(lost) == 3
    assert model.grown == min(lost, key=lost.get)
    assert model.regret.lines[0].share.mean == pytest.approx(np.exp(-min(lost.values())))


def test_each_measured_problem_is_at_the_leaf_that_its_features_lead_to(store, registry):
    data = scattered(store, registry)
    root, features = taught(data.space, data.known, data.costs), data.space.features(data.known)
    found = {id(node): node for node in (descend(root, values) for values in features)}
    assert sorted(np.concatenate([node.rows for node in found.values()]).tolist()) == list(range(160))
    for node in found.values():
        assert {id(descend(root, features[row])) for row in node.rows} == {id(node)}


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


def test_a_kernel_that_stands_in_for_one_that_refuses_has_a_look(model, registry):
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
