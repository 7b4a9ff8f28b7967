"""What a claim lacks of the hardware, by what a run recorded of the machine that it was measured on."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

from kernelmark.bench.claims.catalog import Claim, Experiment, catalog, experiment_named
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.format import count


class Hardware(NamedTuple):
    """What the machines of some runs have at most; None: not recorded by any of them.

    Runs from before the number of GPUs was recorded name one.
    """

    names: str = ""
    gpus: int | None = None
    threads: int | None = None
    isas: tuple[str, ...] | None = None

    @classmethod
    def of(cls, machines: Iterable[Mapping[str, Any]]) -> Self:
        """Return what machines have, by their facts; runs that came from other tools have none of these."""
        known = [facts for facts in machines if "cpus_usable" in facts]
        if not known:
            return cls()
        isas = [facts["isas"] for facts in known if "isas" in facts]
        return cls(
            names=" and ".join(dict.fromkeys(_name(facts) for facts in known)),
            gpus=max(facts.get("gpus", int("gpu" in facts)) for facts in known),
            threads=max(facts["cpus_usable"] for facts in known),
            isas=tuple(dict.fromkeys(chain(*isas))) if isas else None,
        )

    def lacks(self, claim: Claim, asked: Experiment) -> str:
        """Return what a claim's experiment needs and these machines do not have, or ""."""
        gpus = max(claim.gpus, int(asked.device == "cuda"))
        if self.gpus is not None and self.gpus < gpus:
            return f"{'a GPU' if gpus == 1 else count(gpus, 'GPU')}; {self.names} has {self.gpus or 'none'}"
        if self.threads is not None and self.threads < claim.threads:
            return f"{claim.threads} threads; {self.names} has {self.threads}"
        isas = [isa for isa in asked.isas if isa]
        if self.isas is not None and not set(isas) <= set(self.isas):
            return f"the instruction sets {' and '.join(isas)}; {self.names} has {' and '.join(self.isas) or 'none'}"
        return ""


def untestable(name: str, machine: Mapping[str, Any]) -> str:
    """Return why a machine with these facts can test no claim of an experiment, or ""."""
    hardware, asked = Hardware.of([machine]), experiment_named(name)
    reasons = [claim.lacks or hardware.lacks(claim, asked) for claim in catalog().claim if claim.experiment == name]
    return reasons[0] if all(reasons) else ""


def without_sensor(results: Sequence[Result]) -> list[str]:
    """Return the devices on which no row read a sensor of power or energy."""
    read = {r.device_name for r in results if r.energy_j is not None or r.power_w is not None}
    return [name for name in dict.fromkeys(r.device_name for r in results) if name not in read]


def _name(facts: Mapping[str, Any]) -> str:
    """Return `Some CPU`, or `Some CPU with Some GPU`."""
    return " with ".join(filter(None, [facts.get("cpu", "the machine"), facts.get("gpu")]))
