"""The suites of convolutions hold the layers that their sources state."""

from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.suites import find_suite
from support.tools import script

NETWORKS = script("networks")
CONV = script("suites")
NAMES = ["alexnet", "vgg16", "googlenet", "inception3", "resnet50", "resnext50", "mobilenet2", "cifar10"]


@pytest.fixture
def entries(registry):
    return lambda name: list(find_suite(name, registry).entries())


# Multiply-adds of one image forward, as the papers and torchvision state them (in 10^9).
@pytest.mark.parametrize(
    ("name", "macs", "convolutions"),
    [
        ("vgg16", 15.5, 13),
        ("resnet50", 4.1, 53),
        ("googlenet", 1.58, 57),
        ("inception3", 5.7, 94),
        ("alexnet", 1.14, 5),
        ("resnext50", 4.23, 53),
        ("mobilenet2", 0.3, 52),
    ],
)
def test_a_network_has_the_layers_and_the_work_that_are_known_of_it(entries, name, macs, convolutions):
    forward = [e for e in entries(name) if e.part == "forward"]
    assert sum(e.count for e in forward if e.problem.op == "conv") == convolutions
    assert sum(e.count * e.problem.flop for e in forward) / 2e9 == pytest.approx(macs, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_backward_is_twice_forward_but_for_the_gradient_of_the_image(entries, name):
    kinds = Counter()
    for e in entries(name):
        kinds[e.network, getattr(e.problem, "direction", "") or e.problem.layout] += e.count
    for network in {network for network, _ in kinds}:
        assert kinds[network, "fprop"] == kinds[network, "wgrad"] == kinds[network, "dgrad"] + 1
        assert kinds[network, "NT"] == kinds[network, "TN"] == kinds[network, "NN"]


@pytest.mark.parametrize("name", [n for n in dir(NETWORKS) if n.startswith(("vgg", "cifar10_vgg", "alexnet"))])
def test_images_shrink_from_layer_to_layer_as_the_convolutions_and_pools_between_them_say(name):
    convs = [layer for layer in getattr(NETWORKS, name)() if isinstance(layer, NETWORKS.Conv)]
    for before, after in pairwise(convs):
        side = (before.side + 2 * before.pad - before.r) // before.stride + 1
        assert after.c == before.k
        assert after.side in (side, side // 2)


def test_every_row_of_deepbench_is_counted(entries):
    rows = CONV.read("deepbench_conv.csv")
    assert len(rows) == 217
    found = Counter()
    for e in entries("deepbench-conv"):
        found[e.problem.direction] += e.count
    training = sum(row["set"] == "training" for row in rows)
    assert found == {"fprop": 217, "dgrad": training, "wgrad": training}


def test_rows_of_deepbench_keep_height_and_width_apart(registry, entries):
    row = {"n": "16", "c": "3", "h": "112", "w": "480", "k": "4", "r": "5", "s": "20", "pad_h": "0", "pad_w": "3",
           "stride_h": "2", "stride_w": "2"}  # fmt: skip
    values = dict(zip(("n", *CONV.AXES), CONV.deepbench_conv_case(row), strict=True))
    problem = registry.operations["conv"].make({**values, "dtype": "f32"}, "row")
    assert problem.id == "conv/n16c3h112w480k4r5s20pad0x3stride2/f32/nchw/fprop"


def test_filters_grow_at_the_same_work_and_the_image_keeps_its_size(entries):
    problems = [e.problem for e in entries("filter-sweep")]
    assert [p.r for p in problems] == list(range(1, 16))
    assert {(p.p, p.q) for p in problems} == {(56, 56)}
    work = [p.flop for p in problems]
    assert max(work) < 1.05 * 361e6
    assert min(work) > 0.95 * 361e6


def test_the_batch_doubles_to_beyond_the_memory_of_any_one_gpu(entries):
    problems = [e.problem for e in entries("batch-sweep")]
    assert [p.n for p in problems] == [2**i for i in range(16)]
    assert problems[-1].footprint_bytes > 200e9


def test_the_layers_of_a_network_know_it_when_they_are_planned(registry):
    suite = find_suite("cifar10", registry)
    planned = next(jobs([suite], registry, Plan(devices=("cpu",))))
    assert (planned.suite, planned.network, planned.part) == ("cifar10", "vgg", "forward")


def test_groups_of_mobilenet2_and_resnext50_stand_in_the_ids(entries):
    depthwise = [e.problem for e in entries("mobilenet2") if e.problem.op == "conv" and e.problem.groups > 1]
    assert all(p.c == p.k == p.groups and (p.r, p.s) == (3, 3) for p in depthwise)
    assert sum(e.count for e in entries("mobilenet2") if e.problem in depthwise and e.part == "forward") == 17
    grouped = [e.problem.id for e in entries("resnext50") if e.problem.op == "conv" and e.problem.r == 3]
    assert len(grouped) == 7 * 3
    assert all(name.endswith("/g32") for name in grouped)


@pytest.mark.parametrize("name", CONV.PEERS)
def test_conv_peers_has_each_layer_of_a_network_once_in_both_layouts_for_1_and_8_images(entries, name):
    layers = {e.problem for e in entries(name) if e.problem.op == "conv"}
    own = [e for e in entries("conv-peers") if e.network == name]
    found = Counter(e.problem for e in own)
    assert set(found.values()) == {e.count for e in own} == {1}
    for n in (1, 8):
        for layout in ("nchw", "nhwc"):
            expected = {replace(layer, n=n, layout=layout) for layer in layers}
            assert {p for p in found if (p.n, p.layout) == (n, layout)} == expected
    assert len(found) == 4 * len(layers)
