"""`python -m kernelmark` is the command."""

from kernelmark.bench.cli import main

main()
