"""The analysis of heads: what each selects, its max-margin problem, and the comparison."""
