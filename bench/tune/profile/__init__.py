"""Profile a kernel without a GPU: counts from its machine code and from the emulator."""
