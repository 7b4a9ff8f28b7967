"""Watch one .cu file while a user tunes it: compile, verify and time each version in turn with the one before."""
