"""A small HTTP server: each answer costs it some processor time, in one of so many threads."""

import argparse
import hashlib
import socketserver
import threading
from http.server import BaseHTTPRequestHandler


class Answer(BaseHTTPRequestHandler):
    """Answers with a hash that takes a while."""

    def do_GET(self) -> None:
        if self.path != "/health":
            with self.server.room:
                hashlib.pbkdf2_hmac("sha256", b"ping", b"salt", 20_000)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"pong")

    def log_message(self, *words: object) -> None:
        """Say nothing: the load generator counts."""


class Server(socketserver.ThreadingTCPServer):
    """As many answers at a time as there are threads."""

    daemon_threads = allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, threads: int) -> None:
        super().__init__(("", port), Answer)
        self.room = threading.BoundedSemaphore(threads)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    Server(given.port, given.threads).serve_forever()
