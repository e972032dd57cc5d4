package lab

import (
	"context"
	"io"
	"net"
	"net/netip"
)

// Runner runs machines and the network between them. Its methods may be called by several goroutines.
type Runner interface {
	// Start powers a machine on, which runs until Stop, until it ends by itself, or until ctx ends.
	Start(ctx context.Context, l Launch) (Running, error)
	// Outside lists what machines wanted from outside the network and did not get.
	Outside() []Outside
	// Forward listens on a port of this computer and carries every connection to the machine's port that target
	// names at that time; it ends with ctx.
	Forward(ctx context.Context, host string, target func(context.Context) (netip.AddrPort, error)) (net.Addr, error)
	// Close takes the network down; all machines have been stopped.
	Close() error
}

// Running is a machine that was started.
type Running interface {
	// PID is the machine's process.
	PID() int
	// Ended is closed when the machine has ended and its process is gone.
	Ended() <-chan struct{}
	// Stop cuts the power, waits until nothing of the machine is left, and returns why it had ended: nil for one
	// that switched itself off or was stopped.
	Stop() error
	// Shell is the machine's second serial line, to be used by one at a time.
	Shell() (io.ReadWriteCloser, error)
}

// Launch is one machine to be started.
type Launch struct {
	// ID is the instance's.
	ID, Group string
	Addr      netip.Addr
	// Boot is what it starts from.
	Boot Boot
	// Memory is in MiB.
	Memory, CPUs int
	// Fault is what is wrong with it; its user data are the source's matter.
	Fault Fault
	// Dir is the machine's directory, which is there.
	Dir string
	// Console gets every byte of the first serial line, and Journal what the machine's journal says, as
	// lines.
	Console, Journal io.Writer
	// Disks are further disks, kept when the machine ends.
	Disks []DataDisk
}

// DataDisk is a volume: the machine finds it by its serial, which is the volume's id without the hyphen, as on EC2.
type DataDisk struct {
	Path, Serial string
}

// Outside is traffic that went nowhere.
type Outside struct {
	Machine string         `json:"machine"`
	To      netip.AddrPort `json:"to"`
	Proto   string         `json:"proto"`
	Packets int64          `json:"packets"`
}
