"""Pure functions of tensors: returns, surrogates, worst cases. No network, config, device or logger."""
