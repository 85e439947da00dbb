"""Rules between the searches of one tenant: they choose the one that is next."""
