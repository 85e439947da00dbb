"""Studies, trials and runs: the SQL store, its queries, and trials as records, rows and frames."""
