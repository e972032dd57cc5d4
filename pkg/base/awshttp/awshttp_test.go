package awshttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// slow is a connection on which writing the request's body takes until the answer is read, as it does when the
// writing goroutine is put aside at that moment.
type slow struct {
	net.Conn
	reading <-chan struct{}
}

func (s slow) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if bytes.Contains(p, []byte("QueueNamePrefix")) {
		<-s.reading
	}
	return n, err
}

// answer says when it is first read.
type answer struct {
	io.ReadCloser
	read func()
}

func (a answer) Read(p []byte) (int, error) {
	a.read()
	return a.ReadCloser.Read(p)
}

// watching passes answers on with a word when they are read: by then the SDK has closed the request's body.
type watching struct {
	next awshttp.Doer
	read func()
}

func (w watching) Do(r *http.Request) (*http.Response, error) {
	resp, err := w.next.Do(r)
	if err == nil {
		resp.Body = answer{resp.Body, w.read}
	}
	return resp, err
}

// call makes one call over such a connection, and returns the error of net/http's write of the request.
func call(t *testing.T, wrap func(awshttp.Doer) awshttp.Doer) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, `{"QueueUrls":[]}`)
	}))
	t.Cleanup(server.Close)
	reading := make(chan struct{})
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return slow{c, reading}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	wrote := make(chan error, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { wrote <- i.Err }})
	client := sqs.New(sqs.Options{
		Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider("K", "secret", ""),
		HTTPClient: watching{wrap(&http.Client{Transport: transport}), sync.OnceFunc(func() { close(reading) })},
	})
	prefix := "x"
	_, err := client.ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: &prefix})
	said := <-wrote
	if err != nil && said == nil {
		t.Errorf("the call: %v", err)
	}
	return said
}

// TestRequestIsWritten would see the connection closed: a request that was sent whole is no failure.
func TestRequestIsWritten(t *testing.T) {
	if err := call(t, awshttp.Client); err != nil {
		t.Errorf("net/http says of the request that was answered: %v", err)
	}
}

// TestSDKStillNeedsThis fails once smithy-go is mended.
func TestSDKStillNeedsThis(t *testing.T) {
	if err := call(t, func(d awshttp.Doer) awshttp.Doer { return d }); !errors.Is(err, io.EOF) {
		t.Errorf("without this package net/http says %v, not %v: the SDK has been mended, so remove this package", err, io.EOF)
	}
}
