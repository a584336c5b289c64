// The clients of Go, with their defaults: s3-go-clients manager|transfermanager URL ACCESS SECRET BUCKET.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A client moves bytes under a key there and back.
type client interface {
	up(bucket, key string, body []byte) error
	down(bucket, key string) ([]byte, error)
}

type old struct{ s3 *s3.Client }

func (c old) up(bucket, key string, body []byte) error {
	put := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}
	_, err := manager.NewUploader(c.s3).Upload(context.Background(), put)
	return err
}

func (c old) down(bucket, key string) ([]byte, error) {
	buffer := manager.NewWriteAtBuffer(nil)
	get := &s3.GetObjectInput{Bucket: &bucket, Key: &key}
	_, err := manager.NewDownloader(c.s3).Download(context.Background(), buffer, get)
	return buffer.Bytes(), err
}

type current struct{ transfer *transfermanager.Client }

func (c current) up(bucket, key string, body []byte) error {
	put := &transfermanager.UploadObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}
	_, err := c.transfer.UploadObject(context.Background(), put)
	return err
}

func (c current) down(bucket, key string) ([]byte, error) {
	buffer := manager.NewWriteAtBuffer(nil)
	get := &transfermanager.DownloadObjectInput{Bucket: &bucket, Key: &key, WriterAt: buffer}
	if _, err := c.transfer.DownloadObject(context.Background(), get); err != nil {
		return nil, err
	}
	streamed, err := c.transfer.GetObject(context.Background(), &transfermanager.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	again, err := io.ReadAll(streamed.Body)
	if err == nil && !bytes.Equal(again, buffer.Bytes()) {
		err = fmt.Errorf("%s: other bytes in a stream", key)
	}
	return buffer.Bytes(), err
}

func try(name, url, access, secret, bucket string) error {
	s3client := s3.New(s3.Options{
		BaseEndpoint: &url, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(access, secret, ""),
	})
	var c client = old{s3client}
	if name == "transfermanager" {
		c = current{transfermanager.New(s3client)}
	}
	ctx := context.Background()
	if _, err := s3client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		return err
	}
	for _, size := range []int{0, 1, 5 << 20, 40<<20 + 7} {
		body, key := make([]byte, size), fmt.Sprintf("size %d", size)
		for n := range body {
			body[n] = byte(n * 7 >> 3)
		}
		if err := c.up(bucket, key, body); err != nil {
			return fmt.Errorf("up %d: %w", size, err)
		}
		back, err := c.down(bucket, key)
		if err != nil {
			return fmt.Errorf("down %d: %w", size, err)
		}
		if !bytes.Equal(back, body) {
			return fmt.Errorf("%s: other bytes", key)
		}
		if _, err := s3client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key}); err != nil {
			return err
		}
	}
	_, err := s3client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String(bucket)})
	return err
}

// Prints the version of a module that is built in.
func version(name string) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasSuffix(module.Path, "/"+name) {
			fmt.Println(module.Version)
		}
	}
}

func main() {
	if os.Args[1] == "version" {
		version(os.Args[2])
		return
	}
	if err := try(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
