"""The slurm runner: jobs of a Slurm cluster."""
