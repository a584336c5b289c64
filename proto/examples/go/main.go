// Calls of lumpscope.v1 from Go, with grpc-go and the shipped .proto files: streams, small lumps, errors with their
// details, a token, TLS, and several connections.
//
// The package lumpscope/v1 is made in this folder by `buf generate ../..`; then `go run . --server 127.0.0.1:50051
// --store disk`. It puts lumps whose ids begin with 676f ("go"), and removes them again.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	lumps "lumpscope.example/lumpscope/v1"
)

const (
	// A body may come in chunks of any size up to the service's message limit; 1 MiB is a good one.
	chunk = 1 << 20
	// Every call gets a deadline: without one a call waits for ever.
	timeout = 30 * time.Second
	// One connection is served by one processor on either side. With many calls in flight several carry more; beyond
	// four there is little to gain. Each grpc.ClientConn is a connection of its own.
	connections = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// channels are the connections to one service; each call takes the next.
type channels struct {
	stubs []lumps.LumpStoreClient
	next  atomic.Uint32
}

func connect(server string, options []grpc.DialOption) (*channels, error) {
	all := &channels{}
	for range connections {
		conn, err := grpc.NewClient(server, options...)
		if err != nil {
			return nil, err
		}
		all.stubs = append(all.stubs, lumps.NewLumpStoreClient(conn))
	}
	return all, nil
}

func (c *channels) one() lumps.LumpStoreClient {
	return c.stubs[c.next.Add(1)%uint32(len(c.stubs))]
}

// login adds the token to each call.
type login struct {
	token  string
	secure bool
}

func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + l.token}, nil
}

func (l login) RequireTransportSecurity() bool { return l.secure }

func dialOptions(ca, tokenFile string) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
		transport = credentials.NewTLS(&tls.Config{RootCAs: roots})
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// Bytes the service may send ahead; the default of 64 KiB lets it wait for every acknowledgement.
		grpc.WithInitialWindowSize(16 << 20),
		grpc.WithInitialConnWindowSize(16 << 20),
	}
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, err
		}
		// Without TLS only to this machine: the token travels in clear.
		token := login{strings.TrimSpace(string(text)), ca != ""}
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return options, nil
}

func id(number byte) *lumps.LumpId {
	raw := make([]byte, 16)
	copy(raw, "go")
	raw[15] = number
	return &lumps.LumpId{Form: &lumps.LumpId_Raw{Raw: raw}}
}

func content(number byte, length int) []byte {
	return bytes.Repeat([]byte{number, 7, number ^ 0x55}, length/3+1)[:length]
}

// put sends the header, then the body in chunks. The service compares the checksum before it stores anything.
func put(ctx context.Context, stub lumps.LumpStoreClient, header *lumps.PutHeader, body []byte) (*lumps.PutResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stream, err := stub.Put(ctx)
	if err != nil {
		return nil, err
	}
	sum := crc32.Checksum(body, castagnoli)
	header.Length, header.Crc32C = uint64(len(body)), &sum
	err = stream.Send(&lumps.PutRequest{Part: &lumps.PutRequest_Header{Header: header}})
	for err == nil && len(body) > 0 {
		n := min(chunk, len(body))
		err = stream.Send(&lumps.PutRequest{Part: &lumps.PutRequest_Chunk{Chunk: body[:n]}})
		body = body[n:]
	}
	// io.EOF: the service has answered already; CloseAndRecv tells what.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.CloseAndRecv()
}

// get reads the header, then the bytes in chunks.
func get(ctx context.Context, stub lumps.LumpStoreClient, request *lumps.GetRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stream, err := stub.Get(ctx, request)
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	header := first.GetHeader()
	body := make([]byte, 0, header.GetLength())
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		body = append(body, message.GetChunk()...)
	}
	if uint64(len(body)) != header.GetLength() {
		return nil, fmt.Errorf("%d bytes came of %d", len(body), header.GetLength())
	}
	if header.Crc32C != nil && crc32.Checksum(body, castagnoli) != header.GetCrc32C() {
		return nil, errors.New("the bytes changed on the way")
	}
	return body, nil
}

type example struct {
	*channels
	store string
}

func (e example) header(number byte) *lumps.PutHeader {
	return &lumps.PutHeader{Store: e.store, Id: id(number), Durability: lumps.Durability_DURABILITY_SYNCED}
}

// parallel puts and gets lumps at the same time, over all connections.
func (e example) parallel(ctx context.Context) error {
	var group sync.WaitGroup
	failed := make(chan error, 16)
	for number := range byte(16) {
		group.Go(func() {
			body := content(number, chunk+int(number))
			reply, err := put(ctx, e.one(), e.header(number), body)
			if err == nil && !reply.GetCreated() {
				err = errors.New("a new lump is created")
			}
			var got []byte
			if err == nil {
				got, err = get(ctx, e.one(), &lumps.GetRequest{Store: e.store, Id: id(number)})
			}
			if err == nil && !bytes.Equal(got, body) {
				err = errors.New("other bytes came back")
			}
			if err != nil {
				failed <- fmt.Errorf("lump %d: %w", number, err)
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}

func (e example) small(ctx context.Context) error {
	body := content(20, 777)
	_, err := e.one().PutSmall(ctx, &lumps.PutSmallRequest{Header: e.header(20), Body: body})
	if err != nil {
		return err
	}
	asked := &lumps.GetRequest{Store: e.store, Id: id(20)}
	reply, err := e.one().GetSmall(ctx, &lumps.GetSmallRequest{Get: asked})
	if err == nil && !bytes.Equal(reply.GetBody(), body) {
		err = errors.New("other bytes came back")
	}
	return err
}

// refused shows an error: its code, the reason for programs, the time to wait, and the id in the service's log.
func (e example) refused(ctx context.Context) error {
	var trailer metadata.MD
	asked := &lumps.HeadRequest{Store: e.store, Id: id(99)}
	_, err := e.one().Head(ctx, asked, grpc.Trailer(&trailer))
	if status.Code(err) != codes.NotFound {
		return fmt.Errorf("NotFound was expected: %w", err)
	}
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			fmt.Printf("   reason %s, request %s\n", detail.GetReason(), trailer.Get("lumpscope-request-id"))
			return nil
		case *errdetails.RetryInfo:
			fmt.Printf("   try again after %s\n", detail.GetRetryDelay().AsDuration())
		}
	}
	return errors.New("the error has no reason")
}

func (e example) remove(ctx context.Context) error {
	asked := &lumps.DeleteRangeRequest{Store: e.store, Start: id(0), End: id(255)}
	reply, err := e.one().DeleteRange(ctx, asked)
	if err == nil && reply.GetDeleted() != 17 {
		err = fmt.Errorf("%d lumps were deleted", reply.GetDeleted())
	}
	return err
}

func main() {
	server := flag.String("server", "127.0.0.1:50051", "HOST:PORT or unix:PATH")
	store := flag.String("store", "", "store to work on")
	ca := flag.String("ca", "", "PEM file of the CA; with it the connections are encrypted")
	tokenFile := flag.String("token-file", "", "file with the token")
	flag.Parse()
	options, err := dialOptions(*ca, *tokenFile)
	if err != nil {
		log.Fatal(err)
	}
	all, err := connect(*server, options)
	if err != nil {
		log.Fatal(err)
	}
	e := example{all, *store}
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	defer cancel()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"parallel", e.parallel},
		{"small", e.small},
		{"refused", e.refused},
		{"delete", e.remove},
	} {
		if err := step.run(ctx); err != nil {
			log.Fatalf("%s: %v", step.name, err)
		}
		fmt.Println("ok", step.name)
	}
	fmt.Println("all done")
}
