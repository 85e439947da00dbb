"""Floor 2: deployers make machines, run the job there and give the machines back."""
