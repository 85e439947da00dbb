"""Rules between tenants: they choose the one that is next."""
