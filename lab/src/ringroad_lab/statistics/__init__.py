"""Statistics of measurements: pure functions of samples, no input or output."""
