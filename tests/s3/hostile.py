"""What clients do that are broken, slow or mean, said byte for byte to a service that runs.

usage: python3 hostile.py ADDRESS:PORT ACCESS SECRET

The service must have been started with --body-timeout 2 --handshake-timeout 2 --put-memory 24M --min-rate 64K.
Signs by itself (version 4), because no client lets one break what it signs. Ends with 0, or with the first expectation
that does not hold.
"""

import base64
import concurrent.futures
import datetime
import functools
import hashlib
import hmac
import re
import socket
import struct
import sys
import time
import urllib.parse
import zlib

ADDRESS, ACCESS, SECRET = sys.argv[1:4]
HOST, PORT = ADDRESS.rsplit(":", 1)
BUCKET = "hostile"
KIB, MIB = 1 << 10, 1 << 20
EMPTY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
PLAIN_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


@functools.lru_cache
def reflected(polynomial, bits, data):
    """A CRC whose bits run backwards, all ones before and turned over behind."""
    mask = (1 << bits) - 1
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ polynomial if n & 1 else n >> 1
        table.append(n)
    crc = mask
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    return (crc ^ mask).to_bytes(bits // 8, "big")


CHECKSUMS = {
    "crc32": lambda data: struct.pack(">I", zlib.crc32(data)),
    "crc32c": lambda data: reflected(0x82F63B78, 32, data),
    "crc64nvme": lambda data: reflected(0x9A6C9329AC4BC9B5, 64, data),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}


def text(digest):
    return base64.b64encode(digest).decode()


def mac(key, message):
    return hmac.new(key, message.encode(), hashlib.sha256).digest()


class Signer:
    """One request's signature and those of its chunks."""

    def __init__(self):
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.date[:8]}/us-east-1/s3/aws4_request"
        key = ("AWS4" + SECRET).encode()
        for part in self.scope.split("/"):
            key = mac(key, part)
        self.key = key
        self.last = ""

    def sign(self, kind, *rest):
        self.last = mac(self.key, "\n".join([kind, self.date, self.scope, *rest])).hex()
        return self.last

    def head(self, method, path, query, headers, payload):
        """The lines of the request up to the empty one, signed."""
        headers = {"host": ADDRESS, "x-amz-date": self.date, "x-amz-content-sha256": payload, **headers}
        signed = ";".join(sorted(name for name in headers if name != "content-length"))
        quoted = urllib.parse.quote(path, safe="/-_.~")
        pairs = sorted(p if "=" in p else p + "=" for p in query.split("&") if p)
        lines = "".join(f"{name}:{headers[name].strip()}\n" for name in signed.split(";"))
        canonical = "\n".join([method, quoted, "&".join(pairs), lines, signed, payload])
        signature = self.sign("AWS4-HMAC-SHA256", hashlib.sha256(canonical.encode()).hexdigest())
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/{self.scope}, SignedHeaders={signed}, Signature={signature}")
        target = quoted + ("?" + query if query else "")
        return f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items()) + "\r\n"

    def chunk(self, data, framed=True):
        """A chunk with its signature."""
        signature = self.sign("AWS4-HMAC-SHA256-PAYLOAD", self.last, EMPTY, hashlib.sha256(data).hexdigest())
        return b"%x;chunk-signature=%s\r\n%s" % (len(data), signature.encode(), data + b"\r\n" if framed else data)

    def trailer(self, name, value):
        """The signature of what comes behind the body."""
        return self.sign("AWS4-HMAC-SHA256-TRAILER", self.last, hashlib.sha256(f"{name}:{value}\n".encode()).hexdigest())


class Reply:
    def __init__(self, connection, method="GET"):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                raise EOFError(data[:200])
            data += more
        head, self.body = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {n.lower(): v.strip() for n, v in (line.split(":", 1) for line in lines[1:])}
        left = 0 if method == "HEAD" else int(self.headers.get("content-length", 0))
        while len(self.body) < left:
            more = connection.recv(65536)
            if not more:
                raise EOFError(f"{len(self.body)} of {left} bytes")
            self.body += more
        if self.headers.get("transfer-encoding") == "chunked":
            while not self.body.endswith(b"0\r\n\r\n"):
                self.body += connection.recv(65536)

    @property
    def code(self):
        found = re.search(rb"<Code>(.*?)</Code>", self.body)
        return found.group(1).decode() if found else None


def connect():
    connection = socket.create_connection((HOST, int(PORT)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(method, path="", query="", headers=None, body=b"", payload=None, signer=None, connection=None):
    """One request and its reply. `payload`: what is said of the body, its hash unless given."""
    signer = signer or Signer()
    headers = dict(headers or {})
    headers.setdefault("content-length", str(len(body)))
    head = signer.head(method, "/" + BUCKET + path, query, headers, payload or hashlib.sha256(body).hexdigest())
    own = connection or connect()
    try:
        own.sendall(head.encode("utf-8") + body)
        return Reply(own, method)
    finally:
        if connection is None:
            own.close()


def expect(reply, status, code=None):
    assert (reply.status, reply.code or code) == (status, code or reply.code), (
        f"{reply.status} {reply.code} instead of {status} {code}: {reply.body[:300]}")
    assert reply.headers["x-amz-request-id"].isdigit(), reply.headers
    return reply


def holds(key, body):
    """The object is there with these bytes; `None`: it is not there."""
    reply = ask("GET", key)
    if body is None:
        expect(reply, 404, "NoSuchKey")
    else:
        assert reply.body == body and reply.status == 200, (reply.status, len(reply.body))


def streamed(key, kind, data, size=64 * KIB, decoded=None, algorithm=None, damage=None, cut=None, more=None):
    """Puts `data` in chunks. `damage`: what is wrong, `cut`: how many bytes of the body are sent."""
    signer = Signer()
    signed = kind != PLAIN_TRAILER
    headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(decoded or len(data))}
    name = f"x-amz-checksum-{algorithm}"
    if algorithm:
        headers["x-amz-trailer"] = name
    headers.update(more or {})

    def body():
        parts = []
        for at in list(range(0, len(data), size)):
            chunk = data[at:at + size]
            parts.append(signer.chunk(chunk) if signed else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        parts.append(signer.chunk(b"", framed=not algorithm) if signed else b"0\r\n" + (b"" if algorithm else b"\r\n"))
        if damage == "signature":
            parts[1] = re.sub(rb"chunk-signature=....", b"chunk-signature=0000", parts[1], count=1)
        if damage == "bytes":
            parts[1] = parts[1][:-10] + b"damaged!" + b"\r\n"
        if algorithm and damage != "no trailer":
            value = text(CHECKSUMS[algorithm](data + (b"x" if damage == "checksum" else b"")))
            parts.append(f"{name}:{value}\r\n".encode())
            if signed:
                mark = "0" * 64 if damage == "trailer signature" else signer.trailer(name, value)
                parts.append(f"x-amz-trailer-signature:{mark}\r\n".encode())
            parts.append(b"\r\n")
        return b"".join(parts)

    # The seed is the signature of the head, which must know the length of the body: sizes do not depend on it.
    length = len(body())
    signer = Signer()
    head = signer.head("PUT", "/" + BUCKET + key, "", {**headers, "content-length": str(length)}, kind)
    connection = connect()
    try:
        connection.sendall(head.encode() + body()[:cut])
        if cut is not None:
            connection.shutdown(socket.SHUT_WR)
        return Reply(connection, "PUT")
    finally:
        connection.close()


def chunked_bodies():
    data = bytes(range(256)) * 500
    put = lambda *args, **more: streamed("/chunks", *args, **more)
    for kind in (SIGNED_CHUNKS, SIGNED_TRAILER, PLAIN_TRAILER):
        for algorithm in [None] if kind == SIGNED_CHUNKS else CHECKSUMS:
            reply = expect(put(kind, data, algorithm=algorithm), 200)
            assert reply.headers["etag"] == f'"{hashlib.md5(data).hexdigest()}"'
            if algorithm:
                assert reply.headers[f"x-amz-checksum-{algorithm}"] == text(CHECKSUMS[algorithm](data))
            holds("/chunks", data)
            assert "content-encoding" not in ask("HEAD", "/chunks").headers
            expect(ask("DELETE", "/chunks"), 204)
    # Uneven chunks, one byte each, and nothing at all.
    for size, some in ((8191, data), (1, data[:300]), (KIB, b"")):
        for kind in (SIGNED_CHUNKS, PLAIN_TRAILER):
            expect(put(kind, some, size=size, algorithm="crc32c" if kind == PLAIN_TRAILER else None), 200)
            holds("/chunks", some)
    # One chunk that gets its memory bit by bit: there are 24 MiB, and with two pieces it takes 18.
    large = data * 80
    expect(put(SIGNED_CHUNKS, large, size=len(large)), 200)
    holds("/chunks", large)
    # Chunks of HTTP around those of S3: the length is told by one header only.
    inner = b"4\r\nbody\r\n0\r\nx-amz-checksum-crc32:" + text(CHECKSUMS["crc32"](b"body")).encode() + b"\r\n\r\n"
    outer = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (inner[:9], inner[9:])) + b"0\r\n\r\n"
    headers = {"content-encoding": "aws-chunked", "transfer-encoding": "chunked", "x-amz-trailer": "x-amz-checksum-crc32"}
    for decoded, status in (("4", 200), ("5", 400), ("3", 400), (None, 411)):
        connection = connect()
        more = {**headers, "x-amz-decoded-content-length": decoded} if decoded else headers
        connection.sendall(Signer().head("PUT", f"/{BUCKET}/chunks", "", more, PLAIN_TRAILER).encode() + outer)
        expect(Reply(connection), status)
        holds("/chunks", b"body")
    good = data[:5000]
    expect(put(SIGNED_CHUNKS, good), 200)
    crc = {"algorithm": "crc32c"}
    for wrong, code, more in (
        (SIGNED_CHUNKS, "SignatureDoesNotMatch", {"damage": "signature"}),
        (SIGNED_CHUNKS, "SignatureDoesNotMatch", {"damage": "bytes"}),
        (SIGNED_TRAILER, "SignatureDoesNotMatch", {"damage": "signature", **crc}),
        (SIGNED_TRAILER, "SignatureDoesNotMatch", {"damage": "trailer signature", **crc}),
        (SIGNED_TRAILER, "BadDigest", {"damage": "checksum", **crc}),
        (SIGNED_TRAILER, "IncompleteBody", {"damage": "no trailer", **crc}),
        (PLAIN_TRAILER, "BadDigest", {"damage": "bytes", **crc}),
        (PLAIN_TRAILER, "IncompleteBody", {"damage": "no trailer", **crc}),
        (SIGNED_CHUNKS, "IncompleteBody", {"decoded": len(data) + 1}),
        (SIGNED_CHUNKS, "IncompleteBody", {"decoded": len(data) - 1}),
        (PLAIN_TRAILER, "IncompleteBody", {"decoded": 5 * MIB, **crc}),
        (PLAIN_TRAILER, "IncompleteBody", {"decoded": 1, **crc}),
        (SIGNED_CHUNKS, "BadDigest", {"more": {"content-md5": text(b"0" * 16)}}),
        *[(PLAIN_TRAILER, "BadDigest", {"damage": "checksum", "algorithm": name}) for name in CHECKSUMS],
    ):
        expect(put(wrong, data, **more), 403 if code.startswith("Sig") else 400, code)
        holds("/chunks", good)
    for cut in (0, 10, 70 * KIB, len(data)):
        for kind in (SIGNED_CHUNKS, PLAIN_TRAILER):
            try:
                expect(put(kind, data, cut=cut, algorithm="crc32" if kind == PLAIN_TRAILER else None), 400, "IncompleteBody")
            except (EOFError, ConnectionResetError):
                pass
            holds("/chunks", good)
    # What is no chunk at all, and one that pretends to have 4 GiB.
    for body in (b"garbage\r\n" * 10, b"ffffffff;chunk-signature=" + b"0" * 64 + b"\r\n" + b"x" * 1000, b";" * 3000):
        headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": "1000"}
        expect(ask("PUT", "/chunks", headers=headers, body=body, payload=SIGNED_CHUNKS), 400, "IncompleteBody")
    holds("/chunks", good)
    expect(ask("DELETE", "/chunks"), 204)


def whole_bodies():
    data = b"whole" * 1000
    expect(ask("PUT", "/whole", body=data, payload=UNSIGNED), 200)
    holds("/whole", data)
    put = lambda headers=None, payload=None, body=b"other": ask("PUT", "/whole", headers=headers, body=body, payload=payload)
    expect(put(payload=EMPTY), 400, "XAmzContentSHA256Mismatch")
    expect(put({"content-md5": text(b"0" * 16)}), 400, "BadDigest")
    expect(put({"content-md5": "x"}), 400, "InvalidDigest")
    for name in CHECKSUMS:
        expect(put({f"x-amz-checksum-{name}": text(CHECKSUMS[name](b"others"))}), 400, "BadDigest")
    expect(put({"content-length": str(6 << 30)}, UNSIGNED, b""), 400, "EntityTooLarge")
    holds("/whole", data)
    for name in CHECKSUMS:
        expect(put({f"x-amz-checksum-{name}": text(CHECKSUMS[name](b"other"))}), 200)
    holds("/whole", b"other")
    # Cut off: nothing is stored.
    connection = connect()
    head = Signer().head("PUT", f"/{BUCKET}/whole", "", {"content-length": "1000"}, UNSIGNED)
    connection.sendall(head.encode() + b"x" * 999)
    connection.close()
    # No length at all.
    connection = connect()
    head = Signer().head("PUT", f"/{BUCKET}/whole", "", {"transfer-encoding": "chunked"}, UNSIGNED)
    connection.sendall(head.encode() + b"3\r\nabc\r\n0\r\n\r\n")
    expect(Reply(connection), 411, "MissingContentLength")
    holds("/whole", b"other")
    # A connection that was refused something goes on, or is closed; it is never read out of step.
    connection = connect()
    for turn in range(20):
        try:
            reply = ask("PUT", "/none/such", headers={"x-amz-website-redirect-location": "/a"}, body=b"GET / HTTP/1.1\r\n\r\n" * 9,
                        connection=connection)
            expect(reply, 501, "NotImplemented")
            expect(ask("GET", "/whole", connection=connection), 200)
        except (EOFError, ConnectionError):
            connection.close()
            connection = connect()
    expect(ask("DELETE", "/whole"), 204)


def parameters():
    expect(ask("PUT", "/p/one"), 200)
    for query in ("list-type=2&max-keys=&prefix=&delimiter=&start-after=&continuation-token=&encoding-type=&fetch-owner=",
                  "max-keys=&marker=&prefix=&delimiter=&encoding-type=", "max-keys", "list-type=2&max-keys"):
        reply = expect(ask("GET", "", query), 200)
        assert b"<Key>p/one</Key>" in reply.body and b"<MaxKeys>1000</MaxKeys>" in reply.body, reply.body
    expect(ask("GET", "", "uploads=&max-uploads=&key-marker=&upload-id-marker=&prefix="), 200)
    expect(ask("GET", "/p/one", "partNumber=&response-expires=&versionId="), 200)
    expect(ask("HEAD", "/p/one", "partNumber="), 200)
    upload = re.search(rb"<UploadId>(.*?)<", expect(ask("POST", "/p/u", "uploads="), 200).body).group(1).decode()
    expect(ask("GET", "/p/u", f"max-parts=&part-number-marker=&uploadId={upload}"), 200)
    expect(ask("DELETE", "/p/u", f"uploadId={upload}"), 204)
    # Who is asked again is judged again, and the empty parameter was signed.
    connection = connect()
    head = Signer().head("GET", f"/{BUCKET}", "list-type=2&max-keys=", {}, EMPTY)
    connection.sendall(head.replace("max-keys=", "max-parts=").encode())
    expect(Reply(connection), 403, "SignatureDoesNotMatch")
    connection = connect()
    connection.sendall(f"GET /{BUCKET}?max-keys= HTTP/1.1\r\nhost: {ADDRESS}\r\n\r\n".encode())
    expect(Reply(connection), 403, "AccessDenied")
    for query in ("max-keys=x", "max-keys=-1", "max-keys=99999999999", "encoding-type=xml"):
        expect(ask("GET", "", query), 400, "InvalidArgument")
    for method in ("GET", "HEAD", "DELETE"):
        reply = ask(method, "/p/one", "versionId=3HL4kqtJlcpXroDTDmJ")
        expect(reply, 404, None if method == "HEAD" else "NoSuchVersion")
    expect(ask("GET", "/p/one", "versionId=null"), 200)
    for query in ("acl=", "tagging=", "versions=", "replication=", "policy=", "object-lock="):
        # That they are asked for is tested in service/s3: they are answered, and cannot be made.
        expect(ask("PUT", "", query, body=b"<X/>"), 501, "NotImplemented")
    for name in ("x-amz-server-side-encryption", "x-amz-website-redirect-location", "x-amz-object-lock-mode", "x-amz-write-offset-bytes",
                 "x-amz-server-side-encryption-customer-algorithm", "x-amz-grant-read"):
        expect(ask("PUT", "/p/one", headers={name: "x"}, body=b"new"), 501, "NotImplemented")
    expect(ask("PUT", "/p/one", headers={"x-amz-acl": "public-read"}), 501, "NotImplemented")
    expect(ask("DELETE", "/p/one", headers={"x-amz-if-match-size": "7"}), 412, "PreconditionFailed")
    holds("/p/one", b"")
    expect(ask("PUT", "/p/one", headers={"x-amz-acl": "private"}), 200)
    expect(ask("DELETE", "/p/one"), 204)


def documents():
    """Bodies of XML: too large, too many, none, not XML, and such that grow."""
    one = "<Object><Key>a</Key></Object>"
    delete = lambda body, **more: ask("POST", "", "delete=", body=body, headers={"content-md5": text(hashlib.md5(body).digest())}, **more)
    expect(delete(f"<Delete>{one}</Delete>".encode()), 200)
    expect(delete(b""), 400, "MissingRequestBodyError")
    for wrong in (b"<Delete>", b"\x00\xff" * 50, b"<Other/>", b"<Delete><Object/></Delete>", b"<a>" * 100_000,
                  f"<Delete>{one * 1001}</Delete>".encode()):
        expect(delete(wrong), 400, "MalformedXML")
    laughs = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    expect(delete(f"{laughs}<Delete><Object><Key>&b;</Key></Object></Delete>".encode()), 400, "MalformedXML")
    expect(ask("POST", "", "delete=", headers={"content-length": str(5 << 20)}, payload=UNSIGNED), 400,
           "MaxMessageLengthExceeded")
    connection = connect()
    head = Signer().head("POST", f"/{BUCKET}", "delete=", {"transfer-encoding": "chunked"}, UNSIGNED)
    try:
        connection.sendall(head.encode() + (b"%x\r\n%s\r\n" % (MIB, b" " * MIB)) * 8 + b"0\r\n\r\n")
        # As S3 does: the length of a document must be known.
        expect(Reply(connection), 411, "MissingContentLength")
    except ConnectionError:
        pass
    upload = re.search(rb"<UploadId>(.*?)<", expect(ask("POST", "/x", "uploads="), 200).body).group(1).decode()
    etag = expect(ask("PUT", "/x", f"partNumber=1&uploadId={upload}", body=b"part"), 200).headers["etag"]
    complete = lambda body, **more: ask("POST", "/x", f"uploadId={upload}", body=body.encode(), **more)
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    document = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"
    for wrong in ("<CompleteMultipartUpload/>", document.replace("<PartNumber>1", "<PartNumber>x")):
        expect(complete(wrong), 400, "MalformedXML")
    expect(complete(document.replace(part, part * 2)), 400, "InvalidPartOrder")
    expect(complete(document.replace("<PartNumber>1", "<PartNumber>0")), 400)
    expect(complete(document, headers={"x-amz-mp-object-size": "5"}), 400, "InvalidRequest")
    expect(complete(document, headers={"if-match": etag}), 404, "NoSuchKey")
    for number in ("0", "10001", "-1", "70000"):
        expect(ask("PUT", "/x", f"partNumber={number}&uploadId={upload}", body=b"x"), 400, "InvalidArgument")
    expect(complete(document, headers={"if-none-match": "*", "x-amz-mp-object-size": "4"}), 200)
    holds("/x", b"part")
    expect(ask("DELETE", "/x"), 204)


def heads():
    """What is too large before a body comes."""
    def raw(data):
        connection = connect()
        try:
            connection.sendall(data)
            return Reply(connection).status
        except (EOFError, ConnectionError):
            return None
    assert raw(b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 300_000 + b"\r\n\r\n") in (431, None)
    assert raw(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n") in (414, 431, 400, None)
    assert raw(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n") in (431, None)
    assert raw(b"\x16\x03\x01\x02\x00\x01\x00" + bytes(200)) in (400, None)
    assert raw(b"PUT /%zz/x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n") in (400, 403)
    for authorization in ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=/////, SignedHeaders=, Signature=", "x" * 5000,
                          f"AWS4-HMAC-SHA256 Credential={ACCESS}/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, "
                          + "Signature=" + "0" * 64):
        status = raw(f"GET / HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n\r\n".encode())
        assert status in (400, 403), (authorization, status)


def ends(connection, within):
    """The service closes the connection in this time; what it said before."""
    connection.settimeout(within)
    said = b""
    try:
        while more := connection.recv(65536):
            said += more
    except ConnectionError:
        pass
    return said


def slow():
    """A head, a body, and a reader that are slower than the service waits."""
    def head_that_trickles():
        connection = connect()
        try:
            for byte in b"GET /hostile HTTP/1.1\r\nhost: " + b"x" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        except ConnectionError:
            return
        raise AssertionError("a head may trickle for 50 s")

    def body(pause, size):
        connection = connect()
        head = Signer().head("PUT", f"/{BUCKET}/slow", "", {"content-length": str(MIB)}, UNSIGNED)
        connection.sendall(head.encode())
        try:
            for _ in range(400):
                connection.sendall(b"x" * size)
                time.sleep(pause)
                connection.settimeout(0.001)
                try:
                    if connection.recv(1, socket.MSG_PEEK):
                        break
                except TimeoutError:
                    connection.settimeout(60)
            connection.settimeout(60)
            expect(Reply(connection), 400, "RequestTimeout")
        except (EOFError, ConnectionError):
            pass

    def body_that_stops():
        connection = connect()
        head = Signer().head("PUT", f"/{BUCKET}/slow", "", {"content-length": str(MIB)}, UNSIGNED)
        connection.sendall(head.encode() + b"x" * 1000)
        expect(Reply(connection), 400, "RequestTimeout")

    def reader_that_stops():
        expect(ask("PUT", "/large", body=bytes(20 * MIB), payload=UNSIGNED), 200)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((HOST, int(PORT)))
        head = Signer().head("GET", f"/{BUCKET}/large", "", {"content-length": "0"}, EMPTY)
        connection.sendall(head.encode())
        connection.recv(100)
        time.sleep(5)
        got = len(ends(connection, 30))
        assert got < 20 * MIB, "a reader that stops gets all of it later"
        expect(ask("DELETE", "/large"), 204)

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(head_that_trickles), pool.submit(body, 0.05, 100), pool.submit(body_that_stops),
                pool.submit(reader_that_stops)]
        for job in jobs:
            job.result()
    holds("/slow", None)


def full():
    """More bodies at a time than there is memory for: who finds none is told when to come back."""
    stalled = []
    for n in range(8):
        connection = connect()
        head = Signer().head("PUT", f"/{BUCKET}/full/{n}", "", {"content-length": str(8 * MIB)}, UNSIGNED)
        connection.sendall(head.encode() + b"x" * KIB)
        stalled.append(connection)
    codes = []
    for connection in stalled:
        reply = Reply(connection)
        if reply.code == "SlowDown":
            expect(reply, 503, "SlowDown")
            assert int(reply.headers["retry-after"]) >= 1, reply.headers
        else:
            expect(reply, 400, "RequestTimeout")
        codes.append(reply.code)
        connection.close()
    assert "SlowDown" in codes and "RequestTimeout" in codes, codes
    # They are gone, and so is what they had taken: many who do send get through.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        body = b"y" * (5 * MIB)
        def put(n):
            for _ in range(60):
                wait = 1
                try:
                    reply = ask("PUT", f"/full/{n}", body=body, payload=UNSIGNED)
                    if reply.status == 200:
                        return
                    expect(reply, 503, "SlowDown")
                    wait = int(reply.headers["retry-after"])
                except (BrokenPipeError, ConnectionResetError):
                    pass  # Told while the body was on its way: the reply may be lost with the rest of it.
                time.sleep(wait)
            raise AssertionError("never let in")
        list(pool.map(put, range(16)))
    for n in range(16):
        holds(f"/full/{n}", body)
        expect(ask("DELETE", f"/full/{n}"), 204)


CHECKS = [heads, parameters, whole_bodies, chunked_bodies, documents, full, slow]

if __name__ == "__main__":
    expect(ask("PUT"), 200)
    for check in CHECKS:
        since = time.monotonic()
        check()
        print(f"{check.__name__}: {time.monotonic() - since:.2f} s", flush=True)
    left = ask("GET", "", "list-type=2").body
    assert b"<Key>" not in left, left
    expect(ask("DELETE"), 204)
