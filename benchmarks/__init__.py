"""Benchmarks: one command each, peers in the same run, accuracy beside time, JSON under results/."""
