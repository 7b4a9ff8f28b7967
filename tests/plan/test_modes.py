"""What each mode does: how many sets of operands take turns, who cannot be measured in it, and which can be chosen."""

import pytest

from kernelmark.bench.plan.modes import MAX_SETS, TIMED, Mode

LLC = 32 * 2**20


@pytest.mark.parametrize(
    ("footprint", "expected"),
    [
        (2**23, (9, False)),  # eight others, 64 MiB, between two uses of one
        (2**26, (2, False)),
        (2**29, (2, False)),
        (2**30 - 1, (2, False)),
        (2**30, (1, False)),  # 32 last-level caches
        (96, (MAX_SETS, True)),
    ],
)
def test_cold_rotates_over_twice_the_last_level_cache(footprint: int, expected: tuple[int, bool]) -> None:
    assert Mode.COLD.rotation(footprint, LLC) == expected


@pytest.mark.parametrize("mode", [Mode.HOT, Mode.GRAPH, Mode.VERIFY])
def test_every_other_mode_keeps_one_set(mode: Mode) -> None:
    assert mode.rotation(96, LLC) == (1, False)


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT, Mode.VERIFY])
def test_only_graph_refuses_a_kernel(registry, mode: Mode) -> None:
    assert [kernel.id for kernel in registry.kernels.values() if mode.refuses(kernel)] == []


def test_a_graph_holds_no_kernel_of_the_cpu_and_none_that_synchronises(registry) -> None:
    kernels = registry.kernels.values()
    refused = {kernel.id for kernel in kernels if Mode.GRAPH.refuses(kernel)}
    assert refused == {kernel.id for kernel in kernels if kernel.device == "cpu" or kernel.synchronises}
    assert "gemm/numpy.matmul runs on the CPU" in (Mode.GRAPH.refuses(registry.kernels["gemm/numpy.matmul"]) or "")


def test_what_can_be_chosen_gives_times() -> None:
    assert TIMED == ("cold", "hot", "graph")


def test_every_mode_says_what_it_does() -> None:
    assert [mode for mode in Mode if f" {mode} " not in mode.does.sentence] == []
