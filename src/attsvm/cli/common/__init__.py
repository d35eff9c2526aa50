"""What the commands share: options, the registry of names, inputs, files, tables and reports."""
