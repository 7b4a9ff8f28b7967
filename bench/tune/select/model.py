"""Read, write and apply a selector, which is a tree or a formula for one operation in one setting."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.plan.declared import DEVICES, NAME
from kernelmark.bench.plan.dtypes import DTYPES, Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import readable, replacing
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.text import indented
from kernelmark.bench.record.store import default_store
from kernelmark.bench.report.figures.style import file_name
from kernelmark.bench.tune.select.growers import DEPTH, Formula, orders
from kernelmark.bench.tune.select.training import FeatureSpace, feature_space, inputs_of, others_of, words_of
from kernelmark.bench.tune.tuned import AUTO, device_name

_FORMAT = 2
#: A selector is worth its code only if the oracle is at least this many times as fast as the best single kernel.
WORTH = 1.05
#: The largest file that is read; a selector of 10,000 problems has a tenth of this.
_MOST_BYTES = 16e6
#: A kernel's id; since exported code contains it, nothing in it may end a string or a comment.
KernelId = Annotated[str, Meta(pattern=rf"\A{NAME}/{NAME}\.{NAME}\Z", max_length=200)]


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A geometric mean of speed ratios (`recovered`: a quotient). low, high: 95 % interval, null for one family."""

    mean: float
    low: float | None
    high: float | None


class PolicyScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The score of one way to choose kernels.

    problems: the number of timed problems. share, worst: mean and least speed relative to the oracle's. right: the
    share of problems whose chosen kernel is not certainly slower than the fastest. kernel: the only one chosen, or "".
    """

    way: str
    kernel: str
    problems: int
    share: Share
    worst: float
    worst_problem: str
    right: float


class Regret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a selector on held-out problems. The oracle is the choice of the fastest kernel for each problem.

    gap: the oracle's speed relative to the best single kernel's. over_single: the selector's speed relative to that
    kernel's. recovered: log(over_single) / log(gap). processes: the fewest processes of any row; if 1, the same process
    chooses and times the oracle's kernels. noise: a sentence with the number of disturbed rows, or "".
    """

    held_out: str
    problems: int
    families: int
    processes: int
    lines: list[PolicyScore]
    gap: Share
    over_single: Share
    recovered: Share | None
    noise: str = ""

    @property
    def is_worth_it(self) -> bool:
        """Return whether the gap is large enough, and the selector is certainly faster than the best single kernel."""
        return self.gap.mean >= WORTH and self.over_single.low is not None and self.over_single.low > 1


class Split(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node of the tree. If a node has an expression, values up to the threshold lead to node `below`.

    A node without an expression is a leaf. order: the indices of the kernels, the best first. problems: the number of
    its training problems. share, worst: mean and least speed relative to the oracle's on these problems when they are
    held out. A formula has a leaf for each kernel that is first on some problems; such a leaf's order is by mean rank.
    """

    expression: str = ""
    threshold: float = 0.0
    below: int = -1
    above: int = -1
    order: list[int] = []
    problems: int = 0
    share: Share | None = None
    worst: float | None = None


class TrainingProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training problem, and the kernel that was fastest on it."""

    problem: str
    fastest: str


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored selector. single: the kernel to call on every problem, or "" if selecting pays.

    words: for each axis whose values are names, these names; expressions contain their indices. fixed: the values that
    all problems share. ranges: the least and the greatest value of each input. grown: how the selector was made:
    `alone`, `taught` or `formula`. tree: the nodes, the root first. formula: if given, it chooses instead of the tree,
    which then has only leaves.
    """

    format: int = _FORMAT
    op: str
    device: str
    device_name: str
    threads: int
    mode: str
    dtype: str
    precision: str
    isa: str
    runs: list[str]
    kernels: Annotated[list[KernelId], Meta(min_length=1, max_length=255)]
    inputs: list[str]
    words: dict[str, list[str]]
    fixed: dict[str, int | float | str]
    ranges: dict[str, tuple[float, float]]
    single: str
    regret: Regret
    grown: str
    tree: list[Split]
    formula: Formula | None
    measured: Annotated[list[TrainingProblem], Meta(min_length=1)]

    @property
    def subject(self) -> str:
        """Return the selector's setting: `conv on Some CPU, 2 threads, cold, f32`."""
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}" if self.device == "cpu" else ""
        return ", ".join(filter(None, (f"{self.op} on {self.device_name}", self.isa, threads, self.mode, self.dtype)))

    @property
    def leaves(self) -> list[Split]:
        return [node for node in self.tree if not node.expression]


def file_of(op: str, device: str, where: str = AUTO) -> Path:
    """Return the file of a selector for an operation on a device: `where`, or for `auto` one in the data folder."""
    if where != AUTO:
        return Path(where)
    return default_store().parent / "selectors" / f"{file_name(op, device)}.json"


def write(path: Path, model: Model) -> None:
    """Write a selector atomically. Raises UsageError."""
    with replacing(path, "--model FILE names another") as beside:
        beside.write_text(file_text(model), encoding="utf-8")


def file_text(model: Model) -> str:
    """Return the text of a selector's file."""
    return indented(model) + "\n"


def read(path: Path, registry: Registry) -> Model:
    """Return the selector in a file. Raises UsageError if the file is no selector or has another schema."""
    train = "`kernelmark select --train` makes one"
    with readable(path, f"; {train}", _MOST_BYTES):
        try:
            model = msgspec.json.decode(path.read_bytes(), type=Model)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path}: is not a selector, or has another schema: {error}; {train}") from None
    if complaint := next(_complaints(model, registry), None):
        raise UsageError(f"{path}: {complaint}; {train}")
    return model


def _complaints(model: Model, registry: Registry) -> Iterator[str]:
    """Yield the reasons why a selector cannot be used. Only expressions and names that kernelmark writes are valid."""
    if model.format != _FORMAT:
        yield f"has format {model.format}, expected {_FORMAT}"
    if model.op not in registry.operations:
        yield f"is for {model.op!r}, which is not an operation"
        return
    kind, kernels = registry.operations[model.op], set(model.kernels)
    for what, names in (("inputs", model.inputs), ("ranges", list(model.ranges))):
        if names != list(inputs_of(kind)):
            yield f"has the {what} {', '.join(names)}, expected {', '.join(inputs_of(kind))}"
    for name, known in (("device", DEVICES), ("mode", list(Mode)), ("dtype", DTYPES)):
        if (value := getattr(model, name)) not in known:
            yield f"has the {name} {value!r}, expected one of {', '.join(sorted(known))}"
    for name, value in chain(((n, v) for n, values in model.words.items() for v in values), model.fixed.items()):
        if (complaint := kind.complaint(name, value)) is not None:
            yield complaint
    words = set(words_of(kind))
    if unknown := sorted(model.words.keys() - words | model.fixed.keys() - words - set(others_of(kind))):
        yield f"has an axis {unknown[0]!r}, which no selector of {model.op} has"
    if any(len(set(values)) != len(values) for values in (model.kernels, *model.words.values())):
        yield "contains a name twice"
    space = space_in(model, registry)
    if unknown := [n.expression for n in model.tree if n.expression and n.expression not in space.texts]:
        yield f"compares {unknown[0]!r}, which is not an expression of {model.op}"
    if not {model.single or model.kernels[0], *(training.fastest for training in model.measured)} <= kernels:
        yield "calls a kernel that is not in its list"
    if not (model.single or model.regret.recovered) or not model.regret.lines:
        yield "does not state the share of the gap that the selector recovers"
    if model.formula and (wrong := model.formula.complaint(space, len(model.kernels))):
        yield wrong
    if not _is_tree(model):
        yield f"has a tree with a node that leads nowhere, has two parents, or is below more than {DEPTH} others"
    for training in model.measured:
        try:
            if (op := registry.problem(training.problem).op) != model.op:
                yield f"has a problem of {op}, expected {model.op}"
        except UsageError as error:
            yield str(error)


def _is_tree(model: Model) -> bool:
    """Return whether each node has one parent, listed before it, and each leaf has an order and shares."""
    depths = dict.fromkeys(range(len(model.tree)), 0) if model.formula else {0: 0}  # a formula has only leaves
    for at, node in enumerate(model.tree):
        if at not in depths:
            return False
        if not node.expression:
            if sorted(node.order) != list(range(len(model.kernels))) or not node.share or not node.worst:
                return False
            continue
        for to in (node.below, node.above):
            if to <= at or to in depths or model.formula:
                return False
            depths[to] = depths[at] + 1
    return len(depths) == len(model.tree) > 0 and max(depths.values()) <= DEPTH


def space_in(model: Model, registry: Registry) -> FeatureSpace:
    """Return the feature space of a selector."""
    return feature_space(registry.operations[model.op], model.words, model.fixed)


def kept(problem: Problem, where: str, registry: Registry) -> Model:
    """Return the stored selector for a problem. Raises UsageError if it is missing or is for other devices."""
    files = [file_of(problem.op, device_name(device), where) for device in devices_present()]
    path = next(filter(Path.exists, files), None)
    if path is None:
        raise UsageError(f"{files[0]}: does not exist; `kernelmark select --train RUN` makes it from the rows of a run")
    model = read(path, registry)
    require_here(path, model)
    if model.op != problem.op:
        raise UsageError(f"{path}: is for {model.op}, but {problem.id} is of {problem.op}; --model names another file")
    return model


def require_here(path: Path, model: Model) -> None:
    """Raise UsageError for a selector of another device."""
    here = [device_name(device) for device in devices_present()]
    if model.device_name not in here:
        complaint = f"is for {model.device_name}, but this machine has {' and '.join(here)}"
        raise UsageError(f"{path}: {complaint}; `kernelmark select --train RUN` makes a selector from a run here")


def chosen(model: Model) -> dict[str, int]:
    """Return, by kernel, the number of training problems for which it is chosen, the most frequent kernel first."""
    counts = Counter[str]()
    for node in model.leaves:
        counts[model.kernels[node.order[0]]] += node.problems
    return dict(counts.most_common())


class KernelChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice for a problem. refused: preferred kernels that cannot be called, with reasons.

    share, worst: mean and least speed relative to the oracle's on the leaf's held-out problems. problems: the number of
    these problems. nearest: the nearest measured problem. octaves: the distance to it, null if a name such as the
    layout differs. fastest: the fastest kernel on it. outside: each value outside the measured range, and the range.
    """

    problem: str
    kernel: str
    refused: list[str]
    share: Share
    worst: float
    problems: int
    nearest: str
    fastest: str
    octaves: float | None
    outside: list[str]


class SelectDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document of `select --json`. single: the kernel to call on every problem, or "" if selecting pays.

    problems: the number of training problems; leaves: the number of leaves of the tree, or of kernels that the formula
    chooses; choices: the number of problems for which each kernel is chosen; answer: null if no problem was given.
    """

    op: str
    device: str
    device_name: str
    threads: int
    mode: str
    dtype: str
    precision: str
    isa: str
    runs: list[str]
    single: str
    problems: int
    leaves: int
    choices: dict[str, int]
    regret: Regret
    answer: KernelChoice | None


def document(model: Model, kernel_choice: KernelChoice | None) -> str:
    """Return the JSON text of a `SelectDocument` with the selector and, if there is one, its choice."""
    same = {*Model.__struct_fields__} & {*SelectDocument.__struct_fields__}
    made = SelectDocument(
        **{name: getattr(model, name) for name in same},
        problems=len(model.measured),
        leaves=len(model.leaves),
        choices=chosen(model),
        answer=kernel_choice,
    )
    return indented(made) + "\n"


def answer(model: Model, problem: Problem, registry: Registry) -> KernelChoice:
    """Return the choice for a problem. Raises UsageError if no kernel of the model can be called."""
    node, name, refused = choice(model, problem, registry)
    assert node.share, "a leaf has a share"
    assert node.worst, "a leaf has a worst"
    space = space_in(model, registry)
    measured = space.numbers([registry.problem(training.problem) for training in model.measured])
    distances = space.apart(space.numbers([problem])[0], measured)
    at = int(np.argmin(distances))
    return KernelChoice(
        problem=problem.id,
        kernel=name,
        refused=refused,
        share=node.share,
        worst=node.worst,
        problems=node.problems,
        nearest=model.measured[at].problem,
        fastest=model.measured[at].fastest,
        octaves=float(distances[at]) if np.isfinite(distances[at]) else None,
        outside=list(_outside(model, problem)),
    )


def choice(model: Model, problem: Problem, registry: Registry) -> tuple[Split, str, list[str]]:
    """Return a problem's leaf, the leaf's first kernel that can be called, and why earlier kernels cannot.

    Raises UsageError if no kernel can be called.
    """
    space = space_in(model, registry)
    node, names = placed(model, space, space.numbers([problem]))
    refused: list[str] = []
    for name in names:
        if not (reason := _refusal(name, problem, registry)):
            return node, name, refused
        refused.append(reason)
    what = f"the selector has no kernel that can run it: {refused[0]}"
    raise UsageError(f"{problem.id}: {what}; train it on a run with other kernels")


def placed(model: Model, space: FeatureSpace, known: Array) -> tuple[Split, list[str]]:
    """Return a problem's leaf, and the names of the kernels, the best first. known: the problem's inputs.

    If the formula's first kernel has no leaf, the returned leaf has the figures of all held-out problems.
    """
    if model.formula:
        order = orders(model.formula, space, known)[0].tolist()
        node = next((leaf for leaf in model.tree if leaf.order[0] == order[0]), None)
        if node is None:
            way = model.regret.lines[0]
            node = Split(order=order, problems=way.problems, share=way.share, worst=way.worst)
    else:
        values = dict(zip(space.texts, space.features(known)[0].tolist(), strict=True))
        node = model.tree[0]
        while node.expression:
            node = model.tree[node.below if values[node.expression] <= node.threshold else node.above]
        order = node.order
    return node, [model.kernels[place] for place in order]


def _refusal(name: str, problem: Problem, registry: Registry) -> str | None:
    try:
        kernel = registry.kernels[name]  # not get(), which resolves no tiles
    except KeyError:
        return f"{name} is unknown here; --plugin names the file that declares it"
    return unavailable(kernel) or kernel.refuses(problem)


def _outside(model: Model, problem: Problem) -> Iterator[str]:
    for name, (low, high) in model.ranges.items():
        if not low <= (value := getattr(problem, name)) <= high:
            yield f"{name} is {value}, measured {low:g}" + f" to {high:g}" * (low < high)
    for name, values in model.words.items():
        if (word := getattr(problem, name)) not in values:
            yield f"{name} is {word}, measured {', '.join(values)}"
    for name, fixed in model.fixed.items():
        if (value := getattr(problem, name)) != fixed:
            yield f"{name} is {value}, measured {fixed}"
