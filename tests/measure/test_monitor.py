"""Disturbances of a machine and a GPU between two samples, and the GPU's link, read from files and fakes."""

import os
import subprocess
import sys
from textwrap import dedent
from types import SimpleNamespace

import pytest

from kernelmark.bench.measure import affinity, machine, memory, monitor, nvml
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.disturbance import disturbance
from kernelmark.bench.measure.monitor import CpuMonitor, means
from kernelmark.bench.measure.nvml import GpuMonitor
from support.processes import write_files


class Machine:
    """A fake machine with two CPUs, on two cores, in /proc and /sys; a clock, and the CPU time of this process."""

    def __init__(self, monkeypatch, folder, ours):
        self._folder = folder
        self.now_s = self.own_s = self.reaped_s = 0.0
        self.idle, self.steal = [0, 0], [0, 0]
        places = {"CPUS": folder, "PROC": folder / "proc", "CPUINFO": folder / "cpuinfo"}
        for name, place in places.items():
            monkeypatch.setattr(monitor, name, place)
            monkeypatch.setattr(affinity, name, place)
        monkeypatch.setattr(monitor, "STAT", folder / "stat")
        monkeypatch.setattr(monitor, "CGROUP", folder)
        monkeypatch.setattr(monitor, "now", lambda: self.now_s)
        monkeypatch.setattr(monitor, "has_children", lambda: True)
        spent = {monitor._SELF: lambda: self.own_s, monitor._REAPED: lambda: self.reaped_s}
        monkeypatch.setattr(monitor, "_usage", lambda who: SimpleNamespace(ru_utime=spent[who](), ru_stime=0))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: ours)
        monitor._counts_cycles.cache_clear()
        self.passes(0.0, 0.0, (0.0, 0.0))

    def passes(self, seconds, own_s, idle, steal=0.0):
        """Let time pass: `idle` seconds of each CPU, `steal` seconds of CPU 0; the rest is time in user mode."""
        self.now_s += seconds
        self.own_s += own_s
        self.idle = [ticks + round(more * 100) for ticks, more in zip(self.idle, idle, strict=True)]
        self.steal[0] += round(steal * 100)
        whole = round(self.now_s * 100)
        lines = [[whole - i - s, 0, 0, i, 0, 0, 0, s] for i, s in zip(self.idle, self.steal, strict=True)]
        both = [sum(column) for column in zip(*lines, strict=True)]
        named = zip(("cpu ", "cpu0", "cpu1"), (both, *lines), strict=True)
        text = "".join(f"{name} {' '.join(map(str, line))}\n" for name, line in named)
        (self._folder / "stat").write_text(text + "intr 5\n")

    def has_below(self, pid, of, seconds, ended_s=0.0):
        """Make `pid` a child of `of`, with the CPU time that it has used and the CPU time of its ended children."""
        ticks, ended = round(seconds * 100), round(ended_s * 100)
        stat = f"{pid} (a name) with (blanks)) S {' '.join(['0'] * 10)} {ticks} 0 {ended} 0 20"
        write_files(self._folder / "proc", {f"{pid}/stat": stat, f"{of}/task/1/children": f"{pid} "})


@pytest.fixture
def both(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path, {0, 1})


def watching():
    watch = CpuMonitor()
    watch.look()
    return watch


def test_load_is_unknown_if_the_system_does_not_list_one_of_our_cpus(monkeypatch, tmp_path):
    for ours in {4, 5}, {1, 2}:
        machine = Machine(monkeypatch, tmp_path, ours)
        watch = watching()
        machine.passes(1.0, own_s=0.0, idle=(0.0, 0.0))
        assert watch.look() == Window(1.0)


def test_what_processes_below_us_take_is_no_load_whether_they_live_or_not(both):
    both.has_below(7, of="self", seconds=0.2)
    both.has_below(8, of="7", seconds=0.1)
    watch = watching()
    both.has_below(7, of="self", seconds=0.7)
    both.has_below(8, of="7", seconds=0.4)
    both.passes(1.0, own_s=1.0, idle=(0.0, 0.2))
    assert watch.look().state["load"] == pytest.approx(0.0, abs=1e-9)
    both.has_below(8, of="7", seconds=0.9)
    both.reaped_s += 0.5
    both.passes(1.0, own_s=1.0, idle=(0.0, 0.0))
    assert watch.look().causes == {}


def test_what_processes_take_that_the_keeper_has_adopted_is_no_load_whether_they_live_or_not(both, monkeypatch):
    monkeypatch.setattr(affinity, "_keeper", ["5"])
    monkeypatch.setattr(monitor, "has_children", lambda: False)
    both.has_below(5, of="1", seconds=0.0)
    both.has_below(7, of="5", seconds=0.2)
    both.has_below(8, of="7", seconds=0.1)
    watch = watching()
    both.has_below(8, of="7", seconds=0.6)
    both.passes(1.0, own_s=1.0, idle=(0.0, 0.5))
    assert watch.look().state["load"] == pytest.approx(0.0, abs=1e-9)
    both.has_below(5, of="1", seconds=0.0, ended_s=1.1)
    both.has_below(os.getpid(), of="5", seconds=0.0)  # the keeper's only child is this process
    both.passes(1.0, own_s=1.0, idle=(0.0, 0.7))
    assert watch.look().state["load"] == pytest.approx(0.0, abs=1e-9)


def test_a_process_has_a_child_until_it_has_waited_for_it():
    code = """
        import os, subprocess
        from kernelmark.bench.measure.monitor import has_children
        found = [has_children()]
        child = subprocess.Popen(["sleep", "60"])
        found.append(has_children())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        found.append(has_children())
        print(*found, child.wait(), has_children())
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True", "-9", "False"]


def test_what_was_before_the_first_look_is_no_load(both):
    watch = CpuMonitor()
    both.passes(1.0, own_s=1.0, idle=(0.0, 0.5))
    assert watch.look() == Window(1.0)


OTHERS = "other processes used {} CPUs during 100 % of the sampling"
STOLEN = "the hypervisor took 5 % of the time during 100 % of the sampling"


@pytest.mark.parametrize(
    ("ours", "passes", "load", "disturbed"),
    [
        ({0, 1}, {"seconds": 1.0, "own_s": 1.5, "idle": (0.0, 0.5)}, 0.0, ""),
        ({0, 1}, {"seconds": 1.0, "own_s": 1.0, "idle": (0.0, 0.65)}, 0.35, OTHERS.format(0.35)),
        ({0, 1}, {"seconds": 1.0, "own_s": 1.0, "idle": (0.0, 0.91)}, 0.09, ""),
        # In a short window, load that is at most one step of the counters is no disturbance.
        ({0, 1}, {"seconds": 0.05, "own_s": 0.05, "idle": (0.0, 0.04)}, 0.2, ""),
        ({0, 1}, {"seconds": 0.05, "own_s": 0.05, "idle": (0.0, 0.03)}, 0.4, OTHERS.format("0.40")),
        ({0, 1}, {"seconds": 1.0, "own_s": 1.0, "idle": (0.0, 0.9), "steal": 0.1}, 0.0, STOLEN),
        # A process on a CPU that is not ours is load; it disturbs only on another hardware thread of our core.
        ({0}, {"seconds": 1.0, "own_s": 1.0, "idle": (0.0, 0.0)}, 1.0, ""),
        ({0}, {"seconds": 1.0, "own_s": 0.5, "idle": (0.0, 1.0)}, 0.5, OTHERS.format("0.50")),
        ("0-1", {"seconds": 1.0, "own_s": 1.0, "idle": (0.0, 0.0)}, 1.0, OTHERS.format("1.0")),
    ],
)
def test_what_others_take_is_load_and_disturbs_beyond_a_tenth(ours, passes, load, disturbed, monkeypatch, tmp_path):
    if ours == "0-1":  # both CPUs are on one core, and we may use the first
        write_files(tmp_path, {"cpu0/topology/core_cpus_list": ours})
    machine = Machine(monkeypatch, tmp_path, {0} if ours == "0-1" else ours)
    watch = watching()
    machine.passes(**passes)
    window = watch.look()
    assert (window.seconds, disturbance([window])) == (passes["seconds"], disturbed)
    assert window.state == pytest.approx({"load": load, "steal_pct": 50 * passes.get("steal", 0.0)}, abs=1e-9)


@pytest.mark.parametrize(
    ("group", "counter"),
    [("", "throttled_usec {}000"), ("own", "throttled_usec {}000"), ("cpu/own", "throttled_time {}000000")],
)
def test_a_quota_that_holds_threads_back_disturbs_though_the_cpus_are_idle(group, counter, both, tmp_path, monkeypatch):
    (tmp_path / "groups").write_text("3:cpu:/own\n0::/own\n")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "groups")
    write_files(tmp_path / group, {"cpu.stat": f"usage_usec 5\nnr_throttled 0\n{counter.format(1000)}"})
    watch = watching()
    write_files(tmp_path / group, {"cpu.stat": f"usage_usec 5\nnr_throttled 4\n{counter.format(1600)}"})
    both.passes(1.0, own_s=1.0, idle=(0.5, 0.5))
    assert watch.look().causes == {monitor.QUOTA: pytest.approx(0.6)}
    monkeypatch.setattr(watch, "_ours", [4])  # which /proc/stat does not list
    write_files(tmp_path / group, {"cpu.stat": f"usage_usec 5\nnr_throttled 4\n{counter.format(2400)}"})
    both.passes(1.0, own_s=1.0, idle=(0.5, 0.5))
    assert watch.look() == Window(1.0, {}, {monitor.QUOTA: pytest.approx(0.8)})


def test_counters_that_stand_still_or_are_missing_tell_nothing(both, tmp_path):
    watch = watching()
    both.now_s = 1.0  # /proc/stat stays unchanged, as in some sandboxes
    assert watch.look() == Window(1.0)
    (tmp_path / "stat").unlink()
    both.now_s = 2.0
    assert watch.look() == Window(1.0)


def test_the_clock_is_the_mean_of_the_cpus_that_we_may_use(monkeypatch, tmp_path):
    for cpu, khz in enumerate((3_000_000, 4_000_000, 9_000_000)):
        write_files(tmp_path, {f"cpu{cpu}/cpufreq/scaling_cur_freq": khz})
    Machine(monkeypatch, tmp_path, {0, 1})
    assert CpuMonitor().clock_mhz() == 3500.0


@pytest.mark.parametrize(("flag", "mhz"), [("aperfmperf", 2600.0), ("tsc", None)])
def test_the_clock_in_cpuinfo_counts_where_the_kernel_measures_it(both, tmp_path, flag, mhz):
    cpus = "".join(f"processor\t: {i}\ncpu MHz\t\t: {2500 + 200 * i}.000\nflags\t\t: fpu {flag}\n\n" for i in (0, 1))
    (tmp_path / "cpuinfo").write_text(cpus)
    assert CpuMonitor().clock_mhz() == mhz


def test_energy_is_that_of_whole_packages(both, monkeypatch, tmp_path):
    monkeypatch.setattr(monitor, "POWERCAP", tmp_path / "powercap")
    monitor._package_counters.cache_clear()
    for zone, name, microjoules in [("a", "package-0", 5_000_000), ("b", "core", 7), ("c", "package-1", 1_000_000)]:
        write_files(tmp_path / "powercap" / zone, {"name": name, "energy_uj": microjoules})
    assert CpuMonitor().energy_j() == 6.0
    (tmp_path / "powercap/c/energy_uj").unlink()  # like a file that only root may read
    assert CpuMonitor().energy_j() is None
    monitor._package_counters.cache_clear()


def test_readings_here_are_possible_ones():
    watch = watching()
    sum(range(10**6))
    state = watch.look().state
    assert set(state) <= {"clock_mhz", "load", "steal_pct"}
    assert all(value >= 0 for value in state.values())
    assert state.get("load", 0.0) <= (os.cpu_count() or 1) + 1


def test_means_weigh_windows_by_their_length_and_know_what_is_missing():
    windows = [Window(1.0, {"load": 1.0}), Window(3.0, {"load": 0.0, "clock_mhz": 7.0}), Window(0.0, {"power_w": 1.0})]
    assert means(windows) == {"load": 0.25, "clock_mhz": 7.0}
    assert means([]) == {}


def test_a_disturbance_names_its_mean_size_and_its_share_of_the_sampling():
    windows = [Window(1.0, causes={monitor.OTHERS: 0.2}), Window(1.0, causes={monitor.OTHERS: 0.4}), Window(3.0)]
    assert disturbance(windows) == "other processes used 0.30 CPUs during 40 % of the sampling"
    assert disturbance([Window(1.0)]) == disturbance([]) == ""


BUS = "0000:01:00.0"


class FakeNvml:
    """A fake NVML with one GPU and a reading for each function: None if the GPU does not support it."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.started = 0
        self.readings = {
            "HandleByPciBusId": BUS,
            "ClockInfo": 1980,
            "Temperature": 51,
            "PowerUsage": 350_500,
            "TotalEnergyConsumption": 7_250,
            "CurrentClocksThrottleReasons": 0,
        }

    def nvmlInit(self):
        self.started += 1

    def __getattr__(self, function):
        if (name := function.removeprefix("nvmlDeviceGet")) not in self.readings:
            raise AttributeError(function)

        def read(handle, *kind):
            assert (handle, kind) == (BUS, {"ClockInfo": (1,), "Temperature": (0,)}.get(name, ()))
            if (value := self.readings[name]) is None:
                raise self.NVMLError("Not Supported")
            return value() if callable(value) else value

        return read


@pytest.fixture
def installed(monkeypatch):
    def install(bindings):
        monkeypatch.setitem(sys.modules, "pynvml", bindings)
        nvml._library.cache_clear()
        return bindings

    yield install
    nvml._library.cache_clear()


@pytest.fixture
def gpu(installed):
    return installed(FakeNvml())


def test_a_gpu_tells_clock_temperature_power_and_energy_and_the_library_is_started_once(gpu):
    nvml.GpuMonitor(BUS)
    watch = nvml.GpuMonitor(BUS)
    assert gpu.started == 1
    assert watch.look().state == {"clock_mhz": 1980.0, "temperature_c": 51.0, "power_w": 350.5}
    assert watch.energy_j() == 7.25
    gpu.readings["TotalEnergyConsumption"] = None
    assert watch.energy_j() is None


def test_throttling_disturbs_and_idleness_or_a_chosen_clock_does_not(gpu):
    watch = nvml.GpuMonitor(BUS)
    gpu.readings["CurrentClocksThrottleReasons"] = 0x1 | 0x2 | 0x100
    assert watch.look().causes == {}
    gpu.readings["CurrentClocksThrottleReasons"] = 0x4 | 0x40
    reasons = (f"the GPU was throttled ({reason})" for reason in ("power cap", "hardware thermal slowdown"))
    assert watch.look().causes == dict.fromkeys(reasons, 1.0)


def test_a_gpus_clock_that_falls_by_more_than_three_per_cent_disturbs(gpu):
    watch = nvml.GpuMonitor(BUS)
    assert watch.clock_mhz() == 1980.0  # during warm-up
    gpu.readings["ClockInfo"] = 1930
    assert watch.look().causes == {}
    gpu.readings["ClockInfo"] = 1782
    assert disturbance([watch.look()]) == "the GPU's clock was 10 % below its highest during 100 % of the sampling"


def test_without_the_librarys_bindings_a_gpu_tells_nothing(installed):
    installed(None)
    watch = nvml.GpuMonitor(BUS)
    assert (watch.look().state, watch.clock_mhz(), watch.energy_j()) == ({}, None, None)


@pytest.fixture
def bus(gpu, monkeypatch, tmp_path):
    """Return a fake `cupy.cuda`, and let NVML report a link that is slow unless a copy is in progress."""
    under_way, pointer = [], SimpleNamespace(ptr=4096)
    gpu.readings |= {"CurrPcieLinkGeneration": lambda: 5 if under_way else 1, "CurrPcieLinkWidth": None}
    cuda = SimpleNamespace(
        Device=lambda number: SimpleNamespace(pci_bus_id=BUS),
        Stream=lambda non_blocking: SimpleNamespace(ptr=16, synchronize=under_way.clear),
        alloc_pinned_memory=lambda nbytes: pointer,
        runtime=SimpleNamespace(memcpyAsync=lambda *copy: under_way.append(copy), memcpyHostToDevice=1),
    )
    cupy = SimpleNamespace(empty=lambda *_: SimpleNamespace(data=pointer), uint8=None, cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(machine, "LOAD_S", 0.01)
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    return cuda


def test_the_generation_is_that_of_a_link_under_load_and_what_nvml_lacks_is_left_out(bus):
    assert GpuMonitor(BUS).link() == {"pcie_generation": 1}
    assert machine.gpu_link() == {"pcie_generation": 5}


@pytest.mark.parametrize(("text", "expected"), [("1\n", {"gpu_numa_node": 1}), ("-1\n", {}), ("", {})])
def test_the_node_of_a_gpu_is_the_systems(bus, tmp_path, text, expected):
    write_files(tmp_path, {f"{BUS}/numa_node": text})
    assert machine.gpu_link() == {**expected, "pcie_generation": 5}


def test_without_nvml_nothing_crosses_the_link(bus, installed):
    installed(None)
    bus.runtime.memcpyAsync = None
    assert machine.gpu_link() == {}


def test_the_nodes_of_the_host_are_numbers_in_order(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "NODES", tmp_path)
    monkeypatch.setattr(machine, "cuda_missing", lambda: "no GPU")
    assert machine.link_facts() == {}
    for name in ("node10", "node2", "possible"):
        (tmp_path / name).mkdir()
    assert machine.link_facts() == {"numa_nodes": [2, 10]}


def test_a_process_that_fails_leaves_the_facts_of_the_host(monkeypatch):
    monkeypatch.setattr(machine, "cuda_missing", lambda: None)
    monkeypatch.setattr(sys, "executable", "false")
    assert set(machine.link_facts()) <= {"numa_nodes"}
