"""A plan carried out on real machines: its order kept, failures repeated, what is left re-planned, nothing lost."""
