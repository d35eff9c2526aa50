"""The Frobenius norm: exact active set (compiled, and batched for GPUs)."""
