# A receiver on Python's standard library alone. ../README.md says why it does what it does.
import base64, contextlib, hmac, os, re, sqlite3, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

key = base64.b64decode(os.environ["SIGNING_KEY"].removeprefix("whsec_"), validate=True)
if len(key) < 24:
    raise SystemExit("SIGNING_KEY must be the endpoint's key")
stored = threading.Event()


def sql(statement, *values):  # committed, and so on the disk, when it returns
    with contextlib.closing(sqlite3.connect(os.environ["INBOX"] + "/inbox.db", isolation_level=None)) as db:
        return db.execute(statement, values).fetchall()


def verify(headers, body):
    id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not id or not re.fullmatch("[0-9]{1,12}", timestamp):
        return "webhook-id or webhook-timestamp is missing or malformed"
    off = int(time.time()) - int(timestamp)
    if abs(off) > 300:
        return f"webhook-timestamp is {off} seconds off, 300 are allowed"
    signed = f"{id}.{timestamp}.".encode("latin-1") + body  # headers are bytes
    want = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
    given = headers.get("webhook-signature", "").encode("latin-1").split()  # one for each key
    if not any(hmac.compare_digest(want, signature) for signature in given):
        return "no signature is right; verify the raw body, with this endpoint's key"


def work():  # what was stored and is not done, also from before a restart
    while stored.wait(timeout=1) or True:
        stored.clear()
        try:
            while messages := sql("SELECT id, body FROM inbox WHERE NOT done ORDER BY rowid LIMIT 100"):
                for id, body in messages:
                    print("done", id, len(body), flush=True)  # your work goes here
                    sql("UPDATE inbox SET done = 1 WHERE id = ?", id)
        except sqlite3.Error as error:
            print("left for later:", error, file=sys.stderr)


class Receiver(BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 15

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,7}", length) or int(length) > 1 << 20:
            return self.send_error(413, "the body has no length or is over 1 MiB")
        body = self.rfile.read(int(length))  # the raw body, before any parser
        if problem := verify(self.headers, body):
            return self.send_error(401, problem)
        try:  # of many at once, one is stored; a duplicate is a success
            sql("INSERT OR IGNORE INTO inbox (id, body) VALUES (?, ?)", self.headers["webhook-id"], body)
        except sqlite3.Error as error:
            print(error, file=sys.stderr)
            return self.send_error(503, "not stored, send it again")
        stored.set()
        self.send_response(204)
        self.end_headers()


sql("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB, done INTEGER DEFAULT 0, at TEXT DEFAULT CURRENT_TIMESTAMP)")
threading.Thread(target=work, daemon=True).start()
host, _, port = os.environ["LISTEN"].rpartition(":")
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer((host, int(port)), Receiver).serve_forever()
