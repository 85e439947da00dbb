"""HTTP of the server: request checks, cookies, responses, event streams, metrics of calls, and calls to other servers."""
