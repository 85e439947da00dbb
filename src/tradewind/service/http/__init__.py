"""HTTP of the server: request checks, cookies, responses, event streams, call metrics, and calls to other servers."""
