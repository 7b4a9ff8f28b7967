"""What the campaign draws: inputs of several kinds, on any streams, in any locale and among any variables."""

import signal
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from fuzz import commands, documents, plugins
from fuzz.commands import LASTING, MEASURING_S, PATIENCE_S, QUICK, Call, joined
from fuzz.damages import damages
from fuzz.files import EXPORTS, KEPT, NETWORK, ROWS_RUN, STORES
from fuzz.inputs import Damage, File, Input, Kill, Step
from fuzz.kept import SHOWN
from fuzz.words import PROBLEM_WORDS, Word, once_in
from kernelmark.bench.run.limits import LEAST_S

#: Files that the words of any command may name.
BESIDE = {
    **{name: File(sample=name) for name in STORES},
    **{name: File(sample=name) for name in EXPORTS if name != "rows.parquet"},
    "folder/file": File("text"),
    "fifo": File(kind="fifo"),
    "full": File("/dev/full", kind="link"),
    "plugin.py": File("import numpy\n"),
    "prices.toml": File((Path(documents.__file__).parents[2] / "bench/claims/prices.toml").read_text()),
    "kernel.cu": File("__global__ void none() {}\n"),
}
#: Locales and encodings that are not UTF-8, which only a new process takes.
LOCALES = (
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LANG": ""},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1:strict"},
    {"PYTHONOPTIMIZE": "2"},
    {"PYTHONWARNINGS": "error"},
)
VARIABLES = (
    {"COLUMNS": "1"}, {"COLUMNS": "0"}, {"COLUMNS": "-7"}, {"COLUMNS": "x"}, {"COLUMNS": "9" * 30}, {"TERM": "dumb"},
    {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "/dev/null"}, {"XDG_DATA_HOME": "data\n"}, {"XDG_DATA_HOME": "x" * 300},
    {"TMPDIR": "/nowhere"}, {"HOME": "/nowhere"}, {"PATH": ""}, {"NO_COLOR": "1"}, {"LANG": "xx_YY"}, {"TZ": "nowhere"},
    {"_KERNELMARK_COMPLETE": "bash_complete", "COMP_WORDS": "kernelmark run --kernels ", "COMP_CWORD": "3"},
    {"_KERNELMARK_COMPLETE": "bash_complete", "COMP_WORDS": "kernelmark show --db hurt.db ", "COMP_CWORD": "4"},
    {"_KERNELMARK_COMPLETE": "zsh_complete", "COMP_WORDS": "kernelmark 'x", "COMP_CWORD": "1"},
    {"_KERNELMARK_COMPLETE": "x", "COMP_WORDS": "", "COMP_CWORD": "x"}, {"OMP_NUM_THREADS": "x"}, {"MPLBACKEND": "x"},
)  # fmt: skip
#: Commands that read a store, with what they need besides.
READERS = (
    ("show",), ("show", "--json"), ("show", "--by", "network"), ("show", "--by", "overlap"),
    ("show", "--row", "some.fast"), ("export",), ("export", "--format", "json"),
    ("export", "--format", "latex"), ("export", "--format", "markdown"), ("runs",), ("runs", "--json"), ("doctor",),
    ("claims", ROWS_RUN),
    ("export", "--format", "parquet", "-o", "out.parquet"), ("crossover", "gemm/m16n16k16/f32/NN"),
    ("compare", "base", "20260201-new"),
    ("compare", ROWS_RUN, ROWS_RUN, "--json"), ("import", "rows.csv"), ("run", "--resume", ROWS_RUN),
    ("runs", "--delete", ROWS_RUN),
    ("runs", "--prune", "1d"), ("scaling", NETWORK, "--link", "8GB/s"), ("history", *KEPT),
    ("scaling", NETWORK, "--link", "8GB/s", "--json"), ("history", *KEPT, "--diff"), ("history", *KEPT, "--json"),
    ("select", "--train", ROWS_RUN), ("select", "--train", ROWS_RUN, "--format", "c"),
)  # fmt: skip


#: Commands that load plug-ins and measure nothing.
LOADERS = (
    ("list",), ("list", "--json"), ("list", "--all"), ("verify", "copy/m4n4/f32", "--kernels", "no/such"),
    ("import", "rows.csv", "--db", "new.db"), ("crossover", "gemm/m16n16k16/f32/NN", "--db", "rows.db"),
)  # fmt: skip


#: What `--only` takes, and which of them take seconds each.
KINDS = (
    "calls", "general", "prices", "defaults", "problems", "suites", "imports", "plugins", "stores", "faulty", "kills",
)  # fmt: skip
SLOW = ("stores", "faulty", "kills")


def inputs(samples: Path, quick: bool = False, only: str = "") -> st.SearchStrategy[Input]:
    """Return every kind of input, each as often as its cost allows; quick: only those that measure nothing.

    only: one of KINDS, and no other.
    """
    text = (samples / "rows.csv").read_text()
    names = [name for name in commands.names() if not (quick and name in (*LASTING, "report"))]
    measuring = [] if quick else ["verify", "run", "verify"]
    shares = {
        "calls": (_called(commands.calls(names)), 52), "general": (_called(commands.general_calls()), 4),
        "prices": (_prices(), 10), "defaults": (_defaults(), 10), "plugins": (_plugins(quick), 12),
        "problems": (_problems(["crossover", *measuring]), 12), "suites": (_suites(["crossover"] * 3 + measuring), 20),
        "imports": (_imports(text), 32), "stores": (_stores(), 44), "faulty": (_faulty(), 3), "kills": (_kills(), 1),
    }  # fmt: skip
    chosen = [only] if only else [kind for kind in shares if not (quick and kind in SLOW)]
    kinds = [shares[kind][0] for kind in chosen for _ in range(shares[kind][1])]
    return st.sampled_from(range(len(kinds))).flatmap(lambda i: kinds[i]).flatmap(_placed)


@st.composite
def _placed(draw: Any, given: Input) -> Input:
    """An input, now and then with other streams, variables or a process of its own."""
    first, rest = given.steps[0], given.steps[1:]
    if draw(once_in(12)):
        kinds = st.sampled_from(["pipe", "closed", "full", "gone", "head"])
        first = msgspec.structs.replace(
            first, out=draw(kinds), err=draw(st.sampled_from(["pipe", "pipe", "closed", "full", "gone"]))
        )
        first = msgspec.structs.replace(first, refused=first.refused and first.out == "pipe")
    if draw(once_in(20)):
        first = msgspec.structs.replace(first, variables=draw(st.sampled_from(VARIABLES)), refused=False)
    if draw(once_in(40)) and first.kill is None and first.patience_s != PATIENCE_S:  # none would be for its start
        first = msgspec.structs.replace(
            first, fresh=True, variables={**first.variables, **draw(st.sampled_from([{}, *LOCALES]))}
        )
    return msgspec.structs.replace(given, steps=(first, *rest))


def _called(calls: st.SearchStrategy[Call]) -> st.SearchStrategy[Input]:
    hurt = damages().map(lambda damage: File(sample="rows.db", damage=damage))
    return st.tuples(calls, hurt).map(lambda found: Input((found[0].step(),), files={**BESIDE, "hurt.db": found[1]}))


def _problems(names: list[str]) -> st.SearchStrategy[Input]:
    words = st.lists(PROBLEM_WORDS, min_size=1, max_size=2)
    return st.tuples(st.sampled_from(names), words).map(lambda found: _of_suites(*found, {}))


def _suites(names: list[str]) -> st.SearchStrategy[Input]:
    word = documents.suites().map(
        lambda found: ([Word("mine.toml", found.refused, long=not found.refused)], {"mine.toml": found.file})
    )
    return st.tuples(st.sampled_from(names), word).map(lambda found: _of_suites(found[0], *found[1]))


def _of_suites(name: str, words: list[Word], files: dict[str, File]) -> Input:
    """Suites or problems given to a command; `crossover` takes one, and reads a store."""
    words = words[:1] if name == "crossover" else words
    fixed = ("--db", "rows.db" if name == "crossover" else "new.db", *QUICK.get(name, ()))
    return Input((joined(name, words, fixed).step(),), files={"rows.db": File(sample="rows.db"), **files})


def _prices() -> st.SearchStrategy[Input]:
    words = ("claims", ROWS_RUN, "--db", "rows.db", "--prices", "mine.toml")
    return documents.prices().map(
        lambda found: Input(
            (Step(words, refused=found.refused),), files={"rows.db": File(sample="rows.db"), "mine.toml": found.file}
        )
    )


@st.composite
def _defaults(draw: Any) -> Input:
    """Defaults with any command that ends soon."""
    found = draw(documents.defaults())
    words = draw(st.sampled_from([("list",), *((*words, "--db", "rows.db") for words in READERS[:9])]))
    name, text = "kernelmark.toml", found.file.text
    if draw(once_in(3)):
        name, text = "pyproject.toml", "[tool.kernelmark]\n" + text.replace("\n[", "\n[tool.kernelmark.")
    files = {**BESIDE, name: File(text)}
    return Input((Step(words, refused=found.refused and name == "kernelmark.toml"),), files=files, asked=(".",))


@st.composite
def _stores(draw: Any) -> Input:
    """A damaged store, and one or two commands that read it, add to it or remove from it."""
    sample = draw(st.sampled_from(["rows.db", "rows.db", "runs.db", "net.db", "old.db"]))
    files = {"hurt.db": File(sample=sample, damage=draw(damages())), "rows.csv": File(sample="rows.csv")}
    chosen = draw(st.lists(st.sampled_from(READERS), min_size=1, max_size=2))
    if draw(once_in(120)):
        chosen = [("report", "--out", "out"), *chosen[:1]]
    steps = [Step((*words, "--db", "hurt.db"), patience_s=PATIENCE_S if words[0] == "run" else 0.0) for words in chosen]
    return Input(tuple(steps), files=files)


@st.composite
def _imports(draw: Any, text: str) -> Input:
    """A file of results, and a command that reads what it has become."""
    whole = st.sampled_from(EXPORTS).flatmap(
        lambda name: damages().map(lambda damage: File(sample=name, damage=_outside(damage)))
    )
    file = draw(
        st.one_of(
            documents.foreign_json(), documents.foreign_json(), documents.own_csv(text), documents.own_csv(text), whole
        )
    )
    readers = [words for words in READERS if "RUN" not in words and words[0] in ("show", "export", "runs", "crossover")]
    more = draw(st.lists(st.sampled_from(readers), max_size=1))
    if draw(once_in(180)):
        more = [("report", "--out", "out")]
    name = draw(st.sampled_from(["found.csv", "found.json", "found", "fo|und\n.csv"]))
    steps = [Step(("import", name, "--db", "new.db")), *(Step((*words, "--db", "new.db")) for words in more)]
    return Input(tuple(steps), files={name: file})


def _outside(damage: tuple[Damage, ...]) -> tuple[Damage, ...]:
    return tuple(one for one in damage if one.way != "sql")


@st.composite
def _plugins(draw: Any, quick: bool) -> Input:
    """A plug-in that is loaded, and no more."""
    plugin = draw(plugins.loading().filter(lambda found: not (quick and found.lasting)))
    words = draw(st.sampled_from(LOADERS))
    step = Step(
        (*words, "--plugin", "mine.py"), refused=plugin.refused, patience_s=PATIENCE_S if plugin.lasting else 0.0
    )
    files = {"mine.py": File(plugin.text), "rows.csv": File(sample="rows.csv"), "rows.db": File(sample="rows.db")}
    return Input((step,), files=files, wild=plugin.wild)


@st.composite
def _faulty(draw: Any) -> Input:
    """Kernels and operations that fail while they are measured; the limit of a call is short."""
    mine = draw(st.booleans())
    plugin = draw(plugins.operations() if mine else st.one_of(plugins.kernels(), plugins.declarations()))
    name, op = draw(st.sampled_from(["run", "verify"])), "mine" if mine else "copy"
    quick = [word for word in QUICK[name] if word not in ("--kernels", "*/numpy.*")]
    words = (
        name,
        f"{op}/m4n4/f32",
        *quick,
        "--plugin",
        "mine.py",
        "--timeout",
        "0.2",
        "--kernels",
        "*/*.odd",
        "--db",
        "new.db",
    )
    steps = Step(words, patience_s=LEAST_S + PATIENCE_S), Step(("show", "--db", "new.db"))
    return Input(steps, files={"mine.py": File(plugin.text)}, wild=True)


@st.composite
def _kills(draw: Any) -> Input:
    """A run that is killed at any moment, what is then visible of it, the same again, and the rest of it."""
    suite = File(documents.toml({"sweep": [{"op": "copy", "dtype": "f32", "n": 5, "m": {"linear": [1, 20, 1]}}]}))
    words = ("run", "mine.toml", *QUICK["run"], "--name", "mine", "--db", "new.db")
    again = ("run", "--resume", "mine", "--db", "new.db")
    shown = Step((*SHOWN, "--db", "new.db"))
    runs = [Step(each, kill=draw(_kill()), patience_s=MEASURING_S) for each in (words, again)]
    return Input(
        (runs[0], shown, runs[1], shown, Step(again, patience_s=MEASURING_S), shown), files={"mine.toml": suite}
    )


@st.composite
def _kill(draw: Any) -> Kill:
    number = draw(st.sampled_from([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    after_s = draw(st.sampled_from([tenths / 10 for tenths in range(31)]))  # a number drawn as one would be 0 too often
    return Kill(int(number), after_s, number == signal.SIGKILL and draw(st.booleans()))
