"""`python -m kernelmark` is the command."""

from kernelmark.bench.cli import main

if __name__ == "__main__":
    main()
