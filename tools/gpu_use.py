"""Uses of a name of a package, as gpu_reader.py finds them."""

from typing import NamedTuple

Values = tuple[str, ...]


class Arguments(NamedTuple):
    """Arguments of a call: how many have no name, the names of the others, and whether `*` or `**` adds more."""

    positional: int
    keywords: tuple[str, ...]
    stars: bool
    types: tuple[Values, ...] = ()


class Use(NamedTuple):
    """A name of a package as it is used: where, and with which arguments if it is called.

    span: lines and columns of the call, first and last.
    """

    name: str
    file: str
    span: tuple[int, int, int, int]
    arguments: Arguments | None = None

    @property
    def where(self) -> str:
        """`bench/measure/launch.py:170`."""
        return f"{self.file}:{self.span[0]}"
