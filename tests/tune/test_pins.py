"""Gates without a GPU: pins of compiled and counted figures."""

import json

import msgspec
import pytest

from kernelmark.bench.tune.pins import PinnedCommand, gate
from support.pages import valid

WORDS = "inspect --kernels some"
PINNED = {"some.kernel sm_90a f": {"registers": 32, "spill_bytes": 0}, "some.kernel": {"sectors": 9, "wavefronts": 4}}
LOOP = {"f": {"multiply_add_pct": 91.3}}


@pytest.fixture
def against(tmp_path):
    """Compare numbers with pins of others."""

    def of(pinned, found, **more):
        path = tmp_path / "pins.json"
        gate(path, WORDS, PinnedCommand("nvcc 1", pinned), update=True)
        return gate(path, WORDS, PinnedCommand("nvcc 2", found), update=False, **more)

    return of


@pytest.mark.parametrize(
    ("pinned", "found", "fails", "line"),
    [
        (PINNED, PINNED, False, None),
        ({"f": {"registers": 32}}, {"f": {"registers": 33}}, True, "f: 33 registers now, pinned 32; "),
        ({"f": {"registers": 32}}, {"f": {"registers": 31}}, False, "f: 31 registers now, pinned 32; "),
        ({"f": {"spill_bytes": 0}}, {"f": {"spill_bytes": 8}}, True, "f: 8 bytes of spills now, pinned 0; "),
        ({"f": {"sectors": 1024}}, {"f": {"sectors": 2048}}, True, "f: 2,048 sectors now, pinned 1,024; "),
        ({"f": {"wavefronts": 1}}, {"f": {"wavefronts": 32}}, True, "f: 32 wavefronts now, pinned 1; "),
        (LOOP, {"f": {"multiply_add_pct": 91.2}}, True, "f: 91.2 % multiply-adds in the main loop now, pinned 91.3; "),
        (LOOP, {"f": {"multiply_add_pct": 91.4}}, False, "f: 91.4 % multiply-adds in the main loop now, pinned 91.3; "),
        (LOOP, {"f": {}}, True, "f: none now, pinned 91.3 % multiply-adds in the main loop; "),
        (LOOP, {}, True, "f: not there now, pinned 91.3 % multiply-adds"),
        ({}, {"f": {"registers": 32}}, False, "f: 32 registers, not pinned; "),
    ],
)
def test_a_line_names_each_change_and_only_what_is_worse_fails(against, tmp_path, pinned, found, fails, line):
    gated = against(pinned, found)
    *changes, head = gated.text.splitlines()
    assert gated.fails == fails
    assert f"{int(fails)} worse or gone" in head
    assert len(changes) == (line is not None)
    if line:
        assert changes[0].startswith(line)
        assert changes[0].endswith(f"`kernelmark {WORDS} --baseline {tmp_path / 'pins.json'} --update` accepts it")
        assert "pinned with nvcc 1, now nvcc 2" in head


def test_what_could_not_be_counted_fails_with_the_reason(against):
    gated = against({"f": {"registers": 32}}, {}, why_unknown="nvdisasm is missing")
    assert gated.fails
    assert gated.text.startswith("f: nvdisasm is missing, pinned 32 registers")


@pytest.mark.usefixtures("cuda_compiler")
def test_a_kernel_that_takes_more_than_its_pins_exits_with_1(called, tmp_path):
    words, path = (
        ("inspect", "--kernels", "gemm/cuda.tiled@T=32", "--arch", "sm_90a", "--baseline"),
        tmp_path / "p.json",
    )
    assert "there is no such file; `kernelmark inspect" in called(*words, str(path)).refusal
    assert "1 pin of " in called(*words, str(path), "--update").printed
    assert called(*words, str(path)).printed == "1 pin: 0 worse or gone, 0 better or new\n"
    pins = valid(path.read_text(), "pins")
    (numbers,) = pins["commands"]["inspect --kernels gemm/cuda.tiled@T=32 --arch sm_90a"]["pins"].values()
    numbers["registers"] -= 1
    path.write_text(json.dumps(pins))
    done = called(*words, str(path), "--format", "json")
    assert (done.status, msgspec.json.decode(done.out)[0]["registers"]) == (1, numbers["registers"] + 1)
    assert f"{numbers['registers'] + 1} registers now, pinned {numbers['registers']}" in done.err
    others = called("inspect", "--kernels", "gemm/cuda.tiled@T=16", "--arch", "sm_90a", "--baseline", str(path)).refusal
    assert "has no pins of `inspect --kernels gemm/cuda.tiled@T=16" in others
    path.write_text("{}")
    assert "is not a file of pins" in called(*words, str(path)).refusal
    assert "--update: has no file to write" in called(*words[:-1], "--update").refusal
