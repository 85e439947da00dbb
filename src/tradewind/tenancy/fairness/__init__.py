"""Which tenant is next."""
