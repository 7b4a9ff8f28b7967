"""One .cu while a user tunes it: each version compiled, verified, and timed beside the one before."""
