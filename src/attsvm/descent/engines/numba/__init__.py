"""The compiled engine: many small runs at once on the CPU."""
