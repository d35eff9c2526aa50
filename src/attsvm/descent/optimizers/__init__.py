"""Optimizers, one file a family."""
