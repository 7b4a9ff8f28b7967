"""Time a selector in a run as a kernel, such as `gemm/kernelmark.selected`; it chooses a kernel for each problem.

Workers load the selector from a plug-in file, whose name contains a hash of the selector. A resumed run therefore uses
the selector with which it began.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import kept_plugin
from kernelmark.bench.plan.kernel import Kernel, Launch
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import REGISTRY, Registry
from kernelmark.bench.plan.text import as_json
from kernelmark.bench.tune.select.model import Model, choice, file_of, read, require_here
from kernelmark.bench.tune.select.training import SELECTED
from kernelmark.bench.tune.tuned import AUTO, device_name


@dataclass(frozen=True, kw_only=True)
class Selected(Kernel):
    """The kernel that represents a selector in a run; its numerics are those of the chosen kernel."""

    def numerics_for(self, problem: Problem) -> str:
        return _chosen(self.id, problem).numerics_for(problem)


#: The selectors that are registered in this process, by the ids of their kernels.
_MODELS: dict[str, Model] = {}


def register(text: str) -> None:
    """Register a kernel for a selector, given as JSON text. The selector's plug-in calls this."""
    model = msgspec.json.decode(text, type=Model)
    name = f"{model.op}/{SELECTED}"
    kernels = [REGISTRY.kernels[kernel] for kernel in model.kernels if kernel.partition("@")[0] in REGISTRY.kernels]
    provider, _, short = SELECTED.partition(".")
    REGISTRY.add(
        Selected(
            op=model.op,
            name=short,
            provider=provider,
            device=model.device,
            label=f"The kernel that the selector of {model.subject} chooses.",
            setup=lambda problem, x: _launch(name, problem, x),
            domain={"dtype": (model.dtype,)},
            supports=lambda problem: _refusal(name, problem),
            modules=tuple(dict.fromkeys(module for kernel in kernels for module in kernel.modules)),
            threaded=any(kernel.threaded for kernel in kernels),
            executed=lambda problem: _chosen(name, problem).executed_flop(problem),
            library_scratch=lambda problem: _library(_chosen(name, problem).library_scratch, problem, 0),
            library_version=lambda problem: _library(_chosen(name, problem).library_version, problem, ""),
        )
    )
    _MODELS[name] = model


def _library(function: Any, problem: Problem, otherwise: Any) -> Any:
    return function(problem) if function else otherwise


@lru_cache(maxsize=1024)
def _chosen(name: str, problem: Problem) -> Kernel:
    return REGISTRY.kernels[choice(_MODELS[name], problem, REGISTRY)[1]]


def _refusal(name: str, problem: Problem) -> str | None:
    try:
        _chosen(name, problem)
    except UsageError as error:
        return str(error)
    return None


def _launch(name: str, problem: Problem, x: Any) -> Launch:
    """Set up the chosen kernel, and record its id as `tunables`. The choice depends only on sizes, so it is untimed."""
    chosen = _chosen(name, problem).id
    x.chose(kernel=chosen)
    launch: Launch = x.launch(chosen, problem.id, **{each.name: getattr(x, each.name) for each in problem.operands()})
    return launch


_PLUGIN = '''"""Made by `kernelmark run --select`: the selector of {op}."""

from kernelmark.bench.tune.select.contender import register

register({text!r})
'''


def plugins_of(where: str, threads: Sequence[int], mode: str, registry: Registry) -> list[str]:
    """Write plug-ins for the selector in file `where`, or for all selectors of this machine (`auto`); return the paths.

    Raises UsageError if no selector is for these numbers of threads and this mode.
    """
    files = [Path(where)]
    if where == AUTO:
        names = tuple(file_of("", device_name(device)).name for device in devices_present())
        files = sorted(path for path in file_of("any", "any").parent.glob("*.json") if path.name.endswith(names))
    models = [(path, read(path, registry)) for path in files]
    for path, model in models:
        require_here(path, model)
    alike = [m for _, m in models if (m.device != "cpu" or (m.threads,) == tuple(threads)) and m.mode == mode]
    if not alike:
        setting = f"{', '.join(map(str, threads))} thread{'s' * (tuple(threads) != (1,))}, {mode}"
        subjects = "; ".join(f"{path} is for {model.subject}" for path, model in models) or "there is none"
        raise UsageError(f"--select {where}: {subjects}; expected {setting}; `kernelmark select --train RUN` makes one")
    return [str(kept_plugin(_PLUGIN.format(op=model.op, text=as_json(model)))) for model in alike]
