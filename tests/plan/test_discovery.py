"""Input from outside: plug-ins and entry points, paths that may not be files, and texts on a terminal."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.case import Budget, Job, contenders
from kernelmark.bench.plan.discovery import discover, load_plugin
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.plan.text import MOST, as_json, escaped, one_line, plain
from kernelmark.bench.run.job import run_job

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """\
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu")
def other(problem, x):
    '''Another.'''
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "mine.py"

    def of(text):
        path.write_text(text)
        return path

    return of


def test_a_plugin_registers_its_kernels_once_though_it_is_loaded_twice(registry, plugin):
    path = plugin(KERNEL)
    load_plugin(path)
    load_plugin(path.parent / ".." / path.parent.name / path.name)
    assert registry.kernels["gemm/mine.other"].label == "Another."


def test_two_plugins_of_one_file_name_both_load(registry, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(KERNEL.replace("other", name))
        load_plugin(tmp_path / name / "same.py")
    assert {"gemm/mine.a", "gemm/mine.b"} <= set(registry.kernels)


BROKEN = {
    "syntax_error": (KERNEL + "def (:\n", 6, "invalid syntax"),
    "import_error": (KERNEL + "import no_such_module\n", 6, "no_such_module"),
    "exception": (KERNEL + "\n\n1 / 0\n", 8, "ZeroDivisionError"),
    "message_of_two_lines": (KERNEL + "raise ValueError('one\\ntwo')\n", 6, "ValueError: one"),
    "exit": (KERNEL + "raise SystemExit(0)\n", 6, "SystemExit"),
    "name_that_is_taken": (KERNEL.replace("mine", "numpy").replace("other", "matmul"), 3, "registered twice"),
    "unknown_axis": (KERNEL.replace("device=", "places=('in',), device="), 3, "places is unknown, expected one of"),
    # The length differs, since Python's cache is out of date only if the length or the second of the change differs.
    "unknown_device": (KERNEL.replace('"cpu"', '"tpu4"'), 3, "kernel gemm/mine.other: device is 'tpu4'"),
    "second_kernel": (KERNEL + KERNEL.replace("other", "more").replace('"cpu"', "1"), 8, "gemm/mine.more: device is 1"),
    "operation": (KERNEL + "import kernelmark\n\n@kernelmark.operation('x')\nclass X: ...\n", 8, "operation x: it is"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_refused_by_file_and_line_and_registers_nothing(registry, plugin, complaint, case):
    text, number, refusal = BROKEN[case]
    path, before = plugin(text), dict(registry.kernels)
    line = complaint(lambda: discover((str(path),)))
    assert line.startswith(f"plugin {path}, line {number}: ")
    assert refusal in line
    assert registry.kernels == before
    load_plugin(plugin(KERNEL))
    assert registry.kernels.keys() - before == {"gemm/mine.other"}


def test_a_bad_declaration_in_a_plugins_module_has_that_modules_line(
    registry, complaint, tmp_path, monkeypatch, plugin
):
    part = tmp_path / "part_of_mine.py"
    part.write_text(KERNEL.replace('"cpu"', '"tpu"'))
    monkeypatch.syspath_prepend(str(tmp_path))
    line = complaint(lambda: load_plugin(plugin("\n\n\n\nimport part_of_mine\n")))
    assert line.startswith(f"plugin {part}, line 3: kernel gemm/mine.other: device is 'tpu'")


@pytest.mark.parametrize(("name", "refusal"), [("absent.py", "there is no such file"), ("a.txt", "must end in .py")])
def test_a_plugin_that_is_not_a_python_file_is_refused(tmp_path, complaint, name, refusal):
    (tmp_path / "a.txt").write_text(KERNEL)
    line = complaint(lambda: load_plugin(tmp_path / name))
    assert line.startswith(f"plugin {tmp_path / name}: ")
    assert refusal in line


@pytest.fixture
def checkout(tmp_path):
    for name in ("bench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "kernelmark", tmp_path / "src" / "kernelmark", symlinks=True)
    return tmp_path / "src"


@pytest.mark.parametrize(
    ("name", "text", "number"), [("mine.py", "import no_such_module\n", 1), ("idea/mine.py", "\ndef (:\n", 2)]
)
def test_a_broken_file_of_kernels_is_named_by_line_unless_an_underscore_hides_it(checkout, refused, name, text, number):
    folder = checkout / "kernelmark" / "kernels" / "copy"
    for broken in ("_mine.py", "idea/_mine.py", "_idea/mine.py", name):
        path = folder / broken
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert refused("list", PYTHONPATH=str(checkout)).startswith(f"kernelmark: {path}, line {number}: ")


def install(folder, module):
    """Write a distribution with an entry point, as pip would install it."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelmark.kernels]\nmine = mine_kernels\n")
    (folder / "mine_kernels.py").write_text(module)


def test_a_process_that_measures_ceilings_loads_no_installed_plugin(tmp_path, python_in):
    install(tmp_path / "site", KERNEL)
    load = "; d.discover(ours={}); print(d.others_installed(), 'mine_kernels' in sys.modules)"
    code = "import sys; from kernelmark.bench.plan import discovery as d" + load.format(True) + load.format(False)
    done = python_in(tmp_path, "-c", code, PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    assert done.stdout.splitlines() == ["True False", "True True"], done.stderr


def test_our_kernels_are_measured_without_a_plugin_that_replaces_their_functions(tmp_path, kernelmark):
    install(tmp_path / "site", "import numpy\n\nnumpy.matmul = lambda *operands, out: None\n")
    words = ("gemm/m9n8k7/f32/NN", "--kernels", "gemm/numpy.matmul", "--json")
    done = kernelmark("verify", *words, PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    (row,) = json.loads(done.stdout)["results"]
    assert (row["status"], row["attempt"]) == ("ok", 1)
    assert row["disturbed"] == "our kernels were measured without the plug-ins, which had replaced numpy.matmul"


def test_a_broken_entry_point_is_named_with_its_file_and_line(tmp_path, refused):
    install(tmp_path / "site", "\nimport no_such_module\n")
    line = refused("list", PYTHONPATH=str(tmp_path / "site"))
    file = tmp_path / "site" / "mine_kernels.py"
    assert line.startswith(f"kernelmark: entry point mine (mine_kernels): {file}, line 2")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("m % 4, not 33", "m % 4, not 33"),
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\r\x07\x00b", r"a\r\x07\x00b"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("größer als 中", "größer als 中"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert escaped(text) == shown == one_line(text)


def test_json_has_no_character_that_a_terminal_obeys():
    text = "\x9b2J \u202egnp.exe \x1b[2J größer als 中 😀"
    assert as_json([text]) == r'["\u009b2J \u202egnp.exe \u001b[2J größer als 中 😀"]'
    assert json.loads(as_json([text])) == [text]


@pytest.mark.parametrize("text", ["aaa" + "é\x1b" * 10_000_000, "aaa" + "\x01" * 250, "a" * 500])
def test_a_text_that_is_long_or_becomes_long_by_escaping_is_cut_and_keeps_both_ends(text):
    line = one_line(f"{text} remedy")
    assert len(line) <= MOST
    assert (line[:3], line[-7:], line.isprintable()) == ("aaa", " remedy", True)
    assert one_line(line) == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n\ttwo\n", "one\n\ttwo\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b(Bascii\x1b7\x1bc", "ascii"),
        ("\x9b31mred\x9d0;title\x9cshown", "redshown"),
        ("10 %\r20 %\r\ndone", "10 %\n20 %\ndone"),
        ("bell\x07 back\x08 nul\x00 \u202ereversed", "bell back nul reversed"),
        ("cut \x1b[3", "cut "),
        ("cut \x1b]0;tit", "cut "),
        ("\x1b", ""),
    ],
)
def test_terminal_commands_are_removed(text, shown):
    assert plain(text) == shown


def test_a_path_that_is_not_a_file_is_refused_with_its_kind(tmp_path, complaint):
    pipe, link, listening = (tmp_path / name for name in ("pipe", "link", "socket"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(listening))
    pipes = {pipe: "a named pipe", link: "a named pipe"}
    for path, kind in {tmp_path: "a folder", **pipes, listening: "a socket", Path("/dev/null"): "a device"}.items():
        assert complaint(lambda path=path: require_file(path)) == f"{path}: is {kind}, expected a file"


def test_a_file_and_an_absent_path_are_not_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "absent", "file/below", "n" * 300):
        require_file(tmp_path / name)


CUDA = """from kernelmark import cuda_kernel
@cuda_kernel("gemm", source="mine.cu", entry="mine", tunables={"BM": (8, 16)})
def mine(p, t, device): ...
@cuda_kernel("gemm", source="gemm/naive.cu", entry="gemm")
def other(p, t, device): ...
"""


def test_sources_are_next_to_a_plugin_or_in_cuda_and_a_row_names_commands_without_gpu(registry, tmp_path, monkeypatch):
    path = tmp_path / "own" / "mine.py"
    path.parent.mkdir()
    path.write_text(CUDA)
    monkeypatch.chdir(tmp_path)
    (path.parent / "mine.cu").write_text("")
    load_plugin(path)
    sources = [registry.kernels[f"gemm/cuda.{name}"].source for name in ("mine", "other")]
    assert sources == [str(path.parent / "mine.cu"), "gemm/naive.cu"]
    entry = Entry(registry.problem("gemm/m8n8k8/f32/NT"))
    absent, left_out = (contenders(entry, registry, ("cpu",), ("gemm/cuda.*",), None, gone) for gone in (("cuda",), ()))
    assert ([k.id for k in absent], left_out) == (["gemm/cuda.mine", "gemm/cuda.other"], [])
    if cuda_missing():
        job = Job(
            ("gemm/m8n8k8/f32/NT",), ("gemm/cuda.mine",), Mode.HOT, (str(path),), 0, Budget(0.1), 1, absent=("cuda",)
        )
        (row,) = run_job(job)
        watch = "`kernelmark watch own/mine.cu PROBLEM --once --plugin own/mine.py` checks it"
        assert row.status == "unsupported"
        assert f"; without one {watch}, `kernelmark tune gemm/cuda.mine PROBLEM --static" in row.reason


#: Runs code under a time limit of 0.2 s; its placeholders are the grace period in seconds and the code.
OVERSEEN = """
from kernelmark.bench.plan import foreign
foreign.LEAST_S, foreign.GRACE_S = 0.2, {}
with foreign.overseen("plugin x.py: its import", 0.1):
    {}
print("went on")
"""


def test_a_process_that_hangs_in_a_plugin_ends_with_one_line(tmp_path, python_in):
    done = python_in(tmp_path, "-c", OVERSEEN.format(1.0, "import threading; threading.Event().wait()"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernelmark: plugin x.py: its import took more than 0.2 s (now at ")
    assert line.endswith("; --timeout allows more")
    in_c = python_in(tmp_path, "-c", OVERSEEN.format(0.1, "import ctypes; ctypes.PyDLL(None).sleep(30)"))
    assert (in_c.returncode, in_c.stdout, in_c.stderr[:8]) == (1, "", "Timeout ")
    replaced = "import builtins, sys; builtins.print = sys.stdout = None"  # both are restored
    in_time = python_in(tmp_path, "-c", OVERSEEN.format(1.0, replaced))
    assert (in_time.returncode, in_time.stdout, in_time.stderr) == (0, "went on\n", "")
