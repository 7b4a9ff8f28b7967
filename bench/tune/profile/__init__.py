"""What a kernel does, counted without a GPU: from its machine code, and from the emulator."""
