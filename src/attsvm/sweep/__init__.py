"""Sweeps: a grid of tasks computed in chunks, stored with checksums, resumed; knows no mathematics."""
