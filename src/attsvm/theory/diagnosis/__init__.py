"""What the theory says about data, prediction head and training, and whether a run agrees."""
