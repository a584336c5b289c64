import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnsafeByteOperations;
import com.google.rpc.ErrorInfo;
import io.grpc.ClientInterceptor;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32C;
import lumpscope.v1.LumpStoreGrpc;
import lumpscope.v1.LumpStoreOuterClass.ByteRange;
import lumpscope.v1.LumpStoreOuterClass.DeleteRangeRequest;
import lumpscope.v1.LumpStoreOuterClass.GetHeader;
import lumpscope.v1.LumpStoreOuterClass.GetRequest;
import lumpscope.v1.LumpStoreOuterClass.GetResponse;
import lumpscope.v1.LumpStoreOuterClass.GetSmallRequest;
import lumpscope.v1.LumpStoreOuterClass.HeadRequest;
import lumpscope.v1.LumpStoreOuterClass.PutHeader;
import lumpscope.v1.LumpStoreOuterClass.PutRequest;
import lumpscope.v1.LumpStoreOuterClass.PutResponse;
import lumpscope.v1.LumpStoreOuterClass.PutSmallRequest;
import lumpscope.v1.Types.Durability;
import lumpscope.v1.Types.LumpId;

/**
 * Calls of lumpscope.v1 from Java, with grpc-java and the shipped .proto files: streams, small lumps, errors with their
 * details, a token, TLS, and several connections. Arguments: HOST:PORT, the store, and in any order "ca=FILE" and
 * "token-file=FILE". It puts lumps whose ids begin with 6a61 ("ja"), and removes them again.
 */
public final class LumpscopeExample implements AutoCloseable {
    /** A body may come in chunks of any size up to the service's message limit; 1 MiB is a good one. */
    private static final int CHUNK = 1 << 20;

    /** Every call gets a deadline, in seconds: without one a call waits for ever. */
    private static final int TIMEOUT = 30;

    /**
     * One connection is served by one processor on either side. With many calls in flight several carry more; beyond
     * four there is little to gain. Each ManagedChannel is a connection of its own.
     */
    private static final int CONNECTIONS = 4;

    private final List<ManagedChannel> channels = new ArrayList<>();
    private final AtomicInteger next = new AtomicInteger();
    private final ClientInterceptor[] interceptors;
    private final String store;

    private LumpscopeExample(String server, String store, String ca, String tokenFile) throws Exception {
        this.store = store;
        var credentials = ca == null
                ? InsecureChannelCredentials.create()
                : TlsChannelCredentials.newBuilder().trustManager(new File(ca)).build();
        for (int n = 0; n < CONNECTIONS; n++) {
            channels.add(Grpc.newChannelBuilder(server, credentials).build());
        }
        if (tokenFile == null) {
            interceptors = new ClientInterceptor[0];
        } else {
            // Without TLS only to this machine: the token travels in clear.
            var login = new Metadata();
            var key = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
            login.put(key, "Bearer " + Files.readString(Path.of(tokenFile)).strip());
            interceptors = new ClientInterceptor[] {MetadataUtils.newAttachHeadersInterceptor(login)};
        }
    }

    /** The next connection. */
    private ManagedChannel channel() {
        return channels.get(Math.floorMod(next.getAndIncrement(), channels.size()));
    }

    private LumpStoreGrpc.LumpStoreBlockingStub blocking() {
        return LumpStoreGrpc.newBlockingStub(channel())
                .withInterceptors(interceptors)
                .withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    }

    private LumpStoreGrpc.LumpStoreStub streaming() {
        return LumpStoreGrpc.newStub(channel())
                .withInterceptors(interceptors)
                .withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    }

    private static LumpId id(int number) {
        byte[] raw = new byte[16];
        raw[0] = 'j';
        raw[1] = 'a';
        raw[15] = (byte) number;
        return LumpId.newBuilder().setRaw(ByteString.copyFrom(raw)).build();
    }

    private static byte[] content(int number, int length) {
        byte[] body = new byte[length];
        for (int at = 0; at < length; at++) {
            body[at] = (byte) (at * 31 + number);
        }
        return body;
    }

    private static int crc32c(byte[] bytes) {
        var sum = new CRC32C();
        sum.update(bytes);
        return (int) sum.getValue();
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException("FAILED: " + what);
        }
    }

    private PutHeader.Builder header(int number) {
        return PutHeader.newBuilder().setStore(store).setId(id(number)).setDurability(Durability.DURABILITY_SYNCED);
    }

    /**
     * Sends the header, then the body in chunks, each when the connection has room for it. The service compares the
     * checksum before it stores anything.
     */
    private PutResponse put(int number, byte[] body) {
        var done = new CompletableFuture<PutResponse>();
        var header = header(number).setLength(body.length).setCrc32C(crc32c(body));
        streaming().put(new ClientResponseObserver<PutRequest, PutResponse>() {
            private int sent = -1;

            @Override
            public void beforeStart(ClientCallStreamObserver<PutRequest> call) {
                call.setOnReadyHandler(() -> {
                    while (call.isReady() && sent < body.length) {
                        var message = PutRequest.newBuilder();
                        if (sent < 0) {
                            message.setHeader(header);
                            sent = 0;
                        } else {
                            int length = Math.min(CHUNK, body.length - sent);
                            message.setChunk(UnsafeByteOperations.unsafeWrap(body, sent, length));
                            sent += length;
                        }
                        call.onNext(message.build());
                        if (sent == body.length) {
                            call.onCompleted();
                        }
                    }
                });
            }

            @Override
            public void onNext(PutResponse reply) {
                done.complete(reply);
            }

            @Override
            public void onError(Throwable error) {
                done.completeExceptionally(error);
            }

            @Override
            public void onCompleted() {}
        });
        return done.join();
    }

    /** Reads the header, then the bytes in chunks. */
    private byte[] get(GetRequest request) {
        var body = new ByteArrayOutputStream();
        GetHeader header = null;
        var replies = blocking().get(request);
        while (replies.hasNext()) {
            GetResponse reply = replies.next();
            if (reply.hasHeader()) {
                header = reply.getHeader();
            } else {
                body.writeBytes(reply.getChunk().toByteArray());
            }
        }
        byte[] bytes = body.toByteArray();
        check(header != null && bytes.length == header.getLength(), "all bytes came");
        check(!header.hasCrc32C() || header.getCrc32C() == crc32c(bytes), "the bytes are those that were sent");
        return bytes;
    }

    /** Puts and gets lumps at the same time, over all connections. */
    private void parallel() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(16);
        try {
            List<Future<?>> calls = new ArrayList<>();
            for (int n = 0; n < 16; n++) {
                int number = n;
                calls.add(threads.submit(() -> {
                    byte[] body = content(number, CHUNK + number);
                    check(put(number, body).getCreated(), "a new lump is created");
                    var request = GetRequest.newBuilder().setStore(store).setId(id(number));
                    check(Arrays.equals(get(request.build()), body), "bytes of a get");
                    request.setRange(ByteRange.newBuilder().setOffset(CHUNK - 1).setLength(1));
                    check(get(request.build())[0] == body[CHUNK - 1], "bytes of a range");
                }));
            }
            for (Future<?> call : calls) {
                call.get();
            }
        } finally {
            threads.shutdown();
        }
    }

    private void small() {
        var body = ByteString.copyFrom(content(20, 777));
        blocking().putSmall(PutSmallRequest.newBuilder().setHeader(header(20)).setBody(body).build());
        var request = GetRequest.newBuilder().setStore(store).setId(id(20));
        var reply = blocking().getSmall(GetSmallRequest.newBuilder().setGet(request).build());
        check(reply.getBody().equals(body), "bytes of a small get");
    }

    /** Shows an error: its code, the reason for programs, and the id in the service's log. */
    private void refused() throws InvalidProtocolBufferException {
        var request = HeadRequest.newBuilder().setStore(store).setId(id(99)).build();
        try {
            blocking().head(request);
        } catch (StatusRuntimeException error) {
            check(error.getStatus().getCode() == Status.Code.NOT_FOUND, error.toString());
            var key = Metadata.Key.of("lumpscope-request-id", Metadata.ASCII_STRING_MARSHALLER);
            var requestId = error.getTrailers().get(key);
            for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
                if (detail.is(ErrorInfo.class)) {
                    var reason = detail.unpack(ErrorInfo.class).getReason();
                    System.out.println("   reason " + reason + ", request " + requestId);
                    return;
                }
            }
            throw new IllegalStateException("FAILED: the error has no reason");
        }
        throw new IllegalStateException("FAILED: no NOT_FOUND");
    }

    private void delete() {
        var request = DeleteRangeRequest.newBuilder().setStore(store).setStart(id(0)).setEnd(id(255));
        check(blocking().deleteRange(request.build()).getDeleted() == 17, "deleted a range");
    }

    @Override
    public void close() {
        channels.forEach(ManagedChannel::shutdownNow);
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void run(String name, Step step) throws Exception {
        step.run();
        System.out.println("ok " + name);
    }

    private static String option(String[] args, String name) {
        return Arrays.stream(args)
                .filter(arg -> arg.startsWith(name + "="))
                .map(arg -> arg.substring(name.length() + 1))
                .findFirst()
                .orElse(null);
    }

    public static void main(String[] args) throws Exception {
        var ca = option(args, "ca");
        var tokenFile = option(args, "token-file");
        try (var example = new LumpscopeExample(args[0], args[1], ca, tokenFile)) {
            run("parallel", example::parallel);
            run("small", example::small);
            run("refused", example::refused);
            run("delete", example::delete);
        }
        System.out.println("all done");
    }
}
