"""What tables in LaTeX share: text as it is printed, captions, and the table around the lines."""

import re
from collections.abc import Sequence
from itertools import count

from kernelmark.bench.record.store import Run
from kernelmark.bench.report.method import software

MICRO = r"$\mu$"
#: Stands before the time of a noisy row, as `~` does elsewhere, and what a caption has on it.
MARKED = r"$\sim$"
NOISE = r"$\sim$: the machine was disturbed during a tenth of the sampling or more."
_SIZE = r"\scriptsize\setlength{\tabcolsep}{3pt}"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After the end of a line these two would be read as its options.
    "[": "{[}",
    "*": "{*}",
} | {char: f"\\{char}" for char in "#$%&_{}"}


def table(layout: str, head: str, body: Sequence[str], caption: str, key: str, most_lines: int) -> str:
    """Return a float, or a `longtable` where it has more lines than that."""
    words = f"\\caption{{{caption}}}\\label{{tab:{key}}}"
    form = f"{{@{{}}{layout}@{{}}}}"
    if len(body) <= most_lines:
        top = [
            r"\begin{table}",
            r"\centering",
            words,
            _SIZE,
            rf"\begin{{tabular}}{form}",
            r"\toprule",
            head,
            r"\midrule",
        ]
        end = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    else:
        top = [rf"{{{_SIZE}\setlength{{\LTcapwidth}}{{\linewidth}}", rf"\begin{{longtable}}{form}", words + r"\\"]
        top += [r"\toprule", head, r"\midrule\endfirsthead", r"\toprule", head, r"\midrule\endhead"]
        top += [r"\bottomrule\endfoot"]
        end = [r"\end{longtable}}"]
    return "\n".join([*top, *body, *end]) + "\n"


def unused(name: str, used: set[str]) -> str:
    """Return a label that no table has yet, and note it."""
    base = label(name)
    names = (f"{base}-{i}" if i > 1 else base for i in count(1))
    found = next(key for key in names if key not in used)
    used.add(found)
    return found


def label(text: str) -> str:
    """Return a text as a label or a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "table"


def provenance(run: Run) -> str:
    """Return the end of a caption: `kernelmark 0.1.0 (commit c0ffee123456), run 20260101-1234.`."""
    return escape(f"{software(run)}, run {run.run_id}.")


def escape(text: str) -> str:
    r"""Return text escaped for LaTeX; what pdflatex has no glyph for is written as `\u4e2d`."""
    return "".join(_SPECIAL.get(char, char) for char in comment(text))


def comment(text: str) -> str:
    """Return a text as printable ASCII on one line."""
    plain = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return plain.encode("ascii", "backslashreplace").decode()
