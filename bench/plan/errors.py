"""The two ways in which kernelmark refuses: bad usage, and what is not supported."""


class UsageError(Exception):
    """Bad usage or input, reported in one line: subject, found, expected, remedy. The command exits with 2."""


class Unsupported(Exception):
    """A kernel cannot take a problem, or cannot run here; the message is the reason in the row."""
