"""Run contenders on one problem in a worker process; its parent, passes over the suites, ceilings, the session."""
