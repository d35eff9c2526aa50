"""What the theory says about data, head and training, and whether a run agrees."""
