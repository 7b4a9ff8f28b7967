"""Direct convolution, including depthwise convolution."""
