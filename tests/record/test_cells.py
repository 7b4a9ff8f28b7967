"""Cells of CSV that are formed by column: what csv.writer writes of each row."""

import csv
import io
import math
import random

import pytest

from kernelmark.bench.record.table import cells


def by_writer(values):
    """What csv.writer writes of each value, next to another cell."""
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\r\n").writerows((value, "end") for value in values)
    return [line.removesuffix(",end") for line in lines.getvalue().split(",end\r\n")[:-1]]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None, None],
        ["", "plain", " with spaces ", "é", "0"],
        ["a,b", "plain", ""],
        ['say "so"', '"', '""'],
        ["two\nlines", "a\rreturn", "both\r\n", "nul\0"],
        [0, -3, 2**63 - 1, None, 17],
        [1.5, None, 3, 0.1 + 0.2],
        [True, False, None, 1],
        ["text", 3, 2.5, None],
        [[1, 2], {"a": 1}],
    ],
    ids=repr,
)
def test_cells_are_those_of_the_writer_of_rows(values):
    assert list(cells(values)) == by_writer(values)


def test_numbers_of_every_size_are_written_as_repr_writes_them():
    rng = random.Random(0)
    numbers = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 20) for _ in range(5000)]
    numbers += [0.0, -0.0, 1.0, 1e-4, 0.00012, 9.99e-5, 10.00001, 1e15, 1e16, 1e17, 5e-324, 1.7e308, 0.1 + 0.2]
    for number in numbers:
        assert cells([number]) == [repr(number)]
    assert cells([*numbers, None, math.nan]) == [*map(repr, numbers), "", ""]
