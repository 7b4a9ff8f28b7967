"""Select rows of runs by globs that match full ids of kernels and problems, by operation, and by status."""

from collections.abc import Sequence
from typing import NamedTuple

from kernelmark.bench.plan.globs import matches


class Selection(NamedTuple):
    """A filter of rows: a row must match an entry of each field that is not empty."""

    kernels: Sequence[str] = ()
    op: Sequence[str] = ()
    problem: Sequence[str] = ()
    status: Sequence[str] = ()

    def takes(self, kernel: str, op: str, problem: str, status: str) -> bool:
        """Return whether a row with these values is selected."""
        return (
            (not self.op or op in self.op)
            and (not self.status or status in self.status)
            and matches(kernel, self.kernels)
            and matches(problem, self.problem)
        )

    def __str__(self) -> str:
        """Return the selection as options: `--op gemm --status ok`."""
        return " ".join(f"--{name} {text}" for name, texts in self._asdict().items() for text in texts)
