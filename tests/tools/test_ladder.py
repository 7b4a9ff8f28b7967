"""docs/ladder.md: made by a command, complete, and without a figure that no report holds."""

from kernelmark.bench.plan.kernel import CudaKernel

TOOL = "ladder"


def test_the_page_names_every_hand_written_kernel_with_its_idea(tool, registry):
    page = tool.PAGE.read_text(encoding="utf-8")
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and kernel.is_ours:
            row = next((line for line in page.splitlines() if line.startswith(f"| [{kernel.id}]")), "")
            assert f"(../cuda/{kernel.source})" in row, f"{kernel.id}: run make ladder"
            assert kernel.label in row, f"{kernel.id}: run make ladder"


def test_each_kernel_stands_on_one_ladder_and_the_named_rungs_exist(tool, registry):
    found = [kernel.id for kernels in tool.rungs(registry).values() for kernel in kernels]
    assert len(found) == len(set(found))
    named = sum(len(names) for _, *names in tool.LADDERS.values())
    assert len(found) == named + len(tool.rungs(registry)["Others"])


def test_a_rung_has_the_resources_of_its_default_tile(tool, registry, cuda_compiler):
    name, label, threads, *_ = tool.rung(registry, registry.kernels["gemm/cuda.tiled"])
    assert (name, threads) == ("[gemm/cuda.tiled](../cuda/gemm/tiled.cu)", "1024")
    assert label == registry.kernels["gemm/cuda.tiled"].label


def test_rates_are_those_of_published_reports_on_problems_that_several_rungs_share(tool):
    row = {"kernel": "gemm/cuda.a", "problem": "gemm/x", "mode": "cold", "time_s_median": "1e-3"}
    row |= {"gflop_per_s": "12345.6", "gbyte_per_s": ""}
    alone = row | {"problem": "gemm/y"}
    failed = row | {"kernel": "gemm/cuda.c", "time_s_median": ""}
    rows = [row, row | {"kernel": "gemm/cuda.b", "gflop_per_s": "1"}, alone, failed]
    rows.append(row | {"kernel": "gemm/cuda.b", "gflop_per_s": "98.76"})  # of a later run
    title, table = tool.rates(["gemm/cuda.b", "gemm/cuda.a", "gemm/cuda.c"], {"h100-2026": rows})
    assert title == "GFLOP/s, cold, [h100-2026](../reports/h100-2026/README.md):"
    assert [line.split("|")[1:-1] for line in table.replace(" ", "").splitlines()[2:]] == [
        ["gemm/cuda.b", "98.8"],
        ["gemm/cuda.a", "12346"],
    ]
    assert "y" not in table
    assert list(tool.rates(["gemm/cuda.a"], {})) == []
