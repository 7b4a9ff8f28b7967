"""Pages of the documentation and of reports, tables in LaTeX and JSON documents, as tests read them."""

import json
import re
import shlex
from functools import cache
from pathlib import Path

import msgspec

from kernelmark.bench.cli import listing
from kernelmark.bench.cli.documents import DOCUMENTS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: A page whose commands need the changes to the source tree that it shows; tests/test_docs.py applies these.
EXTENDING = DOCS / "extending.md"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

#: Replaces every suite that a page names, so that its commands take seconds.
SMALL = """title = "Small"

[[sweep]]
op = "gemm"
dtype = ["f32"]
layout = ["NT"]
points = [[33, 31, 17]]

[[sweep]]
op = "conv"
dtype = ["f32"]
layout = ["nchw"]
direction = ["fprop"]
part = "forward"
points = [[1, 3, 9, 9, 4, 3, 3], [1, 3, 9, 9, 4, 1, 1]]
along = "r"
"""
#: Selects one or two kernels of each operation, so that pages do not wait for all kernels.
SELECTED = " ".join(
    f"--kernels '*/{name}'"
    for name in (
        *("numpy.matmul", "numpy.widened", "numpy.grouped", "numpy.copyto", "numpy.out", "numba.serial"),
        *("scipy.pocketfft", "openblas.imatcopy", "cpu.host_serial", "cpu.im2col"),
    )
)
#: Commands that take minutes, or need a reader's files: tests only check their options and print their help.
HELPED = re.compile(
    r"kernelmark (claims|compare BASE|export (--format c |baseline|race)|scaling|select|suite --from|watch FILE"
    r"|run (--resume networks|app|gemm/m1024|layers.toml --exec|seed --device|resnet50 |train-(conv.*--no|fft)))"
)
#: Replacements of commands that would take minutes, or whose result noise could change.
SHORT = "kernelmark run small.toml --processes 2 --spread 0"
REPLACED = {
    "python -m pytest tests/emulator --all": "python -m pytest tests/emulator/test_intrinsics.py -k block",
    "python -m pytest tests/emulator -k tiled.cu": "python -m pytest tests/emulator/test_kernels.py "
    "-k tiled.cu --collect-only -q",
    "pytest --benchmark-only --km-processes 5 --benchmark-autosave": "pytest --benchmark-only --benchmark-autosave",
    "pytest --benchmark-only --km-processes 5 --benchmark-compare --benchmark-compare-fail=median:5%": "pytest "
    "--benchmark-only --benchmark-compare --benchmark-compare-fail=median:1000000%",
    "kernelmark run question.toml --processes 5": SHORT,
    "kernelmark run train-conv --processes 2 --name training": SHORT,
    "kernelmark run conv-peers --spread 0 --max-time 0.05 --no-ceilings --kernels '!conv/pyfftw.*'": "kernelmark run "
    "conv-peers --spread 0",
    "kernelmark run alexnet resnet50 --max-time 0.5": "kernelmark run alexnet resnet50",
    "kernelmark run shapes.toml --processes 4 --spread 0 --max-time 0.02 --kernels conv/numba.direct "
    "--kernels conv/pyfftw.tiled": SHORT,
}
#: Problems that take seconds, each with a smaller problem of the same kind.
SMALLER = {
    "conv/n1c64h56w56k64r3s3pad1/f32/nchw/fprop": "conv/n1c64h7w7k64r3s3pad1/f32/nchw/fprop",
    "conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop": "conv/n1c128h7w7k128r3s3pad1/f32/nchw/fprop",
    "transpose/m2048n26752/f32/out": "transpose/m640n120/f32/out",  # 40 tiles, which compile quickly
    "aggregate/w4n14198784/f32/ef": "aggregate/w2n9001/f32/ef",
    "aggregate/w4n1048576/f32/ef": "aggregate/w2n1031/f32/ef",
}
FAST = ("--km-max-time 0.01", "--km-no-ceilings")
#: Options that tests add to a command that lacks them, by the command's first words.
ADDED = {
    "kernelmark run ": ("--mode hot", "--max-time 0.01", "--no-ceilings", SELECTED),
    "kernelmark verify": (SELECTED,),
    "kernelmark watch": ("--once",),
    "kernelmark tune": ("--budget 8", "--max-time 0.01", "--processes 2", "--spread 0", "--no-ceilings"),
    "pytest": ("--km-suite small.toml", "--km-kernels '*/numpy.matmul'", "--km-mode hot", *FAST),
}
COMMAND = re.compile(r"^ {4}((?:kernelmark|pytest|python -m pytest) .*)$", re.MULTILINE)
SAVED = re.compile(r"save this as\s`([^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL | re.IGNORECASE)
CHANGED = re.compile(r"`([\w/.]+)`[^`]*:\n\n```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page):
    """Return the commands in the indented blocks of a page, without their explanations."""
    lines = (re.split(r" {2,}| #", line)[0] for line in COMMAND.findall(page))
    return [part.strip() for line in lines for part in line.split("&&")]


@cache
def _suites():
    return {row.suite for row in listing.suites()}


def reduced(command):
    if HELPED.match(command):
        return [*shlex.split(command), "--help"]
    command = REPLACED.get(command, command)
    besides = [option for first, options in ADDED.items() if command.startswith(first) for option in options]
    missing = [option for option in besides if option.split()[0] not in command]
    mine = ["--kernels '*/mine.*'"] * ("--plugin " in command and SELECTED in missing)
    words = shlex.split(" ".join([command, *missing, *mine]))
    return ["small.toml" if word in _suites() else SMALLER.get(word, word) for word in words]


def save_files(text, folder):
    for name, content in SAVED.findall(text):
        (folder / name).write_text(content)


def apply_changes(text, folder):
    """Apply a page's diffs to the files of a folder; each place must occur exactly once."""
    for name, diff in CHANGED.findall(text):
        for place in diff.split("@@\n"):
            lines = place.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            after = "".join(line[1:] for line in lines if line[0] != "-")
            content = (folder / name).read_text()
            assert content.count(before) == 1, f"{name} does not have this place once:\n{before}"
            (folder / name).write_text(content.replace(before, after))


def strict(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def valid(text, name):
    msgspec.json.decode(text, type=DOCUMENTS[name][1], strict=True)
    return strict(text)


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
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans)


def sound(text):
    """Assert that LaTeX environments and braces close and table rows have all columns; return the tables."""
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
    tables = re.findall(r"\\begin\{(tabular|longtable)\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{\1\}", text, re.DOTALL)
    for _, layout, body in tables:
        ended = [line for line in body.splitlines() if re.search(r"\\\\(\*|\[1.5pt\])?$", line)]
        filled = [line for line in ended if "\\caption" not in line]
        assert {cells(line) for line in filled} == {columns(layout)}
    return tables


class Page:
    def __init__(self, browser):
        self.run = browser.execute_script
        self.browser = browser

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def column(self, number):
        return self.run(
            "const rows = [...document.querySelectorAll('#table tbody tr:not(.detail)')];"
            "return rows.map(row => row.cells[arguments[0]].innerText)",
            number,
        )

    def choose(self, name, value):
        self.run(
            "const i = document.getElementById('filter-' + arguments[0]); i.value = arguments[1];"
            "i.dispatchEvent(new Event(i.tagName === 'SELECT' ? 'change' : 'input'));",
            name,
            value,
        )

    def sort(self, title):
        next(button for button in self.all("th button") if button.text == title).click()

    @property
    def count(self):
        return self.find("#count").text

    def press(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    @property
    def focused(self):
        return self.run("return document.activeElement.outerHTML")
