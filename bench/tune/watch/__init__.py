"""Watch a .cu file while a user edits it: compile, verify and time each version in turn with the previous one."""
