"""A web server that answers with the address of its client. Runs in a network namespace of the tests."""

from http.server import BaseHTTPRequestHandler, HTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.client_address[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


server = HTTPServer(("198.51.100.2", 8000), _Handler)
print("listening")
server.serve_forever()
