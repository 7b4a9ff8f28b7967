"""The verdicts on a job's contenders: before timing, on what a timed call leaves, and after."""

from kernelmark.bench.run.stock import Stock

#: Calls on fresh operands that have to take too long before a kernel is mistrusted.
LOOKS = 5
#: Outputs of timed calls that are judged: the elements that change before one may happen to include one that a kernel
#: looks at, which then computes anew.
STANDING = 2


def judge(stock: Stock) -> None:
    """Verify each contender on fresh values, on one of its sets: some kernels are right the first time alone."""
    if not stock.live:
        return
    references, which = stock.redraw(), stock.one_of_each()
    for contender in stock.live:
        contender.judge(which[contender.place], stock.of(contender), stock.draw, references)


def judge_last(stock: Stock) -> None:
    """Verify each once more; one that takes long on fresh operands is looked at again before it is accused of it."""
    for _ in range(LOOKS):
        judge(stock)
        if not any(contender.freshness.suspicious for contender in stock.live):
            return
    for contender in stock.live:
        if contender.freshness.suspicious and (reason := contender.freshness.complaint()):
            contender.mistrust(reason)


def judge_standing(stock: Stock) -> None:
    """Verify what a timed call leaves in one of the sets, of which a few elements have changed since the last."""
    for _ in range(STANDING):
        if not stock.live:
            return
        which = stock.one_of_each()
        stock.align(which)
        for contender in stock.live:
            contender.call_again(which[contender.place])
        references = stock.refresh(which)
        for contender in stock.live:
            contender.judge_standing(which[contender.place], stock.of(contender), stock.draw, references)
