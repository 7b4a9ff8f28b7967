"""Claims with experiments of a second or two, in place of those of the founding texts."""

import pytest

from kernelmark.bench.claims import answer, catalog

PROBLEMS = ("copy/m31n35/f32", "copy/m35n31/f32")
KERNELS = ("copy/numpy.threaded", "copy/numpy.copyto")


def experiment(name: str, max_time: float) -> catalog.Experiment:
    return catalog.Experiment(id=name, title=name, problems=PROBLEMS, kernels=KERNELS, max_time=max_time)


def claim(name: str, of: str) -> catalog.Claim:
    compared = catalog.Contrast(kind="kernels", one=KERNELS[:1], other=KERNELS[1:])
    words = {"words": name, "source": "", "applies": "", "number": "time over time"}
    return catalog.Claim(id=name, experiment=of, confirm=catalog.Confirm(above=1.0), comparison=compared, **words)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one experiment take longest, and two claims rest on another."""
    experiments = (experiment("dull", 0.05), experiment("single", 0.01), experiment("twice", 0.01))
    judged = (claim("a", "dull"), claim("b", "single"), claim("c", "twice"), claim("d", "twice"))
    stand_in = catalog.Catalog(experiments, judged)
    for module in (catalog, answer):
        monkeypatch.setattr(module, "catalog", lambda: stand_in)
