"""The cases that the short run keeps: each trait of a kernel's cases, and few of them."""

from emulator.proof import all_cases
from emulator.short import ALSO, is_kept, short_cases

TILED = all_cases()["gemm/cuda.tiled"]
SHORT = short_cases(TILED)


def test_each_storage_type_layout_direction_tile_and_last_size_is_kept() -> None:
    for every in all_cases().values():
        for trait in ("dtype", "layout", "direction", "place"):
            values = [{getattr(case.problem, trait, "") for case in cases} for cases in (every, short_cases(every))]
            assert values[0] == values[1]
        assert {str(case.tile) for case in every} == {str(case.tile) for case in short_cases(every)}
    sizes = [{case.problem.k for case in cases if case.problem.k <= 512} for cases in (TILED, SHORT)]
    assert sizes[0] == sizes[1]


def test_each_option_is_kept_in_each_layout() -> None:
    layouts = {"NN", "NT", "TN", "TT"}
    assert {case.problem.layout for case in SHORT if case.problem.batch > 1 and case.problem.lda_pad} == layouts


def test_one_long_problem_of_a_kernel_is_kept() -> None:
    assert len([case for case in SHORT if case.problem.k == 613]) == 1


def test_case_is_kept_where_no_other_shows_its_traits() -> None:
    assert short_cases(SHORT[:1] * 3) == SHORT[:1]
    assert [is_kept(case) for case in TILED].count(True) == len(SHORT)


def test_problem_that_mutants_need_besides_is_one_of_the_sweep() -> None:
    for kernel, problems in ALSO.items():
        kept = {case.problem.id for case in all_cases()[kernel] if is_kept(case)}
        assert kept.issuperset(problems)


def test_short_run_keeps_less_than_a_seventh_of_the_sweep() -> None:
    counts = [sum(map(len, cases)) for cases in (all_cases().values(), map(short_cases, all_cases().values()))]
    assert counts[1] * 7 < counts[0]
