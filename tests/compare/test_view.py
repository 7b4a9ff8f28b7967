"""What a comparison prints: the worst first, the smallest difference that it could have found, and counts."""

from support.compared import LOOSE, STEADY, compared, times


def test_what_has_no_time_in_either_is_counted(runs):
    bad = {"status": "unsupported", "reason": "f64"}
    text, _ = compared(runs({"m1": bad, "m2": bad, "m3": STEADY}, {"m1": bad, "m2": bad, "m3": STEADY}))
    assert "no time: 2 unsupported in both" in text
    assert text.endswith("3 cases: 0 slower, 0 faster, 1 same, 0 unclear, 2 untimed")


def test_cases_of_one_run_alone_are_counted(runs):
    text, _ = compared(runs({"m1": STEADY, "m2": STEADY, "m4": STEADY}, {"m0": STEADY, "m2": STEADY}))
    assert text.endswith("1 case: 0 slower, 0 faster, 1 same, 0 unclear; 2 in BASE only; 1 in NEW only")


def test_the_worst_stand_first_and_the_rest_is_counted(runs):
    base = {f"m{i}": STEADY for i in range(60)}
    new = {f"m{i}": times(1.1 + i / 100) for i in range(58)} | {"m58": times(0.8), "m59": STEADY}
    lines = compared(runs(base, new))[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split()[1] for line in lines[head + 1 : head + 4]] == ["copy/m57", "copy/m56", "copy/m55"]
    assert "and 8 slower, 1 faster more; --csv FILE has all" in lines
    assert not any("copy/m59" in line for line in lines)


def test_what_is_certainly_slower_stands_before_what_may_be_much_slower(runs):
    wild = (1e-3, 9e-3, 2e-3)
    lines = compared(runs({"m1": STEADY, "m2": wild}, {"m1": times(1.05), "m2": times(3, wild)}))[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split()[1] for line in lines[head + 1 : head + 3]] == ["copy/m1", "copy/m2"]


def test_the_smallest_difference_that_can_be_found_grows_with_the_number_of_cases(runs):
    store = runs({"m1": LOOSE, "m2": LOOSE}, {"m1": LOOSE, "m2": LOOSE})
    line = next(line for line in compared(store)[0].splitlines() if line.startswith("smallest difference"))
    alone, among = (float(word) for word in line.replace("%", " ").split() if word[0].isdigit() and "." in word)
    assert 5 < alone < among < 12
    assert line.endswith("among 2 (Holm)")
