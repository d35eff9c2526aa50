"""Solvers that take the rows as a dense matrix: linear programs, conic programs, CVXPY."""
