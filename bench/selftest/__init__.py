"""What can be checked of the harness where it measures: known durations, cheats, coverage, false alarms."""
