"""Vendor libraries: cuDNN, cuFFT with cuBLAS, PyTorch."""
