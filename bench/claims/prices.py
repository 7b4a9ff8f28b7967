"""Prices of an hour of each device, from a file that the user edits."""

import datetime as dt
import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from kernelmark.bench.claims.catalog import PRICES, TomlTable, read_table
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store

REMEDY = f"; {PRICES} is an example"


class DevicePrice(TomlTable, frozen=True):
    """The price of an hour of a device; name: a glob over device_name; watts: the declared power under load.

    otherwise_per_hour: the price on other terms, such as without preemption.
    """

    device: Literal["cpu", "cuda"]
    name: str
    per_hour: float
    watts: float | None = None
    terms: str = ""
    otherwise_per_hour: float | None = None

    def __post_init__(self) -> None:
        for key in ("per_hour", "watts", "otherwise_per_hour"):
            value = getattr(self, key)
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"{key} is {value!r}, expected a finite number above 0")


class Vcpus(TomlTable, frozen=True):
    """The price of an hour of an instance with this many virtual CPUs, one per thread."""

    count: int
    per_hour: float

    def __post_init__(self) -> None:
        if not (0 < self.per_hour < math.inf):
            raise ValueError(f"per_hour is {self.per_hour!r}, expected a finite number above 0")


class Prices(TomlTable, frozen=True):
    """A prices file. device: prices of devices; the first that matches is used. vcpus: prices by number of CPUs."""

    currency: str
    date: Any  # a string, or a date as TOML writes it
    device: tuple[DevicePrice, ...]
    vcpus: tuple[Vcpus, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.date, str | dt.date) or self.date == "":
            raise ValueError(f"date is {self.date!r}, expected a date, or text that contains one")

    def of(self, r: Result) -> DevicePrice | None:
        return next((d for d in self.device if d.device == r.device and fnmatchcase(r.device_name, d.name)), None)

    def watts(self, result: Result) -> float | None:
        """Return the watts that the file declares for the device of a row."""
        device = self.of(result)
        return device.watts if device else None

    def of_vcpus(self, count: int) -> Vcpus | None:
        return next((priced for priced in self.vcpus if priced.count == count), None)

    def told(self, results: Iterable[Result]) -> tuple[str, ...]:
        devices = {(r.device, r.device_name): (r.device_name, self.of(r)) for r in results}
        return tuple(f"{name}: {self._price(price)}" for name, price in devices.values() if price)

    def _price(self, device: DevicePrice) -> str:
        watts = f", {device.watts:g} W declared" if device.watts else ""
        terms = f", {device.terms}" if device.terms else ""
        return f"{device.per_hour:g} {self.currency} an hour ({self.date}{terms}){watts}"


def load_prices(path: Path | None) -> Prices:
    """Return the prices in a file, by default the example file. Raises UsageError that names file and key."""
    prices: Prices = read_table(path or PRICES, Prices, REMEDY)
    if not prices.device:
        raise UsageError(f"{path or PRICES}: has no [[device]] table; a prices file needs at least one{REMEDY}")
    return prices


def check_known(prices: Prices, path: Path, store: Store, run_ids: Iterable[str]) -> None:
    """Raise UsageError if the file has no price for any device of the runs."""
    rows = {(r.device, r.device_name): r for run_id in run_ids for r, _ in store.results(run_id) if r.device_name}
    if rows and not any(map(prices.of, rows.values())):
        here = " or ".join(f"{name!r} ({kind})" for kind, name in sorted(rows))
        said = ", ".join(f"{d.name!r} ({d.device})" for d in prices.device)
        raise UsageError(f"{path}: has prices for {said}, expected one for {here}{REMEDY}")
