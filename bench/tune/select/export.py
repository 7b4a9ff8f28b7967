"""Export selectors as JSON, or as code in C or Python that makes the same choices as the model."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kernelmark.bench.plan.text import one_line
from kernelmark.bench.report.format import factor
from kernelmark.bench.tune.select.growers import Formula
from kernelmark.bench.tune.select.model import Model, Split, file_text

_WORD = re.compile(r"(\w+) == (\d+)")


class _Language(NamedTuple):
    """The syntax of branches and leaves in a language. word: returns the code for a named value of an axis."""

    branch: str
    otherwise: str
    end: str
    leaf: str
    word: Callable[[str, str], str]


def as_c(model: Model) -> str:
    """Return a C header that computes the index of the kernel to call first, or of the kernel at a given rank."""
    op, prefix = _name(model.op), f"KERNELMARK_{_name(model.op).upper()}"
    parameters = [f"double {name}" for name in model.inputs] + [f"int {name}" for name in model.words]
    words = [(name, i, word) for name, values in model.words.items() for i, word in enumerate(values)]
    lines = [
        *(f"/* {_comment(line)} */" for line in _about(model)),
        f"#ifndef {prefix}_SELECT_H",
        f"#define {prefix}_SELECT_H",
        *["", "#include <math.h>"] * bool(model.formula),
        "",
        f"#define {prefix}_KERNELS {len(model.kernels)}",
        *(f"#define {_macro(prefix, name, word)} {i}" for name, i, word in words),
        "",
        f"static const char *const kernelmark_{op}_kernels[{prefix}_KERNELS] = {{",
        *(f'    "{kernel}",' for kernel in model.kernels),
        "};",
        "",
        f"/* rank: 0 for the kernel to call, 1 for the next if the first refuses, ..., less than {prefix}_KERNELS. */",
        f"static inline int kernelmark_{op}_select({', '.join(parameters)}, int rank)",
        "{",
        *(f"    (void){name};" for name in (*model.inputs, *model.words)),
        *(_c_formula(model, model.formula, prefix) if model.formula else _c_tree(model, prefix)),
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _c_tree(model: Model, prefix: str) -> Iterator[str]:
    yield f"    static const unsigned char order[{len(model.leaves)}][{prefix}_KERNELS] = {{"
    yield from (f"        {{{', '.join(map(str, node.order))}}}," for node in model.leaves)
    yield "    };"
    yield "    int leaf;"
    language = _Language("if ({}) {{", "} else {", "}", "leaf = {};", lambda name, word: _macro(prefix, name, word))
    yield from _branches(model, language)
    yield "    return order[leaf][rank];"


def _c_formula(model: Model, formula: Formula, prefix: str) -> Iterator[str]:
    """Yield code that computes the costs of all kernels in loops that can be vectorised, and finds the lowest cost.

    Its names end in _, so that they differ from the names of inputs.
    """
    axes, terms = len(formula.axes), len(formula.weights[0])
    yield f"    static const double weights_[{len(formula.weights)}][{terms}][{prefix}_KERNELS] = {{"
    for table in formula.weights:
        yield "        {"
        yield from (f"            {{{', '.join(map(repr, row))}}}," for row in table)
        yield "        },"
    yield "    };"
    yield f"    const double z_[{axes}] = {{"
    yield from (f"        {text}," for text in _variables(formula))
    yield "    };"
    yield "    int words_ = 0;"
    for name, values in model.words.items():
        index = " + ".join(f"{i} * ({name} == {_macro(prefix, name, word)})" for i, word in enumerate(values) if i)
        yield f"    words_ = words_ * {len(values)} + {index};"
    yield f"    const double (*w_)[{prefix}_KERNELS] = weights_[words_];"
    yield f"    double cost_[{prefix}_KERNELS];"
    each = f"for (int i_ = 0; i_ < {prefix}_KERNELS; i_++)"
    yield f"    {each} cost_[i_] = w_[0][i_];"
    yield f"    {each}"
    yield f"        for (int a_ = 0; a_ < {axes}; a_++) cost_[i_] += z_[a_] * w_[1 + a_][i_];"
    yield f"    for (int a_ = 0, t_ = {1 + axes}; a_ < {axes}; a_++)"
    yield f"        for (int b_ = a_; b_ < {axes}; b_++, t_++)"
    yield f"            {each} cost_[i_] += z_[a_] * z_[b_] * w_[t_][i_];"
    yield "    for (;; rank--) {"
    yield "        int least_ = 0;"
    yield f"        {each} least_ = cost_[i_] < cost_[least_] ? i_ : least_;"
    yield "        if (rank <= 0) return least_;"
    yield "        cost_[least_] = HUGE_VAL;"
    yield "    }"


def as_python(model: Model) -> str:
    """Return a Python module with a function that returns the ids of kernels, the best first."""
    about = "\n".join(map(_comment, _about(model)))
    lines = [f'"""{about}\n"""', "", *(_python_formula(model, model.formula) if model.formula else _python_tree(model))]
    return "\n".join(lines) + "\n"


def _python_tree(model: Model) -> Iterator[str]:
    yield "#: The kernels of each leaf, in the order to try."
    yield "ORDERS = ("
    yield from (f"    ({', '.join(repr(model.kernels[place]) for place in node.order)},)," for node in model.leaves)
    yield ")"
    yield from _python_head(model)
    language = _Language("if {}:", "else:", "", "return ORDERS[{}]", lambda name, word: repr(word))
    yield from _branches(model, language)


def _python_formula(model: Model, formula: Formula) -> Iterator[str]:
    yield "from math import log2"
    yield "from operator import mul"
    yield ""
    yield f"KERNELS = ({', '.join(map(repr, model.kernels))},)"
    yield "#: WEIGHTS[words_][j][k]: the weight of x_[j] in the cost of KERNELS[k]."
    yield "WEIGHTS = ("
    for table in formula.weights:
        yield "    ("
        yield from (f"        ({', '.join(map(repr, row))},)," for row in table)
        yield "    ),"
    yield ")"
    yield from _python_head(model)
    yield f"    z_ = [{', '.join(_variables(formula))}]"
    yield "    x_ = [1.0, *z_, *(first * second for i, first in enumerate(z_) for second in z_[i:])]"
    yield "    words_ = 0"
    for name, values in model.words.items():
        places = ", ".join(f"{word!r}: {i}" for i, word in enumerate(values))
        yield f"    words_ = words_ * {len(values)} + {{{places}}}.get({name}, 0)"
    yield "    costs_ = [sum(map(mul, x_, column)) for column in zip(*WEIGHTS[words_])]"
    yield "    return tuple(KERNELS[i] for i in sorted(range(len(KERNELS)), key=costs_.__getitem__))"


def _python_head(model: Model) -> Iterator[str]:
    yield ""
    yield ""
    yield f"def select({', '.join([*model.inputs, *model.words])}):"
    yield '    """Return the ids of the kernels to call, the best first."""'
    yield from (f"    {name} = float({name})" for name in model.inputs)


def _variables(formula: Formula) -> Iterator[str]:
    for axis in formula.axes:
        yield f"(log2({axis.expression}) - {axis.centre!r}) * {axis.scale!r}"


FORMATS: dict[str, Callable[[Model], str]] = {"c": as_c, "python": as_python, "json": file_text}


def _about(model: Model) -> list[str]:
    way, single = model.regret.lines[0], model.single
    lines = [
        f"kernelmark select: {model.subject}; from {', '.join(model.runs)}",
        f"Held out ({model.regret.held_out}): {factor(way.share.mean, way.share.low, way.share.high)} the speed of "
        f"the oracle, at worst {factor(way.worst)}.",
    ]
    return lines + [f"One kernel is enough: {single}."] * bool(single)


def _branches(model: Model, language: _Language, at: int = 0, indent: str = "    ") -> Iterator[str]:
    node = model.tree[at]
    if not node.expression:
        yield indent + language.leaf.format(sum(not before.expression for before in model.tree[:at]))
        return
    yield indent + language.branch.format(_condition(model, node, language))
    yield from _branches(model, language, node.below, indent + "    ")
    yield indent + language.otherwise
    yield from _branches(model, language, node.above, indent + "    ")
    if language.end:
        yield indent + language.end


def _condition(model: Model, node: Split, language: _Language) -> str:
    """Return the condition of the branch `below`; thresholds have all digits, so that they are read back exactly."""
    if match := _WORD.fullmatch(node.expression):
        return f"{match[1]} != {language.word(match[1], model.words[match[1]][int(match[2])])}"
    return f"{node.expression} <= {node.threshold!r}"


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text)


def _macro(prefix: str, name: str, word: str) -> str:
    return f"{prefix}_{_name(name)}_{_name(word)}".upper()


def _comment(text: str) -> str:
    """Return a text with `?` in place of characters that could end or change a C comment or a Python string."""
    return one_line(re.sub(r"[^\w .,:;()\[\]@%/+-]|[^\x20-\x7e]", "?", text))
