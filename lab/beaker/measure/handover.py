#!/usr/bin/env python3
"""What the generator hands over to the other machines of a job: its public SSH key, and the program by which they meet.

    handover.py offer PORT KEY PROGRAM      serves them, until it is ended
    handover.py take HOST:PORT S FOLDER     fetches them into FOLDER/key and FOLDER/rendezvous, within S seconds

Both have the job's secret in $RINGROAD_LAB_RENDEZVOUS_SECRET. It signs what is handed over, so nobody else's key is let in. Python 3.6 and
its standard library are enough.
"""

import hashlib
import hmac
import http.server
import json
import os
import sys
import time
import urllib.error
import urllib.request

SECRET = os.environ.get("RINGROAD_LAB_RENDEZVOUS_SECRET", "").encode()
MAX_BYTES = 1 << 20
FILES = ("key", "rendezvous")
PAUSE_S = 1.0


def signature(body: bytes) -> str:
    """Return the HMAC-SHA256 of what is handed over."""
    return hmac.new(SECRET, b"handover " + body, hashlib.sha256).hexdigest()


def offer(port: int, files: "list[str]") -> None:
    """Serve files; does not return."""
    texts = []
    for file in files:
        with open(file, encoding="utf-8") as opened:
            texts.append(opened.read())
    body = json.dumps({FILES[0]: texts[0], FILES[1]: texts[1]}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        # A stranger that connects and says nothing is hung up on.
        timeout = 10

        def do_GET(self) -> None:
            """Answer every path alike."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Signature", signature(body))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.HTTPServer):
        # Of as many as have a connection at once, each waits for the one before.
        request_queue_size = 16

    Server(("", port), Handler).serve_forever()


def take(server: str, within_s: float, folder: str) -> int:
    """Fetch files, as often as it takes; return the program's status."""
    ends = time.monotonic() + within_s
    said = ""
    # The laboratory's own network: no proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(f"http://{server}/", timeout=10) as answer:
                body = answer.read(MAX_BYTES)
                if not hmac.compare_digest(answer.headers.get("X-Signature", "").encode(), signature(body).encode()):
                    raise ValueError("what it hands over is not signed by this job's secret")
            given = json.loads(body.decode())
            for name in FILES:
                # The program is run, and the key lets in: nobody else is to write them.
                with open(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w") as file:
                    file.write(given[name])
            return 0
        except (OSError, ValueError, urllib.error.URLError) as error:
            why = str(getattr(error, "reason", error))
        if why != said:
            print(f"{server}: {why}", file=sys.stderr, flush=True)
            said = why
        if time.monotonic() + PAUSE_S > ends:
            return 3
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    if len(SECRET) < 16:
        sys.exit("handover.py: $RINGROAD_LAB_RENDEZVOUS_SECRET has no secret of 16 characters or more")
    if sys.argv[1:2] == ["offer"] and len(sys.argv) == 5:
        offer(int(sys.argv[2]), sys.argv[3:5])
    elif sys.argv[1:2] == ["take"] and len(sys.argv) == 5:
        sys.exit(take(sys.argv[2], float(sys.argv[3]), sys.argv[4]))
    else:
        sys.exit(__doc__)
