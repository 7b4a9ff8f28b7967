"""Direct convolution, depthwise convolution among it."""
