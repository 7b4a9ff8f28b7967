"""Tables in LaTeX as tests make and read them: rows, and a table's structure."""

import re

IDENTITY = {"run_id": "r", "provider": "a", "device": "cpu", "device_name": "d", "numerics": "fp32"}
KIND = {"op": "gemm", "dtype": "f32", "layout": "NT"}
EVERY = "_ % & # { } ~ ^ \\ $ < > | [ ] * \" ' ` -- 中é\n\u2028end"
TIME = {"time_s_median": 12.34e-6, "time_s_ci95_low": 12.1e-6, "time_s_ci95_high": 12.96e-6, "gflop_per_s": 43.21}
DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[textwidth=85mm,textheight=260mm]{geometry}
\usepackage{booktabs,graphicx,longtable}
\begin{document}
\input{table.tex}
\end{document}
"""


def lines(table):
    return [line for line in table.splitlines() if not line.startswith("%")]


def columns(layout):
    return len(re.sub(r"@\{[^}]*\}", "", layout))


def cells(line):
    """How many columns a line of a table fills."""
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans)


def sound(text):
    """Assert that environments and braces close, and that each line of a table has its columns; return the tables."""
    text = "\n".join(lines(text))
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    plain = re.sub(r"\\[\\{}]", "", text)
    assert plain.count("{") == plain.count("}")
    found = re.findall(r"\\begin\{(tabular|longtable)\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{\1\}", text, re.DOTALL)
    for _, layout, body in found:
        ended = [line for line in body.splitlines() if re.search(r"\\\\(\*|\[1.5pt\])?$", line)]
        filled = [line for line in ended if "\\caption" not in line]
        assert {cells(line) for line in filled} == {columns(layout)}
    return found
