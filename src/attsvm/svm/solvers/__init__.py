"""Solvers, one folder for each method."""
