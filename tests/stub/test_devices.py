"""Several GPUs on the stub driver: by their UUIDs, which a worker sees one of."""

import csv
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from stub.library import environment, on_stub

GPUS = [f"GPU-{UUID(bytes=b'kernelmark stub' + last)}" for last in (b".", b"/")]
CALLS = {
    "uuids": ("kernelmark.bench.measure.cuda:gpu_uuids",),
    "missing": ("kernelmark.bench.measure.present:cuda_missing",),
}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, GPUS[:1]),
        ({"KM_STUB_DEVICES": "2"}, GPUS),
        ({"KM_STUB_DEVICES": "2", "CUDA_VISIBLE_DEVICES": GPUS[1]}, GPUS[1:]),
        ({"KM_STUB_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "GPU-another"}, []),
    ],
)
def test_a_process_sees_the_gpus_of_its_uuids(
    tools: None, tmp_path: Path, variables: dict[str, str], expected: list[str]
) -> None:
    assert on_stub(CALLS, tmp_path, **variables)["uuids"].value == expected


@pytest.mark.long
def test_a_run_on_two_gpus_has_a_group_on_each_and_names_them_where_it_is_to(tools: None, tmp_path: Path) -> None:
    problems = ("transfer/n1031/f32/h2d", "transfer/n2062/f32/h2d")
    own = ("--kernels", "transfer/cuda.pinned", "--mode", "hot", "--no-ceilings", "--devices", "0,1", "--db", "r.db")
    done = command(tmp_path, "run", *problems, *own)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    for options, expected in (((), False), (("--identify",), True)):
        rows = csv.DictReader(command(tmp_path, "export", *options, "--db", "r.db").stdout.splitlines())
        found = {row["problem"]: row["device_uuid"] for row in rows}
        assert set(found) == set(problems)
        assert (set(found.values()) == set(GPUS)) is expected
        assert len(set(found.values())) == 2


def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "kernelmark", *words]
    env = environment(KM_STUB_LOG=str(folder / "driver.log"), KM_STUB_DEVICES="2")
    return subprocess.run(line, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
