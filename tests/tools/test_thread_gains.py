"""How kernels scale with threads, as a table: all problems by their gain, large ones by what the ceilings allow."""

import msgspec

from kernelmark.bench.report.run_data import RunData
from report_rows import begin, ceilings, put

TOOL = "thread_gains"


def pair(store, n: int, one: float, two: float, flop: float) -> None:
    for threads, seconds in ((1, one), (2, two)):
        rates = {"gflop_per_s": flop * 1e-9 / seconds, "gbyte_per_s": 1e-6}
        put(store, f"gemm/m{n}n{n}k{n}/f32/NN", "gemm/some.base", taken=[seconds] * 12, threads=threads, **rates)


def test_the_least_gain_of_all_problems_and_the_least_share_of_large_ones_stand_with_their_problems(
    store, tool, capsys
):
    begin(store)
    ceilings(store, 2)
    for ceiling, _ in RunData(store, "r1").all_ceilings:
        store.add_ceiling("r1", msgspec.structs.replace(ceiling, threads=1, rate=ceiling.rate / 2))
    pair(store, 8, 1e-5, 2e-5, flop=1e6)
    pair(store, 400, 3e-3, 2e-3, flop=1e8)
    pair(store, 500, 4e-3, 2e-3, flop=1e8)
    assert tool.main(["--db", str(store.path), "--run", "r1"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "some.base" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:6] == ["3", "1.14", "0.500", "`gemm/m8n8k8/f32/NN`", "1"]
    assert cells[6:] == ["0.866", "0.750", "`gemm/m400n400k400/f32/NN`", "1"]


def test_a_run_on_one_number_of_threads_has_no_table_and_the_line_says_what_makes_one(store, tool, capsys):
    begin(store)
    put(store, "gemm/m9n9k9/f32/NN", "gemm/some.base", threads=2)
    assert tool.main(["--db", str(store.path), "--run", "r1"]) == 2
    assert capsys.readouterr().err.endswith("has no kernel on one thread and on more; `--threads 1,2` measures both\n")
