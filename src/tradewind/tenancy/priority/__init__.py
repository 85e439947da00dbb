"""Which search of a tenant is next."""
