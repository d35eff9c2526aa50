"""What is known about heads: records, tables, verdicts and the page."""
