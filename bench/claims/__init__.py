"""The founding claims and their verdicts, from the rows of a store.

`claims_rows(store, run_ids)` returns an `Answer` for each claim, in the order of the catalog. `experiment_names()`
returns the experiments that claims use. `untestable(name, machine)` returns why a machine with these facts can test no
claim of an experiment. `planned(name, registry, devices)` returns an experiment's plan on devices, and its jobs.

An `Answer` has the claim (`id`, `words`, `source`, `applies`, `experiment`, `expected`), its `verdict` (one of
`VERDICTS`), the reason or what is missing (`said`), each problem's number with its interval (`findings`), and remarks
(`notes`). `views.write_files(folder, answers, title)` writes claims.csv and claims.md to a folder.
"""

from kernelmark.bench.claims.answer import VERDICTS as VERDICTS
from kernelmark.bench.claims.answer import Answer as Answer
from kernelmark.bench.claims.answer import claims_rows as claims_rows
from kernelmark.bench.claims.answer import untestable as untestable
from kernelmark.bench.claims.catalog import experiment_names as experiment_names
from kernelmark.bench.claims.evidence import planned as planned
