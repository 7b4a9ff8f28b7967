"""What a command that measures leaves on standard error, without its progress."""


def complaints(stderr: str) -> list[str]:
    """The lines of standard error that are not empty, nor the line of progress that a pipe gets for each job."""
    return [line for line in stderr.splitlines() if line.strip() and not line.startswith("[")]
