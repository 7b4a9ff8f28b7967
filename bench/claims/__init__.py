"""The founding claims and their verdicts, from the rows of a store; views.py writes them to files."""

from kernelmark.bench.claims.answer import VERDICTS as VERDICTS
from kernelmark.bench.claims.answer import Answer as Answer
from kernelmark.bench.claims.answer import claims_rows as claims_rows
from kernelmark.bench.claims.answer import untestable as untestable
from kernelmark.bench.claims.catalog import experiment_names as experiment_names
from kernelmark.bench.claims.evidence import planned as planned
