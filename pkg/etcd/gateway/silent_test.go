package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// An etcd that waits for the others listens and answers nothing. Questions to it must not leave their connections behind, even
// while the client is kept.
func TestQuestionsToASilentMemberEnd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ended := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetReadDeadline(time.Now().Add(2 * handshake))
		for buffer := make([]byte, 4096); err == nil; {
			_, err = conn.Read(buffer)
		}
		ended <- err
	}()
	c := New(Config{URL: "https://" + l.Addr().String(), TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); err == nil {
		t.Error("a member that says nothing has answered")
	}
	if err := <-ended; err == nil || err.Error() != "EOF" {
		t.Errorf("the connection ends with %v; the client should have closed it after %s", err, handshake)
	}
}
