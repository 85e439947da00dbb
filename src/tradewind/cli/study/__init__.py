"""Commands that start, watch, end and evaluate searches and single runs."""
