"""What can be said of an allocator, for those who watch."""
