"""Loading the heads of a model: folders, the hub, live models, arrays."""
