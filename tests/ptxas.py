"""What ptxas reports in its log about code that runs, but slowly."""

import re

#: Its advice about wgmma and setmaxnreg has numbers from C7508 on, and is given as information, not as a warning.
_LOSS = re.compile(r"\(C75\d\d\)|Potential Performance Loss|[1-9]\d* bytes spill (?:stores|loads)")


def losses(log: str) -> list[str]:
    """Return the lines about a wgmma that is waited for, a setmaxnreg that is ignored, or spilled registers."""
    return [line.strip() for line in log.splitlines() if _LOSS.search(line)]
