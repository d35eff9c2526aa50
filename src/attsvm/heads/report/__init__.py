"""What an analysis found: records for each head, the table, verdicts, and files."""
