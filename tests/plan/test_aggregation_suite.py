"""The suite of gradients: as many elements as the layers have weights, by 2, 4 and 8 workers, in 12 GB."""

from collections import defaultdict
from itertools import pairwise

import pytest

from bench.plan.discovery import discover
from bench.plan.suites import find_suite
from scripts import script

NETWORKS = script("networks")
LIMIT_BYTES = 12e9


@pytest.fixture(scope="module")
def entries():
    return list(find_suite("aggregation", discover()).entries())


def weights(layers):
    return sum(
        layer.c * layer.k * layer.r * layer.s if isinstance(layer, NETWORKS.Conv) else layer.inputs * layer.outputs
        for layer in layers
    )


def dense(*widths):
    return sum(a * b for a, b in pairwise(widths))


def test_gradients_are_as_large_as_the_layers(entries):
    hidden = 2048
    expected = {
        "AlexNet": weights(NETWORKS.alexnet()),
        "GoogLeNet": weights(NETWORKS.googlenet()),
        "ResNet-50": weights(NETWORKS.resnet50()),
        "VGG-16": weights(NETWORKS.vgg16()),
        "FCN-5": dense(26752, *[hidden] * 3, 26752),
        "FCN-8": dense(26752, *[hidden] * 6, 26752),
        "FCN-R": dense(784, 2048, 4096, 1024, 10),
        "FCN-R, by its transfer": round(0.0256 * 8e9 / 4),
        "LSTM": 2 * (2 * 256) * (4 * 256),
    }
    assert {entry.network: entry.problem.n for entry in entries} == expected


def test_each_network_has_two_four_and_eight_workers(entries):
    found = defaultdict(set)
    for entry in entries:
        found[entry.network].add(entry.problem.w)
    assert set(map(frozenset, found.values())) == {frozenset({2, 4, 8})}


def test_operands_values_drawn_and_reference_take_less_than_the_limit(entries):
    assert max(2 * entry.problem.footprint_bytes + 8 * entry.problem.n for entry in entries) < LIMIT_BYTES
