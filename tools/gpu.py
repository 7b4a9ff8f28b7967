"""A report of an NVIDIA GPU, in stages: `make gpu` writes it to `${OUT:-reports}/<device>-<date>/`.

Each stage runs in a process that is watched from here, where nothing touches the device, and the report is published
again after each. SIGTERM, or the deadline, publishes what there is. The exit status is 0 if every stage was done and no
row went against its kernel, 1 if not, 2 if there is no GPU, 143 after SIGTERM.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import gpu_stages
from gpu_folder import Folder, Outcome, against, publish
from gpu_task import Question, Settings
from kernelmark.bench.measure.timing import now
from kernelmark.bench.report.publish import folder_name
from kernelmark.bench.report.publish_readme import Publication
from kernelmark.bench.run.watched import Lost, answers

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 540.0
#: Of the deadline, what is kept for publishing; and what a stage may take beyond its limit, which it looks at itself.
RESERVE, GRACE = 0.04, 0.02
DEVICE_S = 60.0


def main(words: Sequence[str] = ()) -> int:
    """Measure stage by stage, and publish after each."""
    asked = _options(words)
    report = Report(asked.deadline)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, report.stop)
    settings = Settings("", asked.device, tuple(asked.suites.split(",")), tuple(asked.plugin))
    name = report.ask("device", settings, DEVICE_S)
    if "failed" in name:
        print(f"make gpu: {name['failed']}", file=sys.stderr)
        return 2
    device = name.get("done") or "unknown device"
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    folder = Folder(Path(asked.out, folder_name(device, date)).absolute())
    print(f"make gpu: {folder.path}", flush=True)
    if "lost" in name:
        report.outcomes.append(Outcome("device", "failed", name["lost"]))
    about = Publication(title=device, date=date, runs={}, command="make gpu", identify=asked.identify)
    report.run(folder, msgspec.structs.replace(settings, folder=str(folder.path)), about)
    done = all(outcome.state == "done" for outcome in report.outcomes) and not against(folder)
    return 128 + signal.SIGTERM if report.stopped else 0 if done else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description="Measure a GPU and write a report.")
    parser.add_argument("--out", default=os.environ.get("OUT") or str(ROOT / "reports"), help="folder of reports")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, help="seconds until the report stands")
    parser.add_argument("--device", default="cuda", help="what is measured")
    parser.add_argument("--suites", default="founding,seed", help="what is timed; the first also in several processes")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help="more kernels")
    parser.add_argument("--identify", action="store_true", help="keep host names, user names and UUIDs")
    return parser.parse_args(words)


class Report:
    """The stages in turn, under one deadline."""

    def __init__(self, deadline_s: float) -> None:
        self._scale = deadline_s / DEADLINE_S
        self._grace_s = GRACE * deadline_s
        self._until_s = now() + (1 - RESERVE - GRACE) * deadline_s
        self.stopped = False
        self.outcomes: list[Outcome] = []

    def stop(self, *signal_: Any) -> None:
        """Begin no further stage, and end the present one."""
        self.stopped = True

    def run(self, folder: Folder, settings: Settings, about: Publication) -> None:
        """Run all stages, and publish before the first and after each."""
        names = list(gpu_stages.STAGES)
        for i, name in enumerate(names):
            left = [Outcome(later, "not begun") for later in names[i:]]
            publish(folder, about, [*self.outcomes, *left])
            if self.stopped or now() >= self._until_s:
                why = "SIGTERM" if self.stopped else "the deadline"
                self.outcomes += [Outcome(later, "not begun", f"{why} came first") for later in names[i:]]
                break
            began = now()
            found = self.ask(name, settings, gpu_stages.STAGES[name].limit_s * self._scale)
            state = {"done": "done", "failed": "failed", "lost": "cut off" if self.stopped else "failed"}
            ((key, text),) = found.items()
            self.outcomes.append(Outcome(name, state[key], text, now() - began))
            print(f"make gpu: {name}: {text}", flush=True)
        publish(folder, about, self.outcomes, last=True)

    def ask(self, stage: str, settings: Settings, limit_s: float) -> dict[str, str]:
        """What a stage came to: `done`, `failed` with the exception, or `lost` with how its process ended."""
        until_s = min(now() + limit_s, self._until_s)
        question = msgspec.json.encode(Question(stage, settings, until_s)).decode()
        hard_s = until_s + self._grace_s
        for _, found in answers("gpu_stages", [question], hard_s - now(), hard_s, lambda: self.stopped):
            return {"lost": found.reason} if isinstance(found, Lost) else found
        return {"lost": "no time was left for it"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
