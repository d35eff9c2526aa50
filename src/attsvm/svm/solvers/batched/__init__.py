"""Many small Frobenius problems at once in PyTorch, on the CPU or a GPU."""
