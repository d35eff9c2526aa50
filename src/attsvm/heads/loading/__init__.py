"""Models whose heads can be read: from folders, the hub, live models and arrays; and texts to run them on."""
