"""The analysis of heads: what each one selects, and how close it is to the max-margin solution of its selections."""
