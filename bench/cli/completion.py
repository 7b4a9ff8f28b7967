"""What a shell completes: suites, runs and kernels. Whatever goes wrong, it completes nothing and prints nothing."""

from collections.abc import Callable
from pathlib import Path

from click import Context, Parameter
from click.shell_completion import CompletionItem

from kernelmark.bench.plan.errors import UsageError

Complete = Callable[[Context, Parameter, str], list[CompletionItem]]


def suites(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """The suites that come with kernelmark, and TOML files."""
    from kernelmark.bench.plan.suites import suite_names

    return _beginning([(name, "") for name in (*suite_names(), *_files(incomplete))], incomplete)


def _files(incomplete: str) -> list[str]:
    folder, _, beginning = incomplete.rpartition("/")
    found = sorted(Path(folder or ".").glob("*.toml")) if not incomplete.startswith("/") else []
    return [str(path) for path in found if path.name.startswith(beginning)]


def runs(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """The names and ids of the runs of the store, the newest first, each with its suites."""
    from kernelmark.bench.record.store import Store, default_store

    try:
        store = Store(ctx.params.get("db") or default_store(), create=False)
    except UsageError:
        return []
    try:
        found = store.runs()
    except UsageError:
        return []
    finally:
        store.close()
    known = [(text, ", ".join(run["suites"])) for run in found for text in (run["run_id"], run["name"])]
    return _beginning(known[::-1], incomplete)


def kernels(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """The kernels, with those of the plugins that were named before."""
    from kernelmark.bench.plan.discovery import discover

    try:
        registry = discover(tuple(ctx.params.get("plugins") or ()))
    except UsageError:
        return []
    return _beginning([(kernel.id, kernel.label) for kernel in registry.kernels.values()], incomplete)


def _beginning(known: list[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(text, help=note) for text, note in known if text and text.startswith(incomplete)]
