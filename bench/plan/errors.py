"""The two ways in which kernelmark refuses: bad usage, and what is not supported."""

from collections.abc import Iterable


class UsageError(Exception):
    """Bad usage or input, reported in one line: subject, found, expected, remedy. The command exits with 2."""


class StoreGone(UsageError):
    """The store that results went to is no longer in its place; the command exits with 1."""


class Unsupported(Exception):
    """A kernel cannot take a problem, or cannot run here; the message is the reason in the row."""


def message(error: BaseException) -> str:
    """Return an exception's message; one of a plug-in's may fail at it."""
    try:
        return str(error)
    except Exception:
        return "a message that cannot be formed"


def unknown(found: str, known: Iterable[str]) -> str:
    """Return `is unknown, expected one of layout, m; did you mean layout?`, without a question if nothing is near."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(found, names, n=1)
    return f"is unknown, expected one of {', '.join(names)}" + "".join(f"; did you mean {name}?" for name in near)
