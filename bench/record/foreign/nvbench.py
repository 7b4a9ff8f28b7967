"""Read nvbench's JSON (--json, file version 1): each state has rows for its cold, batched and CPU-only times.

nvbench flushes the L2 cache before an isolated execution, so these times get mode cold. It does not flush the cache
within a batch, so batched times get mode hot. Values of summaries are numbers or strings, depending on nvbench's
version. A value that is not finite is null or a text such as "inf".
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.foreign import source
from kernelmark.bench.record.foreign.source import FindProblem, ForeignRow, ForeignRun, JsonNode, RowRefused, text_under

KIND = "nvbench JSON"
#: The keys by which a document is recognised.
KEYS = {"devices", "benchmarks"}


class NvbenchTiming(NamedTuple):
    """One of nvbench's kinds of timing: tag and clock in nvbench's summaries, device and mode in kernelmark's rows."""

    tag: str
    clock: str
    device: str
    mode: str


#: The C++ standard library's texts for numbers that are not finite.
_UNKNOWN = ("inf", "-inf", "nan", "-nan")
WAYS = (
    NvbenchTiming("nv/cold", "gpu", "cuda", Mode.COLD),
    NvbenchTiming("nv/batch", "gpu", "cuda", Mode.HOT),
    NvbenchTiming("nv/cpu_only", "cpu", "cpu", ""),
)


def read(root: JsonNode, path: Path, suite: str, find: FindProblem) -> list[ForeignRun]:
    """Return one run for each device, since a run has one machine. Raises UsageError."""
    devices = {device.need("id").integer(): device for device in root.items("devices")}
    version = text_under(root, "meta", "version", "nvbench", "string")
    rows: dict[int | None, list[ForeignRow]] = defaultdict(list)
    refused: dict[int | None, list[str]] = defaultdict(list)
    for bench in root.items("benchmarks"):
        for state in bench.items("states"):
            number = _device(state, devices)
            name = text_under(devices[number], "name") if number is not None else ""
            fields = {"suite": suite, "versions": f"nvbench {version}".strip()}
            rows[number] += _rows(bench.need("name").text(), state, name, fields, path, find, refused[number])
    facts = {number: _machine(devices[number]) if number is not None else {} for number in refused or [None]}
    environment = {"versions": {"nvbench": version}} if version else {}
    return [ForeignRun(KIND, gpu, environment, "", rows[number], refused[number]) for number, gpu in facts.items()]


def _device(state: JsonNode, devices: dict[int, JsonNode]) -> int | None:
    device = state.get("device")
    if device is None:
        return None
    if device.integer() not in devices:
        device.refuse(f"one of the devices of the file ({', '.join(map(str, devices)) or 'none'})")
    return device.integer()


def _machine(device: JsonNode) -> dict[str, Any]:
    version = device.get("sm_version")
    facts: dict[str, Any] = {"gpu": text_under(device, "name")}
    numbers = {"memory_bytes": "global_memory_size", "l2_bytes": "l2_cache_size", "multiprocessors": "number_of_sms"}
    facts |= {f"gpu_{fact}": node.integer() for fact, key in numbers.items() if (node := device.get(key))}
    if version is not None:
        facts["compute_capability"] = f"{version.integer() // 100}.{version.integer() % 100 // 10}"
    return {name: value for name, value in facts.items() if value}


def _rows(
    name: str, state: JsonNode, gpu: str, fields: dict[str, Any], path: Path, find: FindProblem, refused: list[str]
) -> Iterator[ForeignRow]:
    axes = {axis.need("name").text(): _axis_value(axis) for axis in state.items("axis_values")}
    problem = source.first_problem((value for value in (*axes.values(), name) if isinstance(value, str)), find)
    text = "/".join((name, *(f"{axis}={value}" for axis, value in axes.items())))
    dims = problem.dims() if problem else source.dimensions(axes)
    summaries = _summaries(state)
    timed = [way for way in WAYS if f"{way.tag}/time/{way.clock}/mean" in summaries]
    for way in timed or WAYS[:1]:
        where = {"device": way.device, "device_name": gpu if way.device == "cuda" else "", "mode": way.mode}
        result = source.foreign(name, problem, text, f"nvbench.{name}", **fields, **where)
        try:
            samples = _samples(state, path) if way.tag == "nv/cold" else []
            if not timed:
                reason = text_under(state, "skip_reason").strip()
                was_skipped = reason and not reason.startswith("Unexpected error")
                result.status = Status.UNSUPPORTED if was_skipped else Status.FAILED
                result.reason = reason or "the file has no time for this state"
            else:
                _add_times(result, way, summaries, samples, problem)
                source.refuse_unsound(result, state)
            yield ForeignRow(result, dims, samples if timed else ())
        except RowRefused as error:
            refused.append(str(error))


def _axis_value(axis: JsonNode) -> Any:
    """Return the value of an axis in the type that the file declares. The value itself may be a string."""
    value, kind = axis.need("value"), text_under(axis, "type")
    if kind not in ("int64", "float64"):
        return value.value
    return int(value.number()) if kind == "int64" else value.number()


def _summaries(state: JsonNode) -> dict[str, JsonNode]:
    """Return the values of the summaries by tag; null and texts such as "inf" are left out."""
    summaries = {}
    for summary in state.items("summaries"):
        for datum in summary.items("data"):
            value = datum.get("value")
            if value is not None and value.value not in _UNKNOWN and text_under(datum, "name") == "value":
                summaries[text_under(summary, "tag")] = value
    return summaries


def _add_times(
    result: Result, way: NvbenchTiming, summaries: dict[str, JsonNode], samples: list[float], problem: Problem | None
) -> None:
    """Add the times that the file contains. Older versions of nvbench write only the mean."""
    times = f"{way.tag}/time/{way.clock}"
    if samples:
        source.add_samples(result, samples)
    else:
        for name in ("min", "median", "mean"):
            if (node := summaries.get(f"{times}/{name}")) is not None:
                node.refuse_above(summaries.get(f"{times}/max"))
        count = summaries.get(f"{way.tag}/sample_size")
        result.samples = count.integer() if count else 0
        result.time_s_mean = summaries[f"{times}/mean"].seconds()
        result.time_s_median, result.time_s_min = (_number(summaries, f"{times}/{name}") for name in ("median", "min"))
        relative, std = (_number(summaries, f"{times}/stdev/{name}", -1.0) for name in ("relative", "absolute"))
        result.time_s_std = relative * result.time_s_mean if std is None and relative is not None else std
    source.add_rates(result, problem)
    bandwidth = _number(summaries, f"{way.tag}/bw/global/bytes_per_second", -1.0)
    if result.gbyte_per_s is None and bandwidth is not None:
        result.gbyte_per_s = bandwidth * 1e-9
    clock = _number(summaries, f"{way.tag}/sm_clock_rate/mean", -1.0)
    result.clock_mhz = None if clock is None else clock * 1e-6


def _number(summaries: dict[str, JsonNode], tag: str, above: float = 0.0) -> float | None:
    node = summaries.get(tag)
    return None if node is None else node.number(above)


def _samples(state: JsonNode, path: Path) -> list[float]:
    """Return the samples that --jsonbin wrote to a folder next to the file, or none if they are missing."""
    for summary in state.items("summaries"):
        if text_under(summary, "tag") == "nv/json/bin:nv/cold/sample_times":
            data = {datum.need("name").text(): datum.need("value") for datum in summary.items("data")}
            if "filename" in data and "size" in data:
                named = Path(data["filename"].text())
                return _doubles(path.parent / named.parent.name / named.name, data["size"].integer())
    return []


def _doubles(path: Path, size: int) -> list[float]:
    require_file(path)
    try:
        samples = np.frombuffer(path.read_bytes(), "<f4")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}; expected {size} samples of 4 bytes") from None
    if len(samples) != size or not ((samples > 0) & (samples < np.inf)).all():
        expected = f"expected {size}, each above 0; remove it to skip samples"
        raise UsageError(f"{path}: holds {len(samples)} samples, {expected}")
    return list(map(float, samples))
