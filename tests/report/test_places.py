"""Runs on several hosts and GPUs: these stand side by side, with how far their ceilings differ."""

import msgspec
import pytest

from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.report.export import write_file
from kernelmark.bench.report.pages import run_end
from kernelmark.bench.report.places import places
from kernelmark.bench.report.run_data import RunData
from support.rows import RUN, result

CEILING = Ceiling("cuda", 1, "fp32", "fma/n1k1/f32", "fma/a.b", "A GPU", 1e12, 0.99e12, 1.01e12, 1e12, "1")
GPU = {"device": "cuda", "device_name": "A GPU"}


def put(store, number, host, uuid, rate=1.0):
    store.add(result(problem=f"copy/m{number}n1/f32", host=host, device_uuid=uuid, **GPU), {}, [1.0], None)
    rates = {name: rate * getattr(CEILING, name) for name in ("rate", "low", "high", "best")}
    store.add_ceiling("r1", msgspec.structs.replace(CEILING, host=host, device_uuid=uuid, **rates))


@pytest.fixture
def begun(store):
    store.begin(RUN)
    return store


def words(found):
    return [" ".join(line.split()) for part in found for line in part.splitlines()]


def test_two_gpus_of_one_name_stand_side_by_side_with_the_spread_of_their_ceilings(begun):
    put(begun, 1, "one", "GPU-a")
    put(begun, 2, "one", "GPU-b", 1.1)
    found = words(places(begun, "r1"))
    assert found[2:4] == ["1 one A GPU GPU-a 1", "2 one A GPU GPU-b 1"]
    assert (
        "cuda fp32 fma/n1k1/f32 1000 GFLOP/s 1 1100 GFLOP/s 2 1.1x [1.08, 1.12] (not measured on one machine)" in found
    )
    assert found[-1] == "ceilings that are alike everywhere: 0 of 1; not alike: cuda fp32"
    assert found[-1] in words(run_end(begun, "r1"))


def test_devices_whose_ceilings_agree_are_alike(begun):
    put(begun, 1, "one", "GPU-a")
    put(begun, 2, "two", "GPU-b", 1.001)
    assert words(places(begun, "r1"))[-1] == "ceilings that are alike everywhere: 1 of 1"


def test_a_run_on_one_host_with_one_gpu_has_no_such_table(begun):
    put(begun, 1, "one", "GPU-a")
    begun.add(result(problem="copy/m9n1/f32", host="one", device_name="A CPU"), {}, [1.0], None)
    assert list(places(begun, "r1")) == []


def test_exported_ceilings_and_plans_name_no_host_and_no_gpu_unless_they_are_to(begun, tmp_path):
    begun.begin(msgspec.structs.replace(RUN, run_id="r2", plan={"gpus": ["GPU-a"]}))
    begun.add_ceiling("r2", msgspec.structs.replace(CEILING, host="one.example", device_uuid="GPU-a"))
    for identifies in (False, True):
        begun.identifies = identifies
        write_file(begun, "r2", "json", tmp_path / "r.json")
        text = (tmp_path / "r.json").read_text()
        assert ("GPU-a" in text, "one.example" in text) == (identifies, identifies)


def test_a_report_names_no_host_and_no_device_unless_it_is_to(begun):
    put(begun, 1, "one", "GPU-a")
    put(begun, 2, "two", "GPU-b")
    page = "".join(RunData(begun, "r1").places)
    assert "GPU-a" not in page
    assert page.count("uuid-") == page.count("host-") == 2
    begun.identifies = True
    assert "GPU-a" in "".join(RunData(begun, "r1").places)
