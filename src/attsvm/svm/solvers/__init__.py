"""Solvers, one file a method."""
