"""What is to be measured: operations, kernels, suites and cases."""
