package vnet

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
)

// BenchmarkSwitch carries frames from one machine to another, as fast as the sender writes them: what a card's queue
// would lose is lost here too, and reported.
func BenchmarkSwitch(b *testing.B) {
	for _, size := range []int{64, 1500, 9001} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			n := newNetwork(b, Config{})
			from, to := attach(b, n, "a", "10.1.0.10"), attach(b, n, "b", "10.1.0.11")
			out, in := plug(b, from), plug(b, to)
			frame := datagram(from.mac, to.mac, "10.1.0.10:9", "10.1.0.11:9", strings.Repeat("x", size-28))
			// As QEMU does: many frames in one write.
			var burst []byte
			for range 16 {
				burst = append(binary.BigEndian.AppendUint32(burst, uint32(len(frame))), frame...)
			}
			received := make(chan int64)
			go func() {
				total, _ := io.Copy(io.Discard, in.Conn)
				received <- total
			}()
			b.SetBytes(int64(len(frame)))
			sent := int64(0)
			b.ResetTimer()
			for b.Loop() {
				if sent%16 == 0 {
					if _, err := out.Write(burst); err != nil {
						b.Fatal(err)
					}
				}
				sent++
			}
			want := (sent + 15) / 16 * 16
			eventually(b, "all frames", func() bool { return from.Stats().Received == want })
			eventually(b, "the queue to empty", func() bool { return to.Stats().Sent+to.Stats().Lost == want })
			b.StopTimer()
			b.ReportMetric(float64(to.Stats().Sent)/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(100*float64(to.Stats().Lost)/float64(want), "%lost")
			_ = in.Close()
			if total := <-received; total < to.Stats().Sent*int64(len(frame)) {
				b.Errorf("received %d bytes of %d frames", total, to.Stats().Sent)
			}
		})
	}
}

// BenchmarkTCP carries bytes between two machines' TCP, and from a machine to a service of the gateway.
func BenchmarkTCP(b *testing.B) {
	n := newNetwork(b, Config{})
	from, to := newGuest(b, n, attach(b, n, "a", "10.1.0.10")), newGuest(b, n, attach(b, n, "b", "10.1.0.11"))
	service, err := n.Listen(netip.MustParseAddrPort("10.1.0.3:80"))
	if err != nil {
		b.Fatal(err)
	}
	peer := to.listen(b, 80)
	for name, c := range map[string]struct {
		accept io.Closer
		addr   string
	}{"machine": {peer, "10.1.0.11:80"}, "service": {service, "10.1.0.3:80"}} {
		b.Run(name, func(b *testing.B) {
			conn, err := from.dial(within(b), c.addr)
			if err != nil {
				b.Fatal(err)
			}
			listener := service
			if name == "machine" {
				listener = peer
			}
			other, err := listener.Accept()
			if err != nil {
				b.Fatal(err)
			}
			got := make(chan int64)
			go func() {
				total, _ := io.Copy(io.Discard, other)
				got <- total
			}()
			chunk := make([]byte, 64<<10)
			b.SetBytes(int64(len(chunk)))
			sent := int64(0)
			for b.Loop() {
				if _, err := conn.Write(chunk); err != nil {
					b.Fatal(err)
				}
				sent += int64(len(chunk))
			}
			_ = conn.Close()
			if total := <-got; total != sent {
				b.Errorf("received %d bytes of %d", total, sent)
			}
			_ = other.Close()
		})
	}
}
