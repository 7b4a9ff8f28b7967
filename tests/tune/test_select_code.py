"""Selectors as code: exports of trees and of formulas choose as the model does, and a tree as scikit-learn's does."""

import random
import re
import shutil
import subprocess

import numpy as np
import pytest

from kernelmark.bench.tune.select import rows
from kernelmark.bench.tune.select.answer import placed
from kernelmark.bench.tune.select.export import as_c, as_python
from kernelmark.bench.tune.select.forest import GROWERS, taught
from kernelmark.bench.tune.select.model import space_in
from kernelmark.bench.tune.select.regret import held_out, losses
from kernelmark.bench.tune.select.train import train
from kernelmark.bench.tune.select.training import data_of, space_of
from kernelmark.bench.tune.select.tree import CLIP, DEPTH, LEAST, descend, grow
from support.tuning import convolutions


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


def test_the_python_export_chooses_as_the_model_does_on_10_000_shapes(convolution):
    model, drawn, expected = convolution
    scope = {}
    exec(as_python(model), scope)
    found = [scope["select"](*row[:-1], model.words["direction"][int(row[-1])]) for row in drawn]
    assert [list(order) for order in found] == expected
    assert len({order[0] for order in found}) == 2


def test_the_c_export_chooses_as_the_model_does_on_10_000_shapes(convolution, tmp_path):
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler; apt-get install gcc")
    model, drawn, expected = convolution
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


def test_a_tree_agrees_with_that_of_scikit_learn_where_it_is_installed(store, registry):
    trees = pytest.importorskip("sklearn.tree", reason="scikit-learn is not installed; pip install scikit-learn")
    convolutions(store)
    times = rows.read(store, registry, ["conv"])
    data = data_of(times, space_of(times.problems))
    costs = np.minimum(data.costs, CLIP)
    theirs = trees.DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAST, random_state=0)
    chosen = theirs.fit(data.features, costs).predict(data.features).argmin(axis=1)
    own = grow(data.features, data.costs)
    same = [int(descend(own, row).order[0]) == place for row, place in zip(data.features, chosen, strict=True)]
    assert sum(same) / len(same) > 0.97


def noisy(store, registry):
    """Convolutions whose times are a fifth off by what no size explains."""
    convolutions(store, 160, 0.2)
    times = rows.read(store, registry, ["conv"])
    return data_of(times, space_of(times.problems))


def test_of_all_ways_to_make_a_selector_the_one_is_kept_that_loses_least_on_held_out_families(store, registry):
    data = noisy(store, registry)
    lost = {grown: losses(data.times, held_out(data, grown))[0].logs.mean() for grown in GROWERS}
    model = train(store, registry, ["conv"], ()).model
    assert len(set(lost.values())) == len(lost) == 3
    assert model.grown == min(lost, key=lost.get)
    assert model.regret.lines[0].share.mean == pytest.approx(np.exp(-min(lost.values())))


def test_each_measured_problem_is_at_the_leaf_that_its_features_lead_to(store, registry):
    data = noisy(store, registry)
    root = taught(data.space, data.known, data.costs)
    found = {id(node): node for node in (descend(root, values) for values in data.features)}
    assert sorted(np.concatenate([node.rows for node in found.values()]).tolist()) == list(range(160))
    for node in found.values():
        assert {id(descend(root, data.features[row])) for row in node.rows} == {id(node)}
