"""Engines: what advances a batch of runs by some steps, and the choice among them."""
