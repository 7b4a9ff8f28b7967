"""What a figure is: a name, words around it, and how to draw it."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from kernelmark.bench.report.contest import Setting


class Figure(NamedTuple):
    """A figure that a run has the data for; `draw` is called where Matplotlib is set up.

    data: what it shows, where the page lays that out itself.
    """

    name: str
    title: str
    caption: str
    draw: "Callable[[], Drawing]"
    data: Any = None


class Kind(NamedTuple):
    """The figures of one kind, and in one line what was left out and why, or nothing."""

    title: str
    figures: list[Figure]
    omitted: str


def kind(title: str, figures: list[Figure], lacking: str, most: int) -> Kind:
    """Return the first `most` figures of a kind. `lacking`: what the run would need for any."""
    if not figures:
        return Kind(title, [], lacking)
    more = len(figures) - most
    return Kind(title, figures[:most], f"{more} more of this kind are left out" if more > 0 else "")


def of_setting(setting: "Setting") -> tuple[str, ...]:
    """Return the words of a file's name for a setting."""
    return setting.device, f"t{setting.threads}", setting.mode, setting.precision, setting.isa, setting.order


def file_name(*words: object) -> str:
    """Return `roofline-cpu-t2-fp32`: lower case, and nothing that a file system or LaTeX would trip over."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")
