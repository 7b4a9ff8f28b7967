"""The suite of gradients: as many elements as the layers have weights, by 2, 4 and 8 workers, in 12 GB."""

from collections import defaultdict
from itertools import pairwise

import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from support.tools import script

NETWORKS = script("networks")
#: A worker's own memory, and the last-level cache of the machine whose memory was read.
LIMIT_BYTES, WORKER_BYTES, LLC_BYTES = 12e9, 0.4e9, 32 * 2**20


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


def peak_bytes(problem):
    """Sets of operands, the values drawn for them, the reference, and a byte for each residual that is compared."""
    sets = Mode.COLD.rotation(problem.footprint_bytes, LLC_BYTES).sets
    drawn = sum(operand.nbytes for operand in problem.operands() if operand.role != "out")
    compared = sum(operand.elements for operand in problem.operands() if operand.role == "inout")
    return sets * problem.footprint_bytes + drawn + 8 * problem.n + compared


def test_what_a_problem_takes_in_all_is_less_than_the_limit(entries):
    assert max(peak_bytes(entry.problem) for entry in entries) + WORKER_BYTES < LIMIT_BYTES
