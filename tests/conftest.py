"""Fixtures for many tests: the registry, a store, and the console script run as a user runs it."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelmark.bench.measure import sample
from kernelmark.bench.measure.present import cuda_missing, module_missing
from kernelmark.bench.plan import discovery
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from support import emulated
from support.processes import refusal
from support.rows import begin

#: The width of tables in tests, in characters.
WIDE = "250"
Finished = subprocess.CompletedProcess[str]
#: The assumed last-level cache. Cold mode moves twice its size, and memory ceilings four times its size, so with the
#: cache of a server each test that measures would take many seconds.
os.environ.setdefault("KERNELMARK_LLC_BYTES", str(8 * 2**20))

gc.disable()  # until all tests are collected, since collection makes no garbage


class Called(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def printed(self) -> str:
        """The standard output of a command that succeeded and wrote nothing to standard error."""
        assert (self.status, self.err) == (0, "")
        return self.out

    @property
    def refusal(self) -> str:
        """The only line on standard error of a command that exited with 2 and printed nothing else."""
        assert (self.status, self.out) == (2, ""), self.err
        (line,) = self.err.splitlines()
        return line


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` if there is no usable GPU, with the reason."""
    if reason := cuda_missing() or module_missing("cupy"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let tests share the emulator's programs, and exempt objects that live for the session from garbage collection."""
    emulated.select(session.items)
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tables a fixed width, independent of the terminal, at which they leave out nothing."""
    monkeypatch.setenv("COLUMNS", WIDE)


@contextmanager
def forgetting() -> Iterator[Registry]:
    """Return a context with the registry; at its end, kernels, operations and plug-ins added in it are forgotten."""
    registry_ = discover()
    known, plugins = (copy(registry_.kernels), copy(registry_.operations)), dict(discovery._loaded)
    sampling = sample.secrets, sample.CHECKED_SHARE  # the fake device's plug-in replaces these
    yield registry_
    registry_.kernels, registry_.operations = known
    discovery._loaded = plugins
    sample.secrets, sample.CHECKED_SHARE = sampling


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Return the registry; kernels and operations that the test registers are forgotten after the test."""
    with forgetting() as registry_:
        yield registry_


@pytest.fixture(scope="module", autouse=True)
def known_after_a_module() -> Iterator[None]:
    """Forget kernels, operations and plug-ins that a module's tests have loaded, before the next module."""
    with forgetting():
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of an empty store; copying it takes a tenth of the time of creating one."""
    path = tmp_path_factory.mktemp("store") / "results.db"
    Store(path).close()
    return path


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Iterator[Store]:
    opened = Store(shutil.copy(empty_store, tmp_path / "results.db"))
    yield opened
    opened.close()


@pytest.fixture
def begun(store: Store) -> Store:
    begin(store)
    return store


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a disk of a size (`400k`) at `tmp_path/disk`; later calls resize the disk."""
    disk = tmp_path / "disk"

    def mounted(size: str) -> Path:
        remount = "remount," if disk.exists() else ""
        disk.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"{remount}size={size}", "none", str(disk)]
        try:
            subprocess.run(words, capture_output=True, text=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no disk can be made here: {getattr(error, 'stderr', None) or error}")
        return disk

    yield mounted
    if disk.is_mount():
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture(scope="session")
def complaint() -> Callable[[Callable[[], object]], str]:
    def of(call: Callable[[], object]) -> str:
        with pytest.raises(UsageError) as caught:
            call()
        (line,) = str(caught.value).splitlines()
        return line

    return of


@pytest.fixture(scope="session")
def python_in() -> Callable[..., Finished]:
    """Return a function that runs Python in a folder, where kernelmark also stores its results."""

    def run(folder: Path, *words: str, **variables: str) -> Finished:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
        env |= {"COLUMNS": WIDE, "XDG_DATA_HOME": str(folder / "data"), **variables}
        command = [sys.executable, *words]
        return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture(scope="session")
def kernelmark_in(python_in: Callable[..., Finished]) -> Callable[..., Finished]:
    script = str(Path(sys.executable).with_name("kernelmark"))
    return lambda folder, *words, **variables: python_in(folder, script, *words, **variables)


@pytest.fixture
def kernelmark(tmp_path: Path, kernelmark_in: Callable[..., Finished]) -> Callable[..., Finished]:
    return lambda *words, **variables: kernelmark_in(tmp_path, *words, **variables)


@pytest.fixture
def refused(kernelmark: Callable[..., Finished]) -> Callable[..., str]:
    return lambda *words, **variables: refusal(kernelmark(*words, **variables))


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], registry: Registry
) -> Callable[..., Called]:
    """Return a function that calls a command in the test's folder, in this process, to save the time of imports."""
    from kernelmark.bench.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("freeze", "set_threshold"):  # only for processes that end with the command
        monkeypatch.setattr(gc, name, lambda *given: None)

    def call(*words: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["kernelmark", *words])
        status: object = 0
        try:
            main()
        except SystemExit as left:
            status = left.code
        return Called(int(str(status or 0)), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def cuda_compiler() -> str:
    """Return the CUDA compiler. If there is none, skip the test with the install command; in CI, raise Unsupported."""
    from kernelmark.bench.measure.compile import compiler

    try:
        return compiler()
    except Unsupported as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
