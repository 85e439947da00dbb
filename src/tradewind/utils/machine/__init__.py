"""Parts of this machine beside processors and memory."""
