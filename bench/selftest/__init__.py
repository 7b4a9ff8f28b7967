"""Check the harness on this machine: known durations, cheats, coverage, false alarms."""
