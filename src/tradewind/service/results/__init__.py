"""Results of requests: upload locations, uploads, and share links."""
