"""Plan what to measure: operations, kernels, suites and cases."""
