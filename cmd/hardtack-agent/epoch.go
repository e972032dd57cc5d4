package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
)

// epochEvery is the time between two looks for another epoch of etcd, as of the members' machines.
const epochEvery = 15 * time.Second

// watchEpochs starts this master's daemons again when etcd was restored from a backup, until ctx ends.
func (f *certsFlags) watchEpochs(ctx context.Context, s command.Streams, log *slog.Logger) {
	epochs, failed := certs.Epochs{Root: f.root, Store: f.store}, false
	for {
		changed, err := epochs.Look(ctx)
		if changed || failed { // what failed in an earlier look is tried again
			log.InfoContext(ctx, "etcd was restored from a backup: the master's daemons are started again")
			err = f.restart(ctx, s, "")
			failed = err != nil
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "after a restore of etcd the master's daemons are to be started again", "error", err)
		}
		if (clock.System{}).Sleep(ctx, epochEvery) != nil {
			return
		}
	}
}
