"""Running the server: start and end, workers, health, figures, logs, copies of the database."""
