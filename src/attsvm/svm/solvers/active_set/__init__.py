"""Exact Frobenius solutions on the CPU: a compiled dual active set."""
