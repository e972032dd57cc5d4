package certs

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

const (
	// registering is how long a kubelet has run before its node is missed: one that has just started makes it itself.
	registering = 10 * time.Minute
	// lostAgain is the time between the two questions: of the first a server may know nothing that is just starting or ending.
	lostAgain = 30 * time.Second
)

// LostOptions are the options of NoteLost.
type LostOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root string
	// Running returns how long the kubelet has run; 0 if it does not.
	Running func(ctx context.Context) (time.Duration, error)
	// Exists asks the API server whether it has this machine's node.
	Exists func(ctx context.Context) (bool, error)
	// Sleep is time.Sleep that ends with ctx.
	Sleep func(ctx context.Context, d time.Duration) error
}

// NoteLost notes that the kubelet is to be started again where the API server has lost this machine's node, and reports whether it has.
// A kubelet makes its node once after its start (registerWithAPIServer in pkg/kubelet/kubelet_node_status.go): after a restore of etcd
// from a backup that is older than the node, or when somebody has deleted it, the machine would do nothing more, without a word. No
// pod ends with the kubelet (KillMode=process).
//
// A node that was deleted on purpose comes back too, and that does no harm. If its machine is about to end, a master cordons it and
// evicts its pods once more, and in a cloud a master deletes the node when the machine is gone. Without a cloud it stays, not Ready,
// as it would if it had not been deleted.
func NoteLost(ctx context.Context, o LostOptions) (bool, error) {
	switch runs, err := o.Running(ctx); {
	case err != nil:
		return false, err
	case runs < registering:
		return false, nil
	}
	for i := range 2 {
		if i > 0 {
			if err := o.Sleep(ctx, lostAgain); err != nil {
				return false, err
			}
		}
		if exists, err := o.Exists(ctx); err != nil || exists {
			return false, err
		}
	}
	return true, noteRestart(o.Root, pki.DirKubelet)
}

// noteRestart notes that a daemon is to be started again.
func noteRestart(root, dir string) error {
	if err := os.WriteFile(restartFile(root, dir), nil, 0o600); err != nil {
		return fmt.Errorf("noting that %s is to be started again: %w", dir, err)
	}
	return nil
}
