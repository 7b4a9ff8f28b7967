"""Mutants of a .cu or .cuh file: copies with one deliberate mistake, of the kinds that the emulator must detect."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Calls that synchronise threads and engines, by the name of the mistake of removing them.
REMOVED = {
    "no barrier": re.compile(
        r"__sync(?:threads(?:_count|_and|_or)?|warp)\s*\(|\b(?:[\w:]+\(\)|\w+)\.sync\s*\("
        r"|\bptx::(?:named_barrier|cluster)_sync\s*\("
    ),
    "no wait for copies": re.compile(r"\bptx::(?:cp_async_wait\w*|tma_store_wait_read)(?:<[^>]*>)?\s*\("),
    "no wait for a phase": re.compile(r"\bptx::mbarrier_wait\s*\("),
    "no wait for products": re.compile(r"\bptx::wgmma_wait(?:<[^>]*>)?\s*\("),
    "no arrival": re.compile(r"\bptx::mbarrier_arrive\w*\s*\("),
    "no fence": re.compile(r"\bptx::(?:fence_proxy_async|fence_mbarrier_init|wgmma_fence)\s*\("),
}
#: A comparison in a guard or a loop. The brackets of templates do not match, since they have no blanks around them.
COMPARISON = re.compile(r"(?<=[\w)\]]) (<=|>=|<|>) (?=[\w(])")
#: Replacements of words, by kind of mistake. "unwritten register": a sum does not begin at zero, or C is used although
#: beta is 0. "second round": visible only in a second round, such as a doubled step of a persistent loop, an unchanged
#: parity, a count without the cluster, a wait for one copy fewer, a slot refilled or released too early. "second
#: product": a batch's second product is read from, or stored to, the place of the first.
WORDS = (
    ("unwritten register", re.compile(r"(?<=\]) = \{\}"), ""),
    ("unwritten register", re.compile(r"\b(?:by\.)?beta == 0(?:\.0f)?"), "false"),
    (
        "second round",
        re.compile(r"(?<=\+= )(?:round|own\.step|(?:work\.)?stride\(\)|gridDim\.x|blockDim\.x)(?=[ ;,)])"),
        r"2 * \g<0>",
    ),
    ("second round", re.compile(r"(?<=parity) \^= 1"), " ^= 0"),
    ("second round", re.compile(r"step / STAGES % 2"), "0"),
    ("second round", re.compile(r"(?<=CONSUMERS) \* CLUSTER\b"), ""),
    ("second round", re.compile(r"(?<=wait<)STAGES - 2(?=>)"), "STAGES - 1"),
    ("second round", re.compile(r"\(slot \+ STAGES - 1\) % STAGES"), "slot"),
    ("second round", re.compile(r"(?<=\.release\()last\b"), "(last + 1) % STAGES"),
    ("second product", re.compile(r"\b(?:blockIdx\.z|(?:to\.)?product)(?= \* stride_)"), "0"),
)
CONNECTIVES = ("&&", "||", "?", ";", ",", "=", ":", "return")
#: The places of leading dimensions: the last argument of `offset`, a factor in an index, an argument named ld, lda, ...
OFFSET = re.compile(r"\boffset<[^>]*>\(")
FACTOR = re.compile(r"(?<=\* )[a-z]\w*\b(?=[ )\]])|\b[a-z]\w*(?= \* \w)")
ARGUMENT = re.compile(r"(?<=, )ld\w?(?=[,)])")
#: A function's head, and its integer parameters, except strides and coordinates, which are no leading dimensions.
HEAD = re.compile(r"\b\w+\s*\(([^;{}]*?)\)\s*\{")
INTEGER = re.compile(r"\b(?:unsigned|int|long long|size_t)\s+(?!stride)([a-z]+)(?=\s*(?:,|$))")


@dataclass(frozen=True)
class Mutant:
    """A changed source: the kind of mistake, its line, and the change."""

    kind: str
    line: int
    change: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.change}"


#: Begin and end of the text to replace, the kind of mistake, and the new text.
Edit = tuple[int, int, str, str]


def mutants(text: str) -> Iterator[Mutant]:
    """Yield every mutant of a source, in the order of lines."""
    code = _blank_constants(blank_comments(text))
    edits = [*_removed_calls(code), *_comparisons(code), *_leading_dimensions(code)]
    edits += [(*match.span(), kind, match.expand(into)) for kind, rule, into in WORDS for match in rule.finditer(code)]
    seen = {text}
    for begin, end, kind, into in sorted(edits):
        changed = text[:begin] + into + text[end:]
        if changed not in seen:
            seen.add(changed)
            was = " ".join(text[begin:end].split())
            yield Mutant(kind, text.count("\n", 0, begin) + 1, f"`{was}` -> `{into}`", changed)


def blank_comments(text: str) -> str:
    """Return the text with blanks in place of comments, strings and preprocessor lines; positions are unchanged."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|^[ \t]*#[^\n]*"
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL | re.MULTILINE)


def _blank_constants(code: str) -> str:
    """Return the code with blanks in place of constants without effect: static assertions and `*BLOCKS_PER_SM`."""
    pattern = r"\bstatic_assert\s*\([^;]*;|\bconstexpr \w+ \w*BLOCKS_PER_SM\s*=[^;]*;"
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), code)


def _removed_calls(code: str) -> Iterator[Edit]:
    """Yield the removal of each barrier, wait, arrival and fence; a call whose value is used becomes its predicate."""
    for kind, pattern in REMOVED.items():
        for match in pattern.finditer(code):
            close = closing(code, match.end() - 1)
            before, behind = code[: match.start()].rstrip(), code[close + 1 :].lstrip()
            statement = before.endswith((";", "{", "}", ")")) and behind.startswith(";")
            predicate = code[match.end() : close] or "0"
            yield match.start(), close + 1, kind, "" if statement else f"({predicate})"


def _comparisons(code: str) -> Iterator[Edit]:
    """Yield three edits of each comparison: bound + 1, bound - 1, and, outside loop heads, a constant result."""
    for match in COMPARISON.finditer(code):
        left, right = _operand_before(code, match.start()), _operand_after(code, match.end())
        bound = code[match.end() : right].strip()
        for shifted in (f"{bound} + 1", f"int({bound}) - 1"):
            yield left, right, "bound shifted by one", code[left : match.end()] + shifted
        if not _in_loop_head(code, match.start()):
            # Without a guard, a condition to leave is never true, and a condition to act is always true.
            leaving = re.match(r"[^;{]*\)\s*(?:return|continue|break)\b", code[right:])
            yield left, right, "no guard", "false" if leaving else "true"


def _leading_dimensions(code: str) -> Iterator[Edit]:
    """Yield replacements of each leading dimension by each other integer parameter of the function."""
    places = [_last_argument(code, match.end() - 1) for match in OFFSET.finditer(code)]
    places += [match.span() for pattern in (FACTOR, ARGUMENT) for match in pattern.finditer(code)]
    for begin, end in places:
        heads = [head[1] for head in HEAD.finditer(code, 0, begin)]
        sizes = INTEGER.findall(heads[-1]) if heads else []
        if code[begin:end] in sizes:
            for other in sizes:
                yield begin, end, "other leading dimension", other


def closing(code: str, opening: int) -> int:
    """Return the position of the bracket that closes the bracket at `opening`."""
    depth = 0
    for at in range(opening, len(code)):
        depth += code[at] in "([{"
        depth -= code[at] in ")]}"
        if depth == 0:
            return at
    raise ValueError("brackets do not match")


def _last_argument(code: str, opening: int) -> tuple[int, int]:
    close = closing(code, opening)
    begin = code.rfind(",", opening, close) + 1
    inner = code[begin:close]
    return begin + len(inner) - len(inner.lstrip()), close


def _operand_after(code: str, at: int) -> int:
    """Return where a comparison's right operand ends: before a word in CONNECTIVES or an unmatched closing bracket."""
    depth = 0
    while at < len(code):
        if depth == 0 and (code.startswith(CONNECTIVES, at) or code[at] in ")]}"):
            break
        depth += code[at] in "([{"
        depth -= code[at] in ")]}"
        at += 1
    return len(code[:at].rstrip())


def _operand_before(code: str, at: int) -> int:
    depth = 0
    while at > 0:
        before = code[at - 1]
        if depth == 0 and (before in "([{?;,=:&|\n" or code.endswith("return", 0, at)):
            break
        depth += before in ")]}"
        depth -= before in "([{"
        at -= 1
    return at + len(code[at:]) - len(code[at:].lstrip())


def _in_loop_head(code: str, at: int) -> bool:
    heads = re.finditer(r"\b(?:for|while) ?\(", code[:at])
    return any(closing(code, head.end() - 1) > at for head in heads)
