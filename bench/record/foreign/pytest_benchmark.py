"""Read the JSON of pytest-benchmark, from any project or from kernelmark's `pytest --benchmark-only`.

A benchmark of kernelmark has its whole row in `extra_info`, which is used unchanged. For any other benchmark, the name
becomes the kernel, and its group and parameters become the problem. Only --benchmark-save-data saves samples.
"""

from typing import Any

from kernelmark.bench.record.foreign import source
from kernelmark.bench.record.foreign.source import FindProblem, ForeignRow, ForeignRun, JsonNode, RowRefused, text_under

KIND = "pytest-benchmark JSON"
#: The keys by which a document is recognised.
KEYS = {"machine_info", "benchmarks"}
_OURS = {"schema", "kernel", "problem", "status"}


def read(root: JsonNode, suite: str, find: FindProblem) -> list[ForeignRun]:
    """Return one run with a row for each benchmark. Raises UsageError."""
    machine = _machine(root)
    python = machine.get("python", "")
    tool = f"pytest-benchmark {text_under(root, 'version')}".strip()
    shared = {
        "suite": suite,
        "device": "cpu",
        "device_name": machine.get("cpu", ""),
        "mode": "",
        "versions": f"{tool}; python {python}" if python else tool,
        "git_commit": _commit(root),
        "started_at": text_under(root, "datetime"),
    }
    rows, refused = list[ForeignRow](), list[str]()
    for bench in root.items("benchmarks"):
        try:
            rows.append(_row(bench, shared, find))
        except RowRefused as error:
            refused.append(str(error))
    environment = {"versions": {"pytest-benchmark": text_under(root, "version")}}
    return [ForeignRun(KIND, machine, environment, shared["git_commit"], rows, refused)]


def _row(bench: JsonNode, shared: dict[str, Any], find: FindProblem) -> ForeignRow:
    extra, samples = bench.get("extra_info"), [sample.seconds() for sample in bench.need("stats").items("data")]
    if extra is not None and isinstance(extra.value, dict) and extra.value.keys() >= _OURS:
        result = source.own_result(extra)
        problem = find(result.problem)
        return ForeignRow(result, problem.dims() if problem else {}, samples if len(samples) == result.samples else ())
    path, _, function = bench.need("fullname").text().partition("[")[0].partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    group, param = text_under(bench, "group"), text_under(bench, "param")
    words = [str(value) for value in _params(bench).values()]
    problem = source.first_problem((param, group, *words), find)
    op = group or module.rpartition(".")[2]
    text = "/".join(filter(None, (op, param)))
    result = source.foreign(op, problem, text, f"pytest.{module}.{function.replace('::', '.')}", **shared)
    if samples:
        source.add_samples(result, samples)
    else:
        _add_statistics(result, bench.need("stats"))
    source.add_rates(result, problem)
    source.refuse_unsound(result, bench)
    return ForeignRow(result, problem.dims() if problem else source.dimensions(_params(bench)), samples)


def _params(bench: JsonNode) -> dict[str, Any]:
    params = bench.get("params")
    if params is None:
        return {}
    if not isinstance(params.value, dict):
        params.refuse("an object")
    return dict(params.value)


def _add_statistics(result: Any, stats: JsonNode) -> None:
    for name in ("min", "median", "mean"):
        if (statistic := stats.get(name)) is not None:
            statistic.refuse_above(stats.get("max"))
    result.samples = stats.need("rounds").integer()
    result.time_s_median = stats.need("median").seconds()
    least, mean = stats.get("min"), stats.get("mean")
    result.time_s_min = least and least.seconds()
    result.time_s_mean = mean and mean.seconds()
    if result.samples > 1 and (deviation := stats.get("stddev")) is not None:
        result.time_s_std = deviation.number()


def _machine(root: JsonNode) -> dict[str, Any]:
    info = root.need("machine_info")
    system = (text_under(info, name) for name in ("system", "release", "machine"))
    cpu = info.get("cpu")
    detailed = cpu if cpu is not None and isinstance(cpu.value, dict) else None
    count = detailed and detailed.get("count")
    facts: dict[str, Any] = {
        "cpu": (detailed and text_under(detailed, "brand_raw")) or text_under(info, "processor"),
        "cpus": count and count.integer(),
        "system": "-".join(filter(None, system)),
        "python": text_under(info, "python_version"),
    }
    return {name: value for name, value in facts.items() if value}


def _commit(root: JsonNode) -> str:
    """Return the measured commit; "" if pytest-benchmark found no repository."""
    node = root.get("commit_info")
    if node is None or not isinstance(node.value, dict):
        return ""
    commit = text_under(node, "id").removeprefix("unversioned")
    return f"{commit}-dirty" if commit and node.value.get("dirty") is True else commit
