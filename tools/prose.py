"""Find what is not plain English: `python tools/prose.py [--count] [PATH ...]`.

Reads docstrings, comments and string literals of Python, comments of C++ and TOML, and Markdown outside code blocks.
Prints `file:line: words: the plain alternative` for each finding; the exit status is 1 where there is one. With
`--count` it prints the number of findings in each folder. Without PATH it reads the files and folders in CLEAN.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: What `make lint` reads.
CLEAN = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "kernelmark", "conftest.py"),
    *("bench", "cuda", "kernels", "tests", "tools"),
)
#: Files that hold the words on purpose: the patterns, and the examples that test them.
EXEMPT = {Path(__file__).resolve(), ROOT / "tests" / "tools" / "test_prose.py"}
FEWEST_WORDS = 3  # a shorter string literal is a name, not prose
BREAK = "\x1e"  # between paragraphs, list items and table cells

_PEOPLE = "".join(f"(?<!{word} )" for word in ("who", "you", "we", "user", "users", "reader", "author", "authors"))
_TEXTS = "".join(f"(?<!{word} )" for word in ("text", "texts", "page", "comment", "docstring", "message", "document"))
_THINGS = "(?:columns|devices|drivers|files|kernels|lanes|libraries|rows|samples|systems|tables|threads|tools)"
_DONE = (
    "(?:called|compiled|counted|declared|handled|ke(?:ep|eps|pt)|listed|measured|planned|stands?|stored|timed|verified)"
)
#: Words that are not used, and what is written instead.
WORDS = {
    "behind": "after, below or past",
    "(?:tells?|told|telling|known|knew) apart": "distinguish",
    f"{_DONE} apart(?! from)": "separately",
    r"so many\b(?![^.;:]*\b(?:as|that)\b)": "N of them, or the number",
    "(?:some|no|every)body(?:'s)?": "no thread, another process; of people someone and no one",
    f"{_PEOPLE}{_TEXTS}(?:says|tells|knows|knew|hears)": "reports, returns, has, records or shows",
    f"{_PEOPLE}{_TEXTS}(?:do|does|did) not (?:say|tell|know|hear)": "does not report, or has no",
    f"{_THINGS} (?:say|tell|know|knew|hear)": "report, return or have",
    "told(?! apart)|(?:is|are|was|were|be|been) said": "given, reported or notified",
    "mend(?:s|ed|ing)?": "fix",
    "(?:one|our|own|the|this) house": "the project",
    "verdict went against": "a check failed",
}
#: Sentences without a verb, by how they begin.
FRAGMENT = rf"(?:^|{BREAK}|[.!?] )[-*#>\d. ]*((?:Not (?:at|by|for|from|in|of|on|to|with)|Of) [^.,:{BREAK}]*:)"
PLAIN = [
    *((re.compile(rf"\b(?:{words})\b", re.IGNORECASE), plain) for words, plain in WORDS.items()),
    (re.compile(FRAGMENT), "a sentence with a subject and a verb"),
]
#: No docstring begins with these.
OPENING = re.compile(
    r"(And|As many|But|It|Its|Nobody|Nor|Of|Or|So|Somebody|The same|These|They|Those|Until)\b", re.IGNORECASE
)
REOPEN = "an imperative, or the subject by its name"


class Passage(NamedTuple):
    """A piece of prose, and the line that it begins on."""

    line: int
    text: str
    is_docstring: bool = False


class Finding(NamedTuple):
    """Words of a file that are not plain, and what to write instead."""

    path: Path
    line: int
    words: str
    plain: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words}: {self.plain}"


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit status."""
    paths = [Path(word).resolve() for word in arguments if word != "--count"] or [ROOT / name for name in CLEAN]
    found = [finding for file in files(paths) for finding in findings(file)]
    counts = Counter(_folder(finding.path) for finding in found)
    lines = [f"{count:5} {folder}" for folder, count in sorted(counts.items())] if "--count" in arguments else found
    print("".join(f"{line}\n" for line in lines), end="")
    return 1 if found else 0


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files at and below the paths that hold prose, without the exempt ones."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in inside if file.suffix in READERS and file not in EXEMPT)


def findings(path: Path) -> list[Finding]:
    """Return what is not plain in a file, by line."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    passages = READERS[path.suffix](path.read_text(encoding="utf-8"))
    return sorted(Finding(shown, *found) for passage in passages for found in _found(passage))


def _found(passage: Passage) -> Iterator[tuple[int, str, str]]:
    text = re.sub(r"(?m)^[ \t]+", "", passage.text)
    if passage.is_docstring and (opening := OPENING.match(text)):
        yield passage.line, f"a docstring begins with {opening[0]}", REOPEN
    prose = _prose(text)
    for pattern, plain in PLAIN:
        for match in pattern.finditer(prose):
            found = match.lastindex or 0  # a fragment is a group, after what begins its paragraph
            yield passage.line + text.count("\n", 0, match.start(found)), match[found], plain


def _prose(text: str) -> str:
    """Return a text of the same length, on one line, with code blanked and paragraphs, items and cells separated."""
    text = re.sub(r"`[^`]+`", lambda code: "_" * len(code[0]), text)
    text = re.sub(r"\n(?=\n|(?:[-*#>]|\d+\.) )|\|", BREAK, text)
    return text.replace("\n", " ")


def _folder(path: Path) -> str:
    return "/".join(path.parts[:-1][:2]) or path.name


def _python(text: str) -> Iterator[Passage]:
    yield from _strings(ast.parse(text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield _comments({t.start[0]: (t.string, t.line) for t in tokens if t.type == tokenize.COMMENT})


def _strings(node: ast.AST) -> Iterator[Passage]:
    """Yield the docstrings and the other string literals, an f-string as one with `{}` for its values."""
    docstring = None
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
        docstring = node.body[0]
        yield Passage(docstring.lineno, text, is_docstring=True)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and (text := _literal(child)) is not None:
            if len(text.split()) >= FEWEST_WORDS:
                yield Passage(child.lineno, text)
        elif child is not docstring:
            yield from _strings(child)


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _cpp(text: str) -> Iterator[Passage]:
    lines = enumerate(text.splitlines(), 1)
    yield _comments({i: (line[line.index("//") :], line) for i, line in lines if "//" in line})


def _toml(text: str) -> Iterator[Passage]:
    lines = enumerate(text.splitlines(), 1)
    yield _comments({i: (line, line) for i, line in lines if line.startswith("#")})


def _comments(found: dict[int, tuple[str, str]]) -> Passage:
    """Return the comments of a file, each on its line; one that follows code on its line is a paragraph."""
    texts = {
        i: comment.lstrip("#:/ ") if line.lstrip().startswith(comment) else BREAK + comment.lstrip("#:/ ")
        for i, (comment, line) in found.items()
    }
    return Passage(1, "\n".join(texts.get(i, "") for i in range(1, max(texts, default=0) + 1)))


def _markdown(text: str) -> Iterator[Passage]:
    yield Passage(1, re.sub(r"(?ms)^```.*?^```", lambda block: "\n" * block[0].count("\n"), text))


READERS: dict[str, Callable[[str], Iterator[Passage]]] = {
    ".py": _python,
    ".md": _markdown,
    ".toml": _toml,
    **dict.fromkeys((".cu", ".cuh", ".cpp", ".hpp", ".h"), _cpp),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
