"""Copy: B = A, the bandwidth that transposition is set against."""
