"""Calls to a Lumpscope service by gRPC-Web, over HTTP/1.1 on a UNIX socket or TCP.

Only the standard library's sockets are used, so green threads of eventlet wait here like everybody else; the library
of gRPC has threads of its own and does not go with them. A connection makes one call at a time. Connections that are
not in use are kept for a while, for each thread of the system its own.
"""

import base64
import http.client
import select
import socket
import struct
import time
import urllib.parse

from google.protobuf.message import DecodeError

from . import messages

try:
    from eventlet.patcher import original
except ImportError:
    from importlib import import_module as original
# As the system has them, also where eventlet has put its own in their place.
_thread_id = original("threading").get_ident
_poll = original("select").poll

# grpc-status.
NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED, OUT_OF_RANGE, INTERNAL, UNAVAILABLE, DATA_LOSS = 5, 6, 8, 11, 13, 14, 15

# Bytes of a body in one message of a stream, and in one message alone.
CHUNK = 1 << 20
SMALL = 1 << 20
# Seconds that a connection may lie unused: less than the service's handshake-timeout, which ends it.
IDLE = 4.0
# Connections kept by a thread.
KEPT = 32
_PREFIX = struct.Struct(">BI")
# Field 2, bytes: `chunk` of PutRequest and of GetResponse.
_CHUNK_TAG = b"\x12"
_TRAILERS = 0x80


class DoorError(Exception):
    """A call that failed. `code` is that of gRPC, `reason` the word for programs, e.g. STORE_FULL."""

    def __init__(self, code, reason, text):
        super().__init__(text)
        self.code = code
        self.reason = reason


class _Connection(http.client.HTTPConnection):
    def __init__(self, address, timeout):
        super().__init__("localhost", timeout=timeout)
        self.address = address
        self.used = 0.0

    def connect(self):
        if self.address.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.address[len("unix:"):])
            return
        host, _, port = self.address.rpartition(":")
        self.sock = socket.create_connection((host.strip("[]"), int(port)), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def is_fresh(self):
        """True: nothing has come on it, not even its end."""
        if time.monotonic() - self.used > IDLE:
            return False
        asked = _poll()
        asked.register(self.sock, select.POLLIN)
        return not asked.poll(0)


def frame(message):
    """A message with its prefix."""
    body = message.SerializeToString()
    return _PREFIX.pack(0, len(body)) + body


def _chunk_frames(parts):
    """Messages of PutRequest with a chunk each, as protobuf would write them, but with one copy of the bytes."""
    whole = memoryview(b"".join(parts))
    for at in range(0, len(whole), CHUNK):
        chunk = whole[at:at + CHUNK]
        head = _CHUNK_TAG + _varint(len(chunk))
        yield _PREFIX.pack(0, len(head) + len(chunk)) + head
        yield chunk


def _chunk_of(body):
    """The bytes of a GetResponse that is nothing but a chunk, without a copy; else as protobuf reads it."""
    for at in range(2, min(len(body), 7)):
        if body.startswith(_CHUNK_TAG + _varint(len(body) - at)):
            return memoryview(body)[at:]
    return messages.GetResponse.FromString(body).chunk


def _varint(number):
    found = bytearray()
    while number > 0x7f:
        found.append(number & 0x7f | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


class Door:
    """Calls of LumpStore. `address` is `unix:PATH` or `HOST:PORT`. `trace()` gives headers for each call."""

    def __init__(self, address, timeout=60.0, token=None, trace=None):
        self.address = address
        self.timeout = timeout
        self.token = token
        self.trace = trace or dict
        self._kept = {}

    # Calls with one message each way.

    def call(self, method, request, reply):
        """The reply to `request`, a message of the class `reply`."""
        with _Call(self, method, [frame(request)]) as call:
            found = None
            for body in call.messages():
                found = reply()
                found.ParseFromString(body)
            if found is None:
                raise DoorError(INTERNAL, "", "%s: no message came" % method)
            return found

    def put(self, header, parts, length):
        """Stores a lump whose body is `parts`, `length` bytes in all. Returns the PutResponse."""
        header.length = length
        if length <= SMALL - 4096:
            asked = messages.PutSmallRequest(header=header, body=b"".join(parts))
            return self.call("PutSmall", asked, messages.PutSmallResponse).put
        sent = [frame(messages.PutRequest(header=header)), *_chunk_frames(parts)]
        with _Call(self, "Put", sent) as call:
            reply = messages.PutResponse()
            for body in call.messages():
                reply.ParseFromString(body)
            return reply

    def get(self, request):
        """The header of a lump or range, and its bytes as they come; close the generator if it is not used up."""
        call = _Call(self, "Get", [frame(request)])
        try:
            parts = call.messages()
            first = messages.GetResponse()
            first.ParseFromString(next(parts))
        except StopIteration:
            call.close()
            raise DoorError(INTERNAL, "", "Get: no message came")
        except BaseException:
            call.close()
            raise
        return first.header, self._chunks(call, parts)

    @staticmethod
    def _chunks(call, parts):
        with call:
            for body in parts:
                yield _chunk_of(body)

    # Connections.

    def _take(self):
        kept = self._kept.setdefault(_thread_id(), [])
        while kept:
            connection = kept.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        return _Connection(self.address, self.timeout)

    def _give(self, connection):
        connection.used = time.monotonic()
        kept = self._kept.setdefault(_thread_id(), [])
        if len(kept) < KEPT:
            kept.append(connection)
        else:
            connection.close()


class _Call:
    """One call. Its connection is kept only if the reply was read to its end."""

    def __init__(self, door, method, frames):
        self.door = door
        self.method = method
        self.connection = door._take()
        try:
            self.response = self._send(frames)
            self._check_head()
        except DoorError:
            self.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self.close()
            text = "%s: %s does not answer: %s" % (method, door.address, error or type(error).__name__)
            raise DoorError(UNAVAILABLE, "UNREACHABLE", text) from error
        except BaseException:
            self.close()
            raise

    def _send(self, frames):
        connection = self.connection
        connection.putrequest("POST", "/lumpscope.v1.LumpStore/" + self.method, skip_accept_encoding=True)
        connection.putheader("Content-Type", "application/grpc-web+proto")
        connection.putheader("Content-Length", str(sum(map(len, frames))))
        connection.putheader("grpc-timeout", "%dm" % int(self.door.timeout * 1000))
        if self.door.token:
            connection.putheader("Authorization", "Bearer " + self.door.token)
        for name, value in self.door.trace().items():
            connection.putheader(name, value)
        connection.endheaders()
        try:
            for body in frames:
                connection.send(body)
        except (BrokenPipeError, ConnectionResetError):
            # It may have been refused before its end: the answer says why.
            pass
        return connection.getresponse()

    def _check_head(self):
        response = self.response
        if response.status != 200:
            text = response.read(1000).decode("utf-8", "replace").strip()
            raise DoorError(INTERNAL, "", "%s: HTTP %d: %s" % (self.method, response.status, text))
        if response.getheader("grpc-status") not in (None, "0"):
            response.read()
            self._finish()
            raise self._error(response)

    def _error(self, headers):
        get = headers.getheader if hasattr(headers, "getheader") else headers.get
        code = get("grpc-status")
        details = get("grpc-status-details-bin") or ""
        try:
            reason = messages.reason(base64.b64decode(details + "=" * (-len(details) % 4)))
        except (ValueError, DecodeError):
            reason = ""
        text = urllib.parse.unquote(get("grpc-message") or "")
        return DoorError(int(code), reason, "%s: %s" % (self.method, text))

    def messages(self):
        """The messages of the reply; raises its error."""
        response = self.response
        try:
            while True:
                prefix = self._read(_PREFIX.size)
                if not prefix:
                    raise http.client.IncompleteRead(b"")
                flag, length = _PREFIX.unpack(prefix)
                body = self._read(length)
                if flag & _TRAILERS:
                    lines = body.decode("utf-8", "replace").split("\r\n")
                    trailers = dict(line.split(":", 1) for line in lines if ":" in line)
                    trailers = {name.strip().lower(): value.strip() for name, value in trailers.items()}
                    response.read()
                    self._finish()
                    if trailers.get("grpc-status") != "0":
                        raise self._error(trailers)
                    return
                yield body
        except (OSError, http.client.HTTPException) as error:
            self.close()
            text = "%s: %s broke off: %s" % (self.method, self.door.address, error or type(error).__name__)
            raise DoorError(UNAVAILABLE, "UNREACHABLE", text) from error

    def _read(self, length):
        parts = []
        while length:
            part = self.response.read(length)
            if not part:
                if parts:
                    raise http.client.IncompleteRead(b"".join(parts), length)
                break
            parts.append(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _finish(self):
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if self.response.will_close:
            connection.close()
        else:
            self.door._give(connection)

    def close(self):
        """Ends the call. One that is not over ends with its connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
