package lab

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
)

// Runner runs machines and the network between them. Its methods may be called by several goroutines.
type Runner interface {
	// Start powers a machine on. It runs until Stop, until it ends by itself, or until ctx ends.
	Start(ctx context.Context, l Launch) (Running, error)
	// Announce replaces what the metadata service announces to a machine.
	Announce(id string, n metadata.Notices)
	// Outside lists the packets that machines sent to addresses outside of the network.
	Outside() []Outside
	// Forward listens on a port of this computer and carries each connection to the machine's port that target returns
	// at that time; it ends with ctx.
	Forward(ctx context.Context, host string, target func(context.Context) (netip.AddrPort, error)) (net.Addr, error)
	// Close takes the network down, after all machines have been stopped.
	Close() error
}

// Running is a machine that was started.
type Running interface {
	// PID is the process id of the machine.
	PID() int
	// Ended is closed when the machine has ended and its process is gone.
	Ended() <-chan struct{}
	// Stop cuts the power, waits until the machine's process and port are gone, and returns why it had ended: nil if it
	// powered itself off or was stopped.
	Stop() error
	// Shell opens the machine's second serial line, for one user at a time.
	Shell() (io.ReadWriteCloser, error)
	drives
}

// drives are the drives that are plugged into a running machine and out of it. The machine finds them by their serial
// numbers, as on EC2.
type drives interface {
	// Attach plugs a file in. It is an error if another machine has it.
	Attach(ctx context.Context, path, serial string) error
	// Detach waits until the machine has given the drive up, has ended, or ctx ends; the last two are errors.
	Detach(ctx context.Context, serial string) error
}

// Surroundings are the services that machines use.
type Surroundings struct {
	// Source answers the metadata service's and the resolver's questions.
	Source interface {
		metadata.Source
		vnet.Resolver
	}
	// AWS serves the region's APIs.
	AWS http.Handler
	// Registry serves container images.
	Registry http.Handler
	Log      *slog.Logger
}

// Launch describes a machine to start.
type Launch struct {
	// ID is its instance id, Type its instance type, Group the name of its group in the document.
	ID, Type, Group string
	Addr            netip.Addr
	// Boot is its disk.
	Boot Boot
	// Memory is in MiB.
	Memory, CPUs int
	// Volumes is how many volumes it may have at once.
	Volumes int
	// Fault is its fault, except for user data, which the source replaces.
	Fault Fault
	// Dir is the machine's directory, which exists.
	Dir string
	// Console gets every byte of the first serial line, and Journal the machine's journal as lines.
	Console, Journal io.Writer
}

// Outside counts the packets of one machine to one address outside of the network, which were dropped.
type Outside struct {
	Machine string         `json:"machine"`
	To      netip.AddrPort `json:"to"`
	Proto   string         `json:"proto"`
	Packets int64          `json:"packets"`
}
