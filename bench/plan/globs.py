"""Select names by globs, the same way wherever kernels or problems are chosen."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name matches any of the globs, or none is given; `!GLOB` excludes names that match GLOB.

    A tile is the part of a kernel's name after an @. A glob without @ matches a kernel with any tile.
    """
    wanted, unwanted = [g for g in globs if g[:1] != "!"], [g[1:] for g in globs if g[:1] == "!"]
    if any(_matches(name, glob) for glob in unwanted):
        return False
    return not wanted or any(_matches(name, glob) for glob in wanted)


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name if "@" in glob else name.partition("@")[0], glob)
