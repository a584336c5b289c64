#!/usr/bin/env python3
"""Every kind of call of lumpscope.v1 from Python, with nothing but grpcio and the shipped .proto files.

README.md beside this file says how to run it. It works on a store of its own choosing: it puts lumps whose ids begin
with 7079 ("py"), looks at them in every way the service offers, and removes them again.
"""

import argparse
import contextlib
import hashlib
import sys
import threading
from concurrent import futures

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

# Made from the .proto files by grpc_tools.protoc; see README.md.
from lumpscope.v1 import admin_pb2, admin_pb2_grpc
from lumpscope.v1 import lump_store_pb2 as lumps
from lumpscope.v1 import lump_store_pb2_grpc
from lumpscope.v1 import types_pb2 as types

MIB = 1 << 20
# A body may come in chunks of any size up to the service's message limit; 1 MiB is a good one.
CHUNK = MIB
# Every call gets a deadline: without one a call waits for ever. The service drops what is late before it touches the
# disk.
TIMEOUT = 30
# One connection is served by one processor on either side. With many calls in flight several carry more; beyond four
# there is little to gain. Channels of one process share a connection unless each has a pool of its own (connect()).
CONNECTIONS = 4
FIRST_ID = 0x7079 << 112


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def crc32c(data):
    """CRC-32C (Castagnoli), slow but without a further package; google-crc32c is a fast one."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def lump_id(number):
    return types.LumpId(raw=(FIRST_ID + number).to_bytes(16, "big"))


def content(seed, length):
    block = hashlib.sha256(str(seed).encode()).digest()
    return (block * (length // len(block) + 1))[:length]


def check(condition, what):
    if not condition:
        raise SystemExit(f"lumpscope_example: FAILED: {what}")


def details(error):
    """The reason on which programs can rely, and how long to wait before trying again, of an error."""
    reason, wait = None, None
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            check(info.domain == "lumpscope", f"domain {info.domain!r}")
            reason = info.reason
        elif detail.Unpack(retry):
            wait = retry.retry_delay.ToTimedelta()
    return reason, wait


def request_id(error):
    """The id under which the service's log and metrics know the request."""
    for key, value in error.trailing_metadata() or ():
        if key == "lumpscope-request-id":
            return int(value)
    return None


class Example:
    def __init__(self, channels, store):
        self.stubs = [lump_store_pb2_grpc.LumpStoreStub(channel) for channel in channels]
        self.lumps = self.stubs[0]
        self.admin = admin_pb2_grpc.AdminStub(channels[0])
        self.store = store

    def header(self, number, length, **more):
        return lumps.PutHeader(store=self.store, id=lump_id(number), length=length, **more)

    def put(self, number, body, **more):
        """A stream: the header, then the body in chunks."""

        def messages():
            yield lumps.PutRequest(header=self.header(number, len(body), **more))
            for at in range(0, len(body), CHUNK):
                yield lumps.PutRequest(chunk=body[at : at + CHUNK])

        return self.lumps.Put(messages(), timeout=TIMEOUT)

    def get(self, number, **more):
        """A stream: the header, then the bytes in chunks."""
        request = lumps.GetRequest(store=self.store, id=lump_id(number), **more)
        stream = self.lumps.Get(request, timeout=TIMEOUT)
        header = next(stream).header
        body = b"".join(message.chunk for message in stream)
        check(len(body) == header.length, "length of a get")
        return header, body

    def expect(self, code, call):
        """The error with which a call must end."""
        try:
            call()
        except grpc.RpcError as error:
            check(error.code() == code, f"{error.code()} in place of {code}: {error.details()}")
            return error
        raise SystemExit(f"lumpscope_example: FAILED: no {code}")

    # Steps, in the order of their names in main().

    def stores(self):
        reply = self.lumps.ListStores(lumps.ListStoresRequest(), timeout=TIMEOUT)
        names = [store.name for store in reply.stores]
        check(self.store in names, f"store {self.store!r} among {names}")

    def put_stream(self):
        body = content(1, 3 * MIB + 5)
        reply = self.put(1, body, durability=types.DURABILITY_SYNCED)
        check(reply.created, "a new lump is created")
        check(reply.durability == types.DURABILITY_SYNCED, "durability")
        short = content(2, 1000)
        reply = self.put(2, short, crc32c=crc32c(short))
        check(reply.crc32c == crc32c(short), "checksum of a put")
        wrong = crc32c(short) ^ 1
        self.expect(grpc.StatusCode.ABORTED, lambda: self.put(3, short, crc32c=wrong))

    def get_stream(self):
        header, body = self.get(1)
        check(body == content(1, 3 * MIB + 5), "bytes of a get")
        check(header.verified, "a get is verified")
        part = lumps.ByteRange(offset=MIB - 1, length=2)
        header, body = self.get(1, range=part)
        check(body == content(1, 3 * MIB + 5)[MIB - 1 : MIB + 1], "bytes of a range")
        check(header.lump_length == 3 * MIB + 5, "length of the whole lump")

    def small(self):
        body = content(4, 777)
        request = lumps.PutSmallRequest(header=self.header(4, 0), body=body)
        reply = self.lumps.PutSmall(request, timeout=TIMEOUT)
        check(reply.put.created, "a small lump is created")
        get = lumps.GetRequest(store=self.store, id=lump_id(4))
        reply = self.lumps.GetSmall(lumps.GetSmallRequest(get=get), timeout=TIMEOUT)
        check(reply.body == body, "bytes of a small get")
        check(reply.header.crc32c == crc32c(body), "checksum of a small get")
        head = lumps.HeadRequest(store=self.store, id=lump_id(4))
        check(self.lumps.Head(head, timeout=TIMEOUT).length == 777, "length by Head")

    def many(self):
        bodies = [content(10 + n, n * 100_000) for n in range(20)]

        def messages():
            for n, body in enumerate(bodies):
                yield lumps.PutManyRequest(header=self.header(10 + n, len(body)))
                for at in range(0, len(body), CHUNK):
                    yield lumps.PutManyRequest(chunk=body[at : at + CHUNK])

        stored = set()
        for reply in self.lumps.PutMany(messages(), timeout=TIMEOUT):
            check(reply.WhichOneof("outcome") == "stored", f"put of many: {reply}")
            stored.add(reply.index)
        check(stored == set(range(20)), "every lump of many is answered")

        ids = [lump_id(10 + n) for n in range(20)] + [lump_id(999)]
        got, failed = {}, {}
        request = lumps.GetManyRequest(store=self.store, ids=ids)
        for reply in self.lumps.GetMany(request, timeout=TIMEOUT):
            part = reply.WhichOneof("part")
            if part == "header":
                got[reply.index] = b""
            elif part == "chunk":
                got[reply.index] += reply.chunk
            else:
                failed[reply.index] = reply.failed
        check([got[n] for n in range(20)] == bodies, "bytes of a get of many")
        check(list(failed) == [20], "the lump that is not there has a failure")
        check(failed[20].code == grpc.StatusCode.NOT_FOUND.value[0], "code of that failure")

    def parallel(self):
        """Calls in flight at the same time, over all connections."""

        def one(n):
            body = content(60 + n, MIB)
            header = self.header(60 + n, 0)
            stub = self.stubs[n % len(self.stubs)]
            stub.PutSmall(lumps.PutSmallRequest(header=header, body=body), timeout=TIMEOUT)
            get = lumps.GetRequest(store=self.store, id=lump_id(60 + n))
            reply = stub.GetSmall(lumps.GetSmallRequest(get=get), timeout=TIMEOUT)
            check(reply.body == body, "bytes of a get beside others")
            request = lumps.DeleteRequest(store=self.store, id=lump_id(60 + n))
            check(stub.Delete(request, timeout=TIMEOUT).existed, "deleted")

        with futures.ThreadPoolExecutor(16) as threads:
            list(threads.map(one, range(16)))

    def conditional(self):
        body = content(40, 100)
        once = types.PUT_CONDITION_IF_ABSENT
        check(self.put(40, body, condition=once).created, "put if absent")
        again = self.expect(
            grpc.StatusCode.ALREADY_EXISTS,
            lambda: self.put(40, content(41, 100), condition=once),
        )
        check(details(again)[0] is not None, "the refusal has a reason")
        check(self.get(40)[1] == body, "the first put counts")
        check(not self.put(40, content(41, 100)).created, "replaced")

    def list(self):
        found, token = [], b""
        while True:
            request = lumps.ListRequest(
                store=self.store,
                start=lump_id(0),
                end=lump_id(1000),
                page_size=7,
                page_token=token,
            )
            page = self.lumps.List(request, timeout=TIMEOUT)
            found += [int.from_bytes(raw, "big") - FIRST_ID for raw in page.ids]
            token = page.next_page_token
            if not token:
                break
        check(found == [1, 2, 4, *range(10, 30), 40], f"ids {found}")

    def errors(self):
        missing = lumps.HeadRequest(store=self.store, id=lump_id(888))
        error = self.expect(
            grpc.StatusCode.NOT_FOUND, lambda: self.lumps.Head(missing, timeout=TIMEOUT)
        )
        reason, _wait = details(error)
        check(reason and reason == reason.upper(), f"reason {reason!r}")
        check(request_id(error), "an error carries the id of its request")
        print(f"   an error: {error.code().name}, {reason}: {error.details()}")
        long = lumps.GetSmallRequest(get=lumps.GetRequest(store=self.store, id=lump_id(1)))
        self.expect(
            grpc.StatusCode.OUT_OF_RANGE, lambda: self.lumps.GetSmall(long, timeout=TIMEOUT)
        )

    def deadline(self):
        def slow():
            yield lumps.PutRequest(header=self.header(50, 2))
            yield lumps.PutRequest(chunk=b"1")
            # The second byte never comes, so that the time of the call ends first.
            never.wait(TIMEOUT)

        never = threading.Event()
        self.expect(
            grpc.StatusCode.DEADLINE_EXCEEDED, lambda: self.lumps.Put(slow(), timeout=0.3)
        )
        never.set()
        missing = lumps.HeadRequest(store=self.store, id=lump_id(50))
        self.expect(
            grpc.StatusCode.NOT_FOUND, lambda: self.lumps.Head(missing, timeout=TIMEOUT)
        )

    def sync(self):
        self.admin.Sync(admin_pb2.SyncRequest(store=self.store), timeout=TIMEOUT)

    def delete(self):
        request = lumps.DeleteRequest(store=self.store, id=lump_id(1))
        check(self.lumps.Delete(request, timeout=TIMEOUT).existed, "deleted")
        check(not self.lumps.Delete(request, timeout=TIMEOUT).existed, "deleted once")
        request = lumps.DeleteManyRequest(store=self.store, ids=[lump_id(2), lump_id(1)])
        existed = self.lumps.DeleteMany(request, timeout=TIMEOUT).existed
        check(list(existed) == [True, False], "deleted many")
        request = lumps.DeleteRangeRequest(
            store=self.store, start=lump_id(0), end=lump_id(1000)
        )
        check(self.lumps.DeleteRange(request, timeout=TIMEOUT).deleted == 22, "deleted a range")


def connect(args):
    """A channel with TLS and a token where they are given."""
    # The receive window of HTTP/2 grows with what is read; messages of the service are at most 1 MiB and their framing.
    options = [
        ("grpc.max_receive_message_length", 4 * MIB),
        # A connection of its own, beside those of other channels to the same service.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if not args.ca:
        if args.token_file:
            # grpcio adds call credentials only to encrypted channels: the token is put in by hand, for loopback alone.
            return grpc.intercept_channel(
                grpc.insecure_channel(args.server, options), TokenByHand(token(args))
            )
        return grpc.insecure_channel(args.server, options)
    ca = read(args.ca)
    key, cert = (read(args.key), read(args.cert)) if args.cert else (None, None)
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    if args.token_file:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token(args))
        )
    return grpc.secure_channel(args.server, credentials, options)


class TokenByHand(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to each call of a channel without TLS."""

    def __init__(self, text):
        self.metadata = ("authorization", f"Bearer {text}")

    def add(self, call, details, request):
        metadata = [*(details.metadata or ()), self.metadata]
        return call(Details(details, metadata), request)

    intercept_unary_unary = add
    intercept_unary_stream = add
    intercept_stream_unary = add
    intercept_stream_stream = add


class Details(grpc.ClientCallDetails):
    """The details of a call with other metadata."""

    def __init__(self, details, metadata):
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = metadata
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


def read(path):
    with open(path, "rb") as file:
        return file.read()


def token(args):
    return read(args.token_file).decode().strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="127.0.0.1:50051", help="HOST:PORT or unix:PATH")
    parser.add_argument("--store", required=True, help="store to work on")
    parser.add_argument("--ca", help="PEM file of the CA; with it the channel is encrypted")
    parser.add_argument("--cert", help="PEM file of our certificate, for a service that wants one")
    parser.add_argument("--key", help="PEM file of its key")
    parser.add_argument("--token-file", help="file with the token")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(connect(args)) for _ in range(CONNECTIONS)]
        example = Example(channels, args.store)
        for step in (
            example.stores,
            example.put_stream,
            example.get_stream,
            example.small,
            example.many,
            example.parallel,
            example.conditional,
            example.list,
            example.errors,
            example.deadline,
            example.sync,
            example.delete,
        ):
            step()
            print(f"ok {step.__name__}")
    print("all done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
