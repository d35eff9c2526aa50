"""Large Frobenius problems, matrix-free."""
