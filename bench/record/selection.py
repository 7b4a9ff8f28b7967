"""Which rows of the runs in a store are looked at: globs over whole ids of kernels and problems, and words."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple


class Selection(NamedTuple):
    """Rows that match one of each kind; a kind that is empty leaves none out."""

    kernels: Sequence[str] = ()
    op: Sequence[str] = ()
    problem: Sequence[str] = ()
    status: Sequence[str] = ()

    def takes(self, kernel: str, op: str, problem: str, status: str) -> bool:
        """Whether a row with these values is one of them."""
        return (
            (not self.op or op in self.op)
            and (not self.status or status in self.status)
            and _matches(kernel, self.kernels)
            and _matches(problem, self.problem)
        )

    def __str__(self) -> str:
        """Return the options that ask for it: `--op gemm --status ok`."""
        return " ".join(f"--{name} {text}" for name, texts in self._asdict().items() for text in texts)


def _matches(text: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
