"""A compiled interior point for the norms without a solver of their own: batches, one problem after the other."""
