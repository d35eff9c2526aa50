"""Regularization paths: the minimiser of the risk in a ball, followed as the ball grows."""
