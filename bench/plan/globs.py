"""Select names by globs, the same way wherever kernels or problems are chosen."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name matches one of the globs; without globs, every name does. `!GLOB` excludes its matches.

    A tile is the part of a kernel's name after an @. A glob without @ matches a kernel with any tile.
    """
    base = name.partition("@")[0]
    matching = [glob for glob in globs if fnmatchcase(name if "@" in glob else base, glob.removeprefix("!"))]
    if any(glob.startswith("!") for glob in matching):
        return False
    return bool(matching) or all(glob.startswith("!") for glob in globs)
