"""Running jobs: the worker process and its parent, passes over the suites, ceilings, the session."""
