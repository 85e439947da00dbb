"""A study's results: read as columns, explained, and shown as text, HTML, pictures and documents."""
