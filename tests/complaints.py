"""What a command that measures leaves on standard error, without its progress."""

from subprocess import CompletedProcess


def complaints(stderr: str) -> list[str]:
    """The lines of standard error that are not empty, nor the line of progress that a pipe gets for each job."""
    return [line for line in stderr.splitlines() if line.strip() and not line.startswith("[")]


def refusal(done: CompletedProcess[str]) -> str:
    """The one line on standard error with which a process exits 2."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line
