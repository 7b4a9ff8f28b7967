"""The founding claims and their verdicts, from the rows of a store.

    claims_rows(store, run_ids) -> list[Answer] an answer for each claim, in the order of the catalog experiment_names()
    -> list[str] the experiments that claims rest on untestable(name, machine) -> str why a machine with these facts can
    test none of its claims planned(name, registry, devices) how an experiment is measured on devices, and its jobs

An `Answer` holds the claim (`id`, `words`, `source`, `applies`, `experiment`, `expected`), its `verdict` (one of
`VERDICTS`), in `said` the reason or what is missing, in `findings` each problem's number with its interval, in `notes`
further remarks. `views.write_files(folder, answers, title)` writes claims.csv and claims.md there.
"""

from kernelmark.bench.claims.answer import VERDICTS as VERDICTS
from kernelmark.bench.claims.answer import Answer as Answer
from kernelmark.bench.claims.answer import claims_rows as claims_rows
from kernelmark.bench.claims.answer import untestable as untestable
from kernelmark.bench.claims.catalog import experiment_names as experiment_names
from kernelmark.bench.claims.evidence import planned as planned
