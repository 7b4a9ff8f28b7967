"""Exceptions for bad usage, unsupported problems and a lost store."""

import os
from collections.abc import Iterable

#: Words of other programs, each with kernelmark's word for the same thing.
_ELSEWHERE = {"bfloat16": "bf16", "gpu": "cuda", "shapes": "points", "batches": "batch"}
_ELSEWHERE |= dict.fromkeys(("fp64", "float64", "double"), "f64") | dict.fromkeys(("fp32", "float32", "float"), "f32")
_ELSEWHERE |= dict.fromkeys(("fp16", "float16", "half"), "f16")


class UsageError(Exception):
    """Bad usage or input, reported in one line (subject, found, expected, remedy); the command exits with 2."""


class StoreGone(UsageError):
    """The store's file has been removed or replaced; the command exits with 1."""


class Unsupported(Exception):
    """A kernel cannot take a problem, or cannot run here; the message becomes the row's reason."""


def message(error: BaseException) -> str:
    """Return an exception's message, even if the `__str__` of a plug-in's exception raises."""
    try:
        return str(error)
    except Exception:
        return "a message that cannot be formed"


def place(error: BaseException, file: str | None = None) -> str:
    """Return ` (mine.py, line 4)`, the innermost line of an error's traceback, in `file` if given; "" if none.

    Python's traceback module is not used, since it calls functions that a plug-in may have replaced.
    """
    where, at = "", error.__traceback__
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        if file in (None, name):
            where = f" ({os.path.basename(name)}, line {at.tb_lineno})"  # noqa: PTH119 # plug-ins may replace pathlib
        at = at.tb_next
    return where


def unknown(word: str, known: Iterable[str]) -> str:
    """Return `is unknown, expected one of layout, m; did you mean layout?`, without the question if none is similar."""
    names = sorted(known)
    return f"is unknown, expected one of {', '.join(names)}{meant(word, names)}"


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean f32?` if `word` resembles a known name, or is another program's word for it; else ""."""
    import difflib

    names = list(known)
    near = [_ELSEWHERE[word]] if _ELSEWHERE.get(word) in names else difflib.get_close_matches(word, names, n=1)
    return "".join(f"; did you mean {name}?" for name in near)
