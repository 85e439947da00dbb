"""PARIS: predicts cost and time of all configurations from two runs and a table of other workloads."""
