"""One .cu while somebody tunes it: each version compiled, verified, and timed beside the one before."""
