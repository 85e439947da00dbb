"""Callbacks: write the trials of a study into the trackers that people have (MLflow, TensorBoard)."""
