"""Count what a kernel does, without a GPU: from its machine code, and from the emulator."""
