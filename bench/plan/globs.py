"""Select names by globs, the same way wherever kernels or problems are chosen."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name matches a glob, or there are none; a glob after `!` excludes names that it matches.

    A glob without @ matches a kernel with any tile, which is the part of its name after an @.
    """
    wanted, unwanted = [g for g in globs if g[:1] != "!"], [g[1:] for g in globs if g[:1] == "!"]
    if any(_matches(name, glob) for glob in unwanted):
        return False
    return not wanted or any(_matches(name, glob) for glob in wanted)


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name if "@" in glob else name.partition("@")[0], glob)
