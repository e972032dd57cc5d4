package vnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
)

// anInstance is the region of one instance.
type anInstance struct{ hops int }

func (a anInstance) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: "i-1", HopLimit: a.hops}, true
}

func (anInstance) Credentials(context.Context, string, string) (metadata.Credentials, error) {
	return metadata.Credentials{}, errors.New("no role")
}

// TestHopLimit looks at how far a token travels: not beyond the machine, while all else does.
func TestHopLimit(t *testing.T) {
	for hops, want := range map[int]uint8{0: 1, 2: 2} {
		n := newNetwork(t, Config{})
		g := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
		listener, err := n.Listen(metadata.Address())
		if err != nil {
			t.Fatal(err)
		}
		service := metadata.New(anInstance{hops}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { _ = service.Serve(ctx, listener) })
		var mu sync.Mutex
		var lives []uint8 // of packets with content, by answer
		watch := func(frame []byte) {
			if header.Ethernet(frame).Type() != header.IPv4ProtocolNumber {
				return
			}
			ip := header.IPv4(frame[header.EthernetMinimumSize:])
			if seg := header.TCP(ip.Payload()); len(seg) > int(seg.DataOffset()) {
				mu.Lock()
				defer mu.Unlock()
				lives = append(lives, ip.TTL())
			}
		}
		g.watch.Store(&watch)
		transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return g.dial(ctx, addr) }}
		client := &http.Client{Transport: transport}
		request := func(method, path, key, value string) string {
			r, err := http.NewRequestWithContext(within(t), method, "http://169.254.169.254/latest/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(key, value)
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s, %v", path, res.Status, err)
			}
			return string(body)
		}
		token := request("PUT", "api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
		if id := request("GET", "meta-data/instance-id", "X-aws-ec2-metadata-token", token); id != "i-1" {
			t.Errorf("instance %q", id)
		}
		_ = request("PUT", "api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
		mu.Lock()
		if len(lives) != 3 || lives[0] != want || lives[1] != farHopsOfMetadata || lives[2] != want {
			t.Errorf("hop limit %d: answers travel %v hops, want %d, %d, %d", hops, lives, want, farHopsOfMetadata, want)
		}
		mu.Unlock()
		transport.CloseIdleConnections()
		cancel()
		serving.Wait()
	}
}

// farHopsOfMetadata is the hop limit of answers without a token.
const farHopsOfMetadata = 64
