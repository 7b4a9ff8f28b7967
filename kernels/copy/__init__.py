"""Copy: B = A, whose bandwidth bounds transposition."""
