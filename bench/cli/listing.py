"""What `kernelmark list` prints: kernels and suites as rows."""

import json
import tomllib
from collections import Counter
from typing import Any

from tabulate import tabulate

from bench.measure.machine import unavailable
from bench.plan.registry import Registry
from bench.plan.suites import FOLDER, suite_names

Rows = list[dict[str, Any]]


def kernels(registry: Registry, op: str | None = None, device: str | None = None) -> Rows:
    """Return a row a kernel: id, device, domain, numerics, whether it can run here, label, and why it cannot."""
    rows = []
    for kernel in sorted(registry.kernels.values(), key=lambda kernel: kernel.id):
        if op in (None, kernel.op) and device in (None, kernel.device):
            numerics = kernel.numerics
            shown = numerics if isinstance(numerics, str) else "/".join((numerics or {"": "native"}).values())
            rows.append(
                {
                    "kernel": kernel.id,
                    "device": kernel.device,
                    "domain": " ".join("|".join(map(str, values)) for values in kernel.domain.values()) or "all",
                    "numerics": shown,
                    "here": "no" if (reason := unavailable(kernel)) else "yes",
                    "label": kernel.label,
                    "reason": reason or "",
                }
            )
    return rows


def suites(registry: Registry) -> Rows:
    """Return a row a suite: name, title, source; nothing is expanded."""
    rows = []
    for name in suite_names():
        table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        rows.append({"suite": name, "title": table["title"], "source": table["source"]})
    return rows


def render(rows: Rows, as_json: bool) -> str:
    """Return a table with the reasons below it, or JSON."""
    if as_json:
        return json.dumps(rows, indent=2)
    shown = [{key: value for key, value in row.items() if key != "reason"} for row in rows]
    reasons = Counter(row["reason"] for row in rows if row.get("reason"))
    below = [f"{count} cannot run here: {reason}" for reason, count in reasons.items()]
    return "\n".join([tabulate(shown, headers="keys"), *below]) if shown else "nothing matches"
