"""Which selection descent will reach."""
