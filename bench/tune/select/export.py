"""Selectors as code: nested comparisons in C and in Python, which choose as the model does, and the model as JSON."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.plan.text import one_line
from bench.report.format import factor
from bench.tune.select.model import Model, Split, as_json, facts

_WORD = re.compile(r"(\w+) == (\d+)")


class _Language(NamedTuple):
    """How a branch and a leaf are written. word: the name of a word's number or text."""

    branch: str
    otherwise: str
    end: str
    leaf: str
    word: Callable[[str, str], str]


def as_c(model: Model) -> str:
    """Return a header with a function that returns the place of the kernel to call, or of the next ones by its rank."""
    op, prefix = _name(model.op), f"KERNELMARK_{_name(model.op).upper()}"
    language = _Language("if ({}) {{", "} else {", "}", "leaf = {};", lambda name, word: _macro(prefix, name, word))
    orders = [f"        {{{', '.join(map(str, node.order))}}}," for node in model.leaves]
    kernels = [f'    "{kernel}",' for kernel in model.kernels]
    parameters = [f"double {name}" for name in model.inputs] + [f"int {name}" for name in model.words]
    lines = [
        *(f"/* {_comment(line)} */" for line in _about(model)),
        f"#ifndef {prefix}_SELECT_H",
        f"#define {prefix}_SELECT_H",
        "",
        f"#define {prefix}_KERNELS {len(model.kernels)}",
        *(f"#define {_macro(prefix, name, word)} {i}" for name, i, word in _words(model)),
        "",
        f"static const char *const kernelmark_{op}_kernels[{prefix}_KERNELS] = {{",
        *kernels,
        "};",
        "",
        f"/* rank: 0 for the kernel to call, 1 for the next if that one refuses, and so on below {prefix}_KERNELS. */",
        f"static inline int kernelmark_{op}_select({', '.join(parameters)}, int rank)",
        "{",
        f"    static const unsigned char order[{len(model.leaves)}][{prefix}_KERNELS] = {{",
        *orders,
        "    };",
        "    int leaf;",
        *(f"    (void){name};" for name in (*model.inputs, *model.words)),
        *_branches(model, language, "    "),
        "    return order[leaf][rank];",
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def as_python(model: Model) -> str:
    """Return a module without imports, with a function that returns the ids of kernels, the one to call first."""
    language = _Language("if {}:", "else:", "", "return ORDERS[{}]", lambda name, word: repr(word))
    orders = [f"    ({', '.join(repr(model.kernels[place]) for place in node.order)},)," for node in model.leaves]
    names = [*model.inputs, *model.words]
    about = "\n".join(_about(model)).replace("\\", "/").replace('"""', "'''")
    lines = [
        f'"""{about}\n"""',
        "",
        "#: The kernels of each leaf, the one to call first; where it refuses, the next.",
        "ORDERS = (",
        *orders,
        ")",
        "",
        "",
        f"def select({', '.join(names)}):",
        '    """Return the ids of the kernels to call, the best first."""',
        *(f"    {name} = float({name})" for name in model.inputs),
        *_branches(model, language, "    "),
    ]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Model], str]] = {"c": as_c, "python": as_python, "json": as_json}


def _about(model: Model) -> list[str]:
    """Return what the code was made from, and what it costs."""
    known, single = facts(model), model.single
    share = known["share"]
    lines = [
        f"kernelmark select: {known['subject']}; from {known['runs']}",
        f"Held out ({model.regret.held_out}): {factor(share.mean, share.low, share.high)} the speed of the oracle, "
        f"at worst {factor(known['worst'])}.",
    ]
    return lines + [f"One kernel does: {single}."] * bool(single)


def _branches(model: Model, language: _Language, indent: str) -> Iterator[str]:
    leaves = [at for at, node in enumerate(model.tree) if not node.expression]
    yield from _branch(model, 0, language, indent, {at: i for i, at in enumerate(leaves)})


def _branch(model: Model, at: int, language: _Language, indent: str, leaves: dict[int, int]) -> Iterator[str]:
    node = model.tree[at]
    if not node.expression:
        yield indent + language.leaf.format(leaves[at])
        return
    yield indent + language.branch.format(_condition(model, node, language))
    yield from _branch(model, node.below, language, indent + "    ", leaves)
    yield indent + language.otherwise
    yield from _branch(model, node.above, language, indent + "    ", leaves)
    if language.end:
        yield indent + language.end


def _condition(model: Model, node: Split, language: _Language) -> str:
    """Return what is true on the side below; thresholds have all their digits, so that they read back as they are."""
    if found := _WORD.fullmatch(node.expression):
        return f"{found[1]} != {language.word(found[1], model.words[found[1]][int(found[2])])}"
    return f"{node.expression} <= {node.threshold!r}"


def _words(model: Model) -> Iterator[tuple[str, int, str]]:
    for name, values in model.words.items():
        for i, word in enumerate(values):
            yield name, i, word


def _name(text: str) -> str:
    """Return a text as a part of a name in C."""
    return re.sub(r"\W+", "_", text)


def _macro(prefix: str, name: str, word: str) -> str:
    return f"{prefix}_{_name(name)}_{_name(word)}".upper()


def _comment(text: str) -> str:
    return one_line(text).replace("*/", "* /").replace("/*", "/ *")
