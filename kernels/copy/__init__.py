"""Copy: B = A; its bandwidth bounds transposition."""
