"""A plug-in of copies that crash, hang or disturb their process; each is named after what it does."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np

from kernelmark import kernel

#: The seconds of a call. The first call is verification, at most four are warm-up, at least twelve are sampling.
CALL_S = 3e-3
#: The CPU time of a longer call, in seconds.
WORK_S = 0.2
VERIFICATION, SAMPLING = 1, 8
FILLED_BYTES, LEAKED_BYTES = 300_000_000, 200_000_000


def declare(name, act, at=VERIFICATION, on=lambda problem: True):
    """Register a kernel that copies; call number `at` (None: set-up) also calls `act`, on problems that fit `on`."""

    def set_up(problem, x):
        if not on(problem.id):
            return lambda: np.copyto(x.b, x.a)
        if at is None:
            act()
        calls = count(1)

        def launch():
            np.copyto(x.b, x.a)
            time.sleep(CALL_S)
            if next(calls) == at:
                act()

        return launch

    kernel("copy", provider="bad", device="cpu", numerics="exact", name=name)(set_up)


def tell(pid):
    """Write a process id to the file FAULTS_PID in one step, so that a test never reads half of it."""
    path = Path(os.environ["FAULTS_PID"])
    path.with_suffix(".new").write_text(str(pid))
    path.with_suffix(".new").rename(path)


def segv():
    ctypes.string_at(0)


def aborts():
    print("cannot go on", file=sys.stderr, flush=True)
    os.abort()


def killed_by_a_stranger():
    subprocess.run(["kill", "-9", str(os.getpid())], check=True)
    hangs()


def killed_twice():
    kills = Path(os.environ["FAULTS_PID"]).with_suffix(".kills")
    with kills.open("a") as file:
        file.write(".")
    if kills.stat().st_size <= 2:
        os.kill(os.getpid(), signal.SIGKILL)


def raises_interrupt():
    raise KeyboardInterrupt


INTERRUPTS = count()


def interrupts_once():
    """Interrupt the command, which is the parent of this worker's keeper."""
    if next(INTERRUPTS) == 0:
        keeper = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(keeper.rpartition(")")[2].split()[1]), signal.SIGINT)


def hangs():
    time.sleep(1000)


def leaves_a_child():
    """Leave a child that holds all files of this process open, and exit."""
    child = os.fork()
    if child == 0:
        hangs()
    tell(child)
    os._exit(3)


def leaves_a_daemon():
    """Leave a daemon: a process in its own session whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tell(os.getpid())
            hangs()
        os._exit(0)
    os.wait()


def starts_80():
    for i in range(80):
        if os.fork() == 0:
            if i == 0:
                tell(os.getpid())
            hangs()


def tells_and_works():
    tell(os.getpid())
    until_s = time.process_time() + WORK_S
    while time.process_time() < until_s:
        pass


def begins_a_reply():
    """Write a reply that is shorter than its header announces, and hang."""
    os.write(int(sys.argv[2]), (100).to_bytes(8, "little") + b"abc")
    hangs()


def shares_memory():
    """Share memory and exit; only Python's resource tracker removes this memory."""
    shared = SharedMemory(create=True, size=1000)
    Path(os.environ["FAULTS_PID"]).with_suffix(".name").write_text(shared.name)
    os._exit(3)


def writes_into_the_pipe():
    """Write garbage into the pipe of the worker's answers, its second file, and hang."""
    os.write(int(sys.argv[2]), (3).to_bytes(8, "little") + b"abc")
    hangs()


def fills_memory():
    filled = np.ones(FILLED_BYTES, np.uint8)
    hangs()
    del filled


#: Memory that a kernel leaks.
LEAKED = []


def leaks_memory():
    LEAKED[:] = LEAKED or [np.ones(LEAKED_BYTES, np.uint8)]


def borrows_memory():
    borrowed = np.ones(LEAKED_BYTES, np.uint8)
    time.sleep(1)
    del borrowed


#: State that two kernels share, as in a library: the second reads a text at an address that the first overwrites.
TEXT = ctypes.create_string_buffer(b"all is well")
SHARED = np.array([0, ctypes.addressof(TEXT)], np.uint64)


def lets_ours_hang():
    copy = np.copyto

    def copyto(*operands, **options):
        if "kernels" in sys._getframe(1).f_code.co_filename:
            hangs()
        copy(*operands, **options)

    np.copyto = copyto


#: A setting that one kernel leaves changed, and with which other kernels fail.
LEFT = []


def raises_beside_spoils():
    if LEFT:
        raise FloatingPointError(LEFT[0])


#: The problems with which `beside_another` was called in this process.
SEEN = set()


def beside_another(problem):
    """Return whether another problem has also been set up in this process."""
    SEEN.add(problem)
    return len(SEEN) > 1


ACTS = (
    segv, aborts, killed_by_a_stranger, killed_twice, leaves_a_child, leaves_a_daemon, starts_80, shares_memory,
    writes_into_the_pipe, begins_a_reply, fills_memory, leaks_memory, borrows_memory, raises_interrupt,
)  # fmt: skip
for _act in ACTS:
    declare(_act.__name__, _act)
declare("leaves_a_daemon_and_hangs", lambda: (leaves_a_daemon(), hangs()))
declare("starts_80_and_hangs", lambda: (starts_80(), hangs()))
declare("hangs_and_tells", lambda: (tell(os.getpid()), hangs()))
declare("closes_all_files", lambda: (os.closerange(3, 1000), hangs()))
declare("corrupts", lambda: SHARED.fill(8))
declare("reads", lambda: ctypes.string_at(int(SHARED[1])))
declare("spoils", lambda: LEFT.append("a setting of the library"))
declare("raises_beside_spoils", raises_beside_spoils)
declare("traces_beside_spoils", lambda: LEFT and sys.settrace(lambda *_: None))
for _name, _at in (("set_up", None), ("verification", VERIFICATION), ("sampling", SAMPLING)):
    declare(f"forks_in_{_name}", os.fork, _at)
    declare(f"hangs_in_{_name}", hangs, _at)
    declare(f"segv_in_{_name}", segv, _at)
declare("lets_ours_hang", lets_ours_hang, None)
declare("interrupts_at_m4", interrupts_once, None, on=lambda problem: "/m4n" in problem)
declare("segv_on_f64", segv, on=lambda problem: problem.endswith("f64"))
declare("killed_beside_variants", killed_by_a_stranger, on=beside_another)
declare("exits", lambda: os._exit(3))
declare("prints", lambda: print("what a kernel prints", flush=True))
declare("tells_and_works", tells_and_works)
declare("tells", lambda: tell(os.getpid()))
declare("honest", lambda: None)


def declare_wrong(name, is_wrong):
    """Register a kernel that copies, with a wrong first element if `is_wrong` returns True."""

    def set_up(problem, x):
        def launch():
            np.copyto(x.b, x.a)
            if is_wrong():
                x.b[0, 0] = 7

        return launch

    kernel("copy", provider="bad", device="cpu", numerics="exact", name=name)(set_up)


declare_wrong("wrong", lambda: True)
declare_wrong("wrong_beside_spoils", lambda: bool(LEFT))


@kernel("copy", provider="bad", device="cpu", numerics="exact")
def another_cpu(problem, x):
    """Copies half of the rows on a thread that has left the CPU of its process."""
    half, work, done = problem.m // 2, threading.Semaphore(0), threading.Semaphore(0)

    def other():
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0))
        while True:
            work.acquire()
            time.sleep(CALL_S)
            sum(range(10**5))
            np.copyto(x.b[half:], x.a[half:])
            done.release()

    threading.Thread(target=other, daemon=True).start()

    def launch():
        work.release()
        np.copyto(x.b[:half], x.a[:half])
        done.acquire()

    return launch


def roots():
    """Work for a few milliseconds without Python's global lock, so that two threads can work at once."""
    ones = np.ones(2**20)
    for _ in range(3):
        np.sqrt(ones, out=ones)


def declare_helped(name, help_with, at=1):
    """Register a kernel that copies, with a thread that calls `help_with` in call number `at` and all later calls."""

    def set_up(problem, x):
        work, done, calls = threading.Semaphore(0), threading.Semaphore(0), count(1)

        def helper():
            while work.acquire():
                help_with()
                done.release()

        threading.Thread(target=helper, daemon=True).start()

        def launch():
            np.copyto(x.b, x.a)
            if helped := next(calls) >= at:
                work.release()
            roots()
            if helped:
                done.acquire()

        return launch

    kernel("copy", provider="bad", device="cpu", numerics="exact", name=name)(set_up)


@kernel("copy", provider="bad", device="cpu", numerics="exact")
def leaves_a_thread_running(problem, x):
    def work():
        while True:
            roots()

    def launch():
        np.copyto(x.b, x.a)

    threading.Thread(target=work, daemon=True).start()
    return launch


declare_helped("helped", roots)
declare_helped("helped_later", roots, SAMPLING)
declare_helped("hardly_helped", lambda: None)


@kernel("copy", provider="bad", device="cpu", numerics="exact")
def another_cpu_by_a_daemon(problem, x):
    """Copies while a daemon works on another CPU."""
    (reads, go), (until, done) = os.pipe(), os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0))
            while os.read(reads, 1):
                sum(range(10**5))
                os.write(done, b"x")
        os._exit(0)
    os.wait()

    def launch():
        os.write(go, b"x")
        np.copyto(x.b, x.a)
        os.read(until, 1)

    return launch
