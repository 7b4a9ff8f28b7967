"""Other people's libraries: cuDNN, cuFFT with cuBLAS, PyTorch."""
