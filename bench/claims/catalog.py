"""The claims and the experiments that test them, read from bench/claims/*.toml."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import read_toml

SOURCES = {
    "shi2016": "S. Shi, Q. Wang, P. Xu and X. Chu (Hong Kong Baptist University), Benchmarking State-of-the-Art Deep "
    "Learning Software Tools, 2016-17, arXiv:1608.07249",
    "dettmers2017": "T. Dettmers, Which GPU(s) to Get for Deep Learning, update of 19 March 2017, his blog",
    "alibaba2017": "a cloud provider's own measurements, unnamed, Accelerating deep learning with GPUs, about 2017",
    "woolf2017": "M. Woolf, Benchmarking TensorFlow on Cloud CPUs: Cheaper Deep Learning than Cloud GPUs, 5 July 2017, "
    "minimaxir.com/2017/07/cpu-or-gpu",
    "gpucpu2020": "unnamed, Do I need a GPU for deep learning?, about 2020",
}
FOLDER = Path(__file__).parent
PRICES = FOLDER / "prices.toml"
#: The names of the files of claims, in the order of the catalog.
ORDER = ("transposition", "convolution", "threads", "gpu", "transfer", "aggregation", "batch", "cost")
Kind = Literal[
    "kernels", "problems", "verified", "threads", "thread-steps", "isas", "isa-threads", "devices", "device-growth",
    "rates", "batch-steps", "batches", "price", "energy", "thread-price", "linked", "network-scaling",
    "network-speedup", "model-parallel", "with-transfers", "step-share", "other-price", "launched",
]  # fmt: skip


class TomlTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of tables of a TOML file; an unknown key is an error."""


class Confirm(TomlTable, frozen=True):
    """The range in which a number confirms a claim. Exactly one field is set."""

    above: float | None = None
    below: float | None = None
    between: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.above, self.below, self.between)) != 1:
            raise ValueError("expected one of above, below, between")

    @property
    def limits(self) -> tuple[float, float]:
        return self.between or (self.above or 0.0, float("inf") if self.below is None else self.below)

    def __str__(self) -> str:
        if self.between is not None:
            return f"{self.between[0]:g}x to {self.between[1]:g}x"
        return f"above {self.above:g}x" if self.above is not None else f"below {self.below:g}x"


class Contrast(TomlTable, frozen=True):
    """The comparison of a claim: its number is the time of `other` over the time of `one`.

    one, other: the two things compared. Depending on `kind`, they are globs of kernels or problems, thread counts,
    instruction sets or devices. problems, kernels: globs that restrict the experiment's problems and kernels. against:
    the kernel on problem `one`, if it differs from the kernel on `other`. limit: the largest thread count. label: a
    format string for a problem's label; its fields are the problem's axes. link_gbyte_per_s: the assumed rate of a
    link between workers. device: the device of the workers. times: a factor by which the number is multiplied.
    counts: the thread counts to use; all if empty.
    """

    kind: Kind
    one: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    against: str = ""
    limit: int = 0
    label: str = ""
    link_gbyte_per_s: float = 0.0
    workers: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    times: float = 1.0
    counts: tuple[int, ...] = ()


class Experiment(TomlTable, frozen=True):
    """The rows to measure: suites or problem ids, kernels (globs), numbers of threads, instruction sets.

    only: globs that restrict the suites' problems. device: the device that the experiment needs. parts: the parts of a
    network to measure; all if empty. batches: the batch sizes for each problem. threads: thread counts to measure
    besides the machine's number of threads; larger counts are skipped. together: the axes that may differ between
    problems measured in turn. spread: the least time in seconds between two processes' starts.
    """

    id: str
    title: str
    problems: tuple[str, ...]
    kernels: tuple[str, ...]
    only: tuple[str, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    parts: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    together: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    isas: tuple[str, ...] = ("",)
    processes: int = 1
    spread: float = 25.0
    max_time: float = 0.2


class Claim(TomlTable, frozen=True):
    """A published statement about performance, where it applies, the number that would confirm it, and its experiment.

    source: a key of SOURCES, or the publication in full. threads, gpus: the numbers that the machine must have.
    lacks: the reason why the claim is never measured, even on a machine with enough threads and GPUs, or "".
    """

    id: str
    words: str
    source: str
    applies: str
    experiment: str
    number: str
    confirm: Confirm
    comparison: Contrast
    threads: int = 1
    gpus: int = 0
    lacks: str = ""

    @property
    def cited(self) -> str:
        """Return author, title and year of the publication."""
        return SOURCES.get(self.source, self.source)


class Catalog(TomlTable, frozen=True):
    """The experiments and claims of one TOML file in bench/claims/.

    A table with the key `like` takes its missing keys from the earlier table whose id is the value of `like`.
    """

    experiment: tuple[Experiment, ...] = ()
    claim: tuple[Claim, ...] = ()


@lru_cache
def files() -> dict[str, Catalog]:
    """Return the contents of each file of claims, in order. Raises UsageError."""
    return {name: read_table(FOLDER / f"{name}.toml", Catalog, complete=_completed) for name in ORDER}


def _completed(file: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a file; one with `like = ID` gets its missing keys from the earlier table with that id."""
    for tables in file.values():
        by_id: dict[str, dict[str, Any]] = {}
        for table in tables:
            for key, value in by_id[table.pop("like")].items() if "like" in table else ():
                table[key] = value | table.get(key, {}) if key == "comparison" else table.get(key, value)
            by_id[table["id"]] = table
    return file


@lru_cache
def catalog() -> Catalog:
    """Return the claims and experiments of all files, in their order. Raises UsageError."""
    return Catalog(
        experiment=tuple(tested for file in files().values() for tested in file.experiment),
        claim=tuple(tested for file in files().values() for tested in file.claim),
    )


def experiment_names() -> list[str]:
    """Return the ids of the experiments, in the order of the catalog."""
    return [tested.id for tested in catalog().experiment]


def experiment_named(name: str) -> Experiment:
    """Return the experiment with this id. Raises UsageError."""
    for tested in catalog().experiment:
        if tested.id == name:
            return tested
    raise UsageError(f"{name!r}: is not an experiment of a claim; expected one of {', '.join(experiment_names())}")


def experiment(claim: Claim) -> Experiment:
    """Return the experiment that tests a claim."""
    return experiment_named(claim.experiment)


def claims(only: Iterable[str] = ()) -> list[Claim]:
    """Return the claims whose id or file's name is in `only`, or all claims if it is empty. Raises UsageError."""
    known, wanted = {claim.id: claim for claim in catalog().claim}, set(only)
    for name in wanted - known.keys() - files().keys():
        expected = f"some of {', '.join(known)}, or all of {', '.join(files())}"
        raise UsageError(f"--only {name!r}: is not a claim; expected {expected}")
    of_files = {claim.id for name in wanted & files().keys() for claim in files()[name].claim}
    return [claim for name, claim in known.items() if not wanted or name in wanted | of_files]


def read_table(
    path: Path, kind: type[Any], remedy: str = "", complete: Callable[[dict[str, Any]], object] = dict
) -> Any:
    """Return the contents of a TOML file as `kind`, after `complete` has added missing keys.

    Raises UsageError with the file, the key and the remedy.
    """
    try:
        return msgspec.convert(complete(read_toml(path)), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}{remedy}") from None
