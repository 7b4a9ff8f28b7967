import subprocess
import sys

import msgspec

from bench.measure.measurement import Measurement
from bench.plan.case import Job

CODE = "import sys, msgspec; from bench.plan.case import Job; from bench.worker import run_job; sys.stdout.buffer.write(msgspec.json.encode(run_job(msgspec.json.decode(sys.stdin.buffer.read(), type=Job))))"
def measure(job: Job) -> list[Measurement]:
    done = subprocess.run([sys.executable, "-c", CODE], input=msgspec.json.encode(job), capture_output=True)
    if done.returncode: raise RuntimeError(done.stderr.decode())
    return msgspec.json.decode(done.stdout, type=list[Measurement])
