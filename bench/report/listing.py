"""What `kernelmark list` prints: kernels and suites as rows."""

import json
import tomllib
from typing import Any

from tabulate import tabulate

from bench.measure.machine import unavailable
from bench.plan.registry import Registry
from bench.plan.suites import FOLDER, suite_names

Rows = list[dict[str, Any]]


def kernels(registry: Registry, op: str | None = None, device: str | None = None) -> Rows:
    """A row a kernel: id, device, domain, numerics, label, and why it cannot run here (empty: it can)."""
    rows = []
    for kernel in sorted(registry.kernels.values(), key=lambda kernel: kernel.id):
        if op in (None, kernel.op) and device in (None, kernel.device):
            numerics = kernel.numerics
            shown = numerics if isinstance(numerics, str) else "/".join((numerics or {"": "native"}).values())
            rows.append(
                {
                    "kernel": kernel.id,
                    "device": kernel.device,
                    "domain": " ".join("|".join(values) for values in kernel.domain.values()) or "all",
                    "numerics": shown,
                    "here": unavailable(kernel) or "usable",
                    "label": kernel.label,
                }
            )
    return rows


def suites(registry: Registry) -> Rows:
    """A row a suite: name, title, source; nothing is expanded."""
    rows = []
    for name in suite_names():
        table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        rows.append({"suite": name, "title": table["title"], "source": table["source"]})
    return rows


def render(rows: Rows, as_json: bool) -> str:
    """A table, or JSON."""
    if as_json:
        return json.dumps(rows, indent=2)
    shown = [{key: value for key, value in row.items() if key != "label"} for row in rows]
    return tabulate(shown, headers="keys") if shown else "nothing matches"
