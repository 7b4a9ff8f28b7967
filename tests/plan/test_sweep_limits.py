"""How large the numbers of a suite may be: what no machine and no store could hold is refused when it is read."""

import pytest

COPY = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 1\n"
HUGE = "9" * 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COPY + "m = {linear = [1, 100000000000000000000, 1]}", "expected {pow2 = [first, last]} or {linear = "),
        (COPY + "m = {linear = [-9223372036854775808, 9223372036854775807, 1]}", "expected {pow2 = [first, last]} or"),
        (COPY + "m = {linear = [1, 10000001, 1]}", "[[sweep]] 1: has 10,000,001 problems, expected at most 10,000,000"),
        (COPY + f"m = {HUGE}", "expected `int` <= 9223372036854775807"),
        (COPY + f"m = 1\ncount = {HUGE}", "expected integers from 1 to 9223372036854775807"),
        (COPY + f"m = 1\nmax_time = {HUGE}", "expected a finite number of seconds above 0"),
    ],
    ids=["linear", "wide", "problems", "size", "count", "max_time"],
)
def test_a_number_that_is_too_large_is_one_line(load, complaint, text, said) -> None:
    assert said in complaint(lambda: load(text + "\n"))


def test_the_largest_sweep_is_read_and_not_expanded(load) -> None:
    assert next(load(COPY + "m = {linear = [1, 10000000, 1]}\n").entries()).problem.id == "copy/m1n1/f32"
