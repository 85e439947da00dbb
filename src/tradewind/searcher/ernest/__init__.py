"""Ernest: a model of run time on parts of the input, and the runs that teach it most."""
