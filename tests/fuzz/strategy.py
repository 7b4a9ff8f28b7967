"""Strategies that draw inputs of several kinds, with various streams, locales and environment variables."""

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from fuzz import contents
from fuzz.commands import PATIENCE_S, PROBLEM_WORDS, QUICK, Word, calls, once_in, step_of
from fuzz.inputs import EXPORTS, HISTORY, NETWORK, ROWS_RUN, STORES, File, Input, Step
from kernelmark.bench.run.crashes import LEAST_S

#: Files that the words of any command may name.
FILES = {
    **{name: File(sample=name) for name in (*STORES, *EXPORTS) if name != "rows.parquet"},
    "folder/file": File("text"),
    "fifo": File(kind="fifo"),
    "full": File("/dev/full", kind="link"),
    "plugin.py": File("import numpy\n"),
    "prices.toml": File((Path(__file__).parents[2] / "bench/claims/prices.toml").read_text()),
    "kernel.cu": File("__global__ void none() {}\n"),
}
#: Variables that only a new process reads, such as locales and encodings that are not UTF-8.
LOCALES = (
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LANG": ""},
    *({"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1:strict"}, {"PYTHONOPTIMIZE": "2"}),
    {"PYTHONWARNINGS": "error"},
)
VARIABLES = (
    *({"COLUMNS": text} for text in ("1", "0", "-7", "x", "9" * 30)),
    *({"XDG_DATA_HOME": text} for text in ("", "/dev/null", "data\n", "x" * 300)),
    *({"TERM": "dumb"}, {"TMPDIR": "/proc/none"}, {"HOME": "/proc/none"}, {"PATH": ""}, {"NO_COLOR": "1"}),
    *({"LANG": "xx_YY"}, {"TZ": "nowhere"}, {"OMP_NUM_THREADS": "x"}, {"MPLBACKEND": "x"}),
    {"_KERNELMARK_COMPLETE": "bash_complete", "COMP_WORDS": "kernelmark run --kernels ", "COMP_CWORD": "3"},
    {"_KERNELMARK_COMPLETE": "bash_complete", "COMP_WORDS": "kernelmark show --db hurt.db ", "COMP_CWORD": "4"},
    {"_KERNELMARK_COMPLETE": "zsh_complete", "COMP_WORDS": "kernelmark 'x", "COMP_CWORD": "1"},
    {"_KERNELMARK_COMPLETE": "x", "COMP_WORDS": "", "COMP_CWORD": "x"},
)
#: Commands that read a store, without their option --db.
READERS = [
    tuple(words.split())
    for words in f"""show; show --json; show --by network; show --by overlap; show --row some.fast; export
    export --format json; export --format latex; export --format markdown; export --format parquet -o out.parquet
    runs; runs --json; doctor; claims {ROWS_RUN}; compare base 20260201-new; compare {ROWS_RUN} {ROWS_RUN} --json
    crossover gemm/m16n16k16/f32/NN; import rows.csv; run --resume {ROWS_RUN}; runs --delete {ROWS_RUN}
    runs --prune 1d; scaling {NETWORK} --link 8GB/s; scaling {NETWORK} --link 8GB/s --json; history {" ".join(HISTORY)}
    history {" ".join(HISTORY)} --diff; history {" ".join(HISTORY)} --json; select --train {ROWS_RUN}
    select --train {ROWS_RUN} --format c""".replace("\n", ";").split(";")
]
#: Commands that load plug-ins and measure nothing.
LOADERS = [
    tuple(words.split())
    for words in """list; list --json; list --all; verify copy/m4n4/f32 --kernels no/such; import rows.csv --db new.db
    crossover gemm/m16n16k16/f32/NN --db rows.db""".replace("\n", ";").split(";")
]
ROWS = {"rows.db": File(sample="rows.db"), "rows.csv": File(sample="rows.csv")}
#: The kinds of input, and how often each is drawn: costly kinds less often.
KINDS = {
    "calls": 56, "prices": 10, "defaults": 10, "problems": 12, "suites": 20, "imports": 32, "plugins": 12, "stores": 44,
    "faulty": 3,
}  # fmt: skip


def inputs(samples: Path, only: tuple[str, ...] = ()) -> st.SearchStrategy[Input]:
    damages, text = contents.damages(samples / "rows.db"), (samples / "rows.csv").read_text()
    by_kind = {
        "calls": _calls(damages), "prices": _prices(), "defaults": _defaults(), "problems": _problems(),
        "suites": _suites(), "imports": _imports(text), "plugins": _plugins(), "stores": _stores(damages),
        "faulty": _faulty(),
    }  # fmt: skip
    kinds = [kind for kind in only or KINDS for _ in range(KINDS[kind])]
    return st.sampled_from(kinds).flatmap(by_kind.__getitem__).flatmap(_placed)


@st.composite
def _placed(draw: Any, given: Input) -> Input:
    """Draw changes to an input's first step: rarely, other streams, other variables or a new process."""
    first, changed = given.steps[0], dict[str, Any]()
    if draw(once_in(12)):
        changed |= {
            "out": (out := draw(st.sampled_from(["file", "closed", "full", "gone", "head"]))),
            "err": draw(st.sampled_from(["file", "file", "closed", "full", "gone"])),
            "refused": first.refused and out == "file",
        }
    if draw(once_in(20)):
        changed |= {"variables": draw(st.sampled_from(VARIABLES)), "refused": False}
    if draw(once_in(40)) and first.patience_s != PATIENCE_S:  # in which a new process cannot start
        variables = {**changed.get("variables", {}), **draw(st.sampled_from([{}, *LOCALES]))}
        changed |= {"fresh": True, "variables": variables}
    return msgspec.structs.replace(given, steps=(msgspec.structs.replace(first, **changed), *given.steps[1:]))


@st.composite
def _calls(draw: Any, damages: Any) -> Input:
    return Input((draw(calls()),), {**FILES, "hurt.db": File(sample="rows.db", damage=draw(damages))})


@st.composite
def _problems(draw: Any, words: list[Word] | None = None, more: dict[str, File] | None = None) -> Input:
    """Draw a command with problems or a suite; `crossover` takes only one, and reads a store."""
    name = draw(st.sampled_from(["crossover", "verify", "run", "verify"] + ["crossover"] * 2 * bool(words)))
    words = words or draw(st.lists(PROBLEM_WORDS, min_size=1, max_size=2))
    if name == "crossover":
        return Input((step_of(name, words[:1], "--db", "rows.db"),), {**ROWS, **(more or {})})
    return Input((step_of(name, words, "--db", "new.db", *QUICK[name]),), {**ROWS, **(more or {})})


@st.composite
def _suites(draw: Any) -> Input:
    suite = contents.SUITE | {"sweep": [draw(st.sampled_from(contents.SWEEPS))]}
    document = draw(contents.documents(suite, contents.WRONG_SUITES))
    return draw(_problems([Word("mine.toml", document.refused, not document.refused)], {"mine.toml": document.file}))


@st.composite
def _prices(draw: Any) -> Input:
    document = draw(contents.documents(contents.PRICES, contents.WRONG_PRICES))
    words = ("claims", ROWS_RUN, "--db", "rows.db", "--prices", "mine.toml")
    return Input((Step(words, refused=document.refused),), {**ROWS, "mine.toml": document.file})


@st.composite
def _defaults(draw: Any) -> Input:
    words = draw(st.sampled_from([("list",), *((*words, "--db", "rows.db") for words in READERS[:9])]))
    table = draw(contents.defaults())
    if draw(once_in(3)):
        files = {"pyproject.toml": File(contents.toml({"tool": {"kernelmark": table}}))}
        return Input((Step(words),), {**FILES, **files}, asked=(".",))
    document = draw(contents.documents(table, contents.WRONG_DEFAULTS))
    refused = document.refused and document.file.text.strip("\ufeff") != ""  # an empty file is valid
    return Input((Step(words, refused=refused),), {**FILES, "kernelmark.toml": document.file}, asked=(".",))


@st.composite
def _stores(draw: Any, damages: Any) -> Input:
    sample = draw(st.sampled_from(["rows.db", "rows.db", "runs.db", "net.db", "old.db"]))
    chosen = draw(st.lists(st.sampled_from(READERS), min_size=1, max_size=2))
    if draw(once_in(120)):
        chosen = [("report", "--out", "out"), *chosen[:1]]
    steps = [Step((*words, "--db", "hurt.db"), patience_s=PATIENCE_S if words[0] == "run" else 0.0) for words in chosen]
    return Input(tuple(steps), {**ROWS, "hurt.db": File(sample=sample, damage=draw(damages))})


@st.composite
def _imports(draw: Any, text: str) -> Input:
    damage = st.lists(contents.outside(), min_size=1, max_size=3).map(tuple)
    whole = st.builds(File, sample=st.sampled_from(EXPORTS), damage=damage)
    file = draw(st.one_of(*[contents.foreign_json(), contents.own_csv(text)] * 2, whole))
    readers = [words for words in READERS if words[0] in ("show", "export", "runs", "crossover")]
    more = draw(st.lists(st.sampled_from(readers), max_size=1))
    if draw(once_in(180)):
        more = [("report", "--out", "out")]
    name = draw(st.sampled_from(["found.csv", "found.json", "found", "fo|und\n.csv"]))
    return Input(tuple(Step((*words, "--db", "new.db")) for words in [("import", name), *more]), {name: file})


@st.composite
def _plugins(draw: Any) -> Input:
    plugin, words = draw(contents.loading()), (*draw(st.sampled_from(LOADERS)), "--plugin", "mine.py")
    step = Step(words, refused=plugin.refused, patience_s=PATIENCE_S if plugin.lasting else 0.0)
    return Input((step,), {**ROWS, "mine.py": File(plugin.text)}, wild=plugin.wild)


@st.composite
def _faulty(draw: Any) -> Input:
    """Draw a kernel or an operation that fails while it is measured, with a short time limit."""
    op, name = draw(st.sampled_from(["mine", "copy"])), draw(st.sampled_from(["run", "verify"]))
    plugin = draw(contents.failing(op) if op == "mine" else st.one_of(contents.failing(op), contents.declarations()))
    end = ("--plugin", "mine.py", "--timeout", "0.2", "--kernels", "*/*.odd", "--db", "new.db")
    run = Step((name, f"{op}/m4n4/f32", *QUICK[name][:-2], *end), patience_s=LEAST_S + PATIENCE_S)
    return Input((run, Step(("show", "--db", "new.db"))), {"mine.py": File(plugin.text)}, wild=True)
