"""Adopted tiles as C constants: a header that compiles, whatever the texts in the file are."""

import shutil
import subprocess

import msgspec
import pytest

from kernelmark.bench.record.selection import Selection
from kernelmark.bench.tune.tuned import TileFile, Tuned, adopted, header
from support.tools import needed
from support.tuning import entry as tuned_entry

CC = shutil.which("cc")
KERNEL = "transpose/numba.blocked"
PROBLEM = "transpose/m2048n26752/f32/out"
ALL = Selection()


def entry(**others):
    """A tile that a race has adopted."""
    fields = {
        "kernel": KERNEL,
        "problem": PROBLEM,
        "threads": 2,
        "tile": "RUN=512,DOWN=64",
        "default": "RUN=256,DOWN=0",
    }
    return tuned_entry(**{**fields, "ratio": 1.25, "low": 1.2, "high": 1.3, **others})


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file of tiles of a device."""

    def of(*entries, device="Xeon"):
        path = tmp_path / "tuned.json"
        path.write_bytes(msgspec.json.encode(Tuned(device=device, tiles=entries)))
        return TileFile(path, "Xeon")

    return of


def text(file, named=False, selection=ALL, run_id=None):
    return header(adopted([file], named, selection, run_id))


def test_each_tunable_is_a_constant_below_its_provenance(file):
    assert text(file(entry())) == (
        "#ifndef KERNELMARK_TUNED_H\n#define KERNELMARK_TUNED_H\n\n"
        "/* transpose/numba.blocked on transpose/m2048n26752/f32/out, 2 threads, cold */\n"
        "/* Xeon; numba 0.62.1; source c0ffee */\n"
        "/* 1.25x [1.2, 1.3] as fast as RUN=256,DOWN=0 over 5 processes, run race-1 of 2026-01-01T00:00:00 */\n"
        "#define KERNELMARK_TRANSPOSE_NUMBA_BLOCKED_M2048N26752_F32_OUT_T2_RUN 512\n"
        "#define KERNELMARK_TRANSPOSE_NUMBA_BLOCKED_M2048N26752_F32_OUT_T2_DOWN 64\n\n"
        "#endif /* KERNELMARK_TUNED_H */\n"
    )


def test_a_compiler_takes_the_header_twice_whatever_texts_the_file_has(file, tmp_path):
    needed(None if CC else "cc is not on PATH")
    odd = [
        entry(threads=1, versions="*/ int x; /*", run="/*/ \\"),
        entry(threads=3, default='??/ "\\\n#error no\n'),
        entry(kernel="transpose/a.b_c"),
        entry(kernel="transpose/a_b.c", tile="RUN=7,DOWN=64"),
    ]
    (tmp_path / "tuned.h").write_text(text(file(*odd, device="Xeon */ (TM) é"), named=True))
    name = "KERNELMARK_TRANSPOSE_A_B_C_M2048N26752_F32_OUT_T2"
    (tmp_path / "main.c").write_text(
        '#include "tuned.h"\n#include "tuned.h"\n'
        f"int main(void) {{ return {name}_RUN == 512 && {name}_2_RUN == 7 ? 0 : 1; }}\n"
    )
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "main")
    subprocess.run([CC, *flags, "main.c"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_tiles_are_chosen_by_kernel_problem_and_the_race_that_adopted_them(file):
    held = file(entry(), entry(threads=1, run="race-2"), entry(kernel="copy/a.b", problem="copy/m1n1/f32"))
    assert len(adopted([held], False, ALL)) == 3
    assert [tile.entry.threads for tile in adopted([held], False, ALL, "race-2")] == [1]
    assert [tile.entry.kernel for tile in adopted([held], False, Selection(op=("copy",)))] == ["copy/a.b"]
    assert len(adopted([held], False, Selection(kernels=("transpose/*",), problem=("*/f32/out",)))) == 2


def test_a_file_that_is_named_may_be_of_another_device(file):
    held = file(entry(), device="H100")
    assert [tile.device for tile in adopted([held], True, ALL)] == ["H100"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"named": False}, "is of H100, here is Xeon; name another file, or tune here"),
        (
            {"named": True, "run_id": "race-9"},
            "has no tile of run race-9; `kernelmark tune KERNEL PROBLEM` finds tiles",
        ),
        ({"named": True, "selection": Selection(op=("gemm",))}, "has no tile that was asked for; `kernelmark tune"),
    ],
)
def test_where_there_is_no_tile_one_line_names_the_file_and_the_remedy(file, complaint, options, words):
    held = file(entry(), device="H100")
    assert complaint(lambda: text(held, **options)).startswith(f"{held.path}: {words}")


def test_a_tile_that_is_none_is_refused_in_one_line(file, complaint):
    assert complaint(lambda: text(file(entry(tile="RUN=512\n#error")))) == (
        f"{KERNEL} on {PROBLEM}: tile 'RUN=512\\n#error': expected NAME=VALUE, several separated by commas: T=32"
    )
