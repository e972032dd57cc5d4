package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// cleaning is how long the removal of what was begun may take.
const cleaning = time.Minute

// abandon removes what was begun. ctx may have ended.
func (w *work) abandon(ctx context.Context) error {
	if w.journal == nil {
		return nil
	}
	if w.request.Keep {
		w.c.Log.Warn("kept for another try", "snapshot", w.journal.done.Snapshot, "journal", w.journal.path)
		return w.journal.close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	if err := w.discard(ctx); err != nil {
		// The journal stays: the next try knows what there is.
		return errors.Join(err, w.journal.close())
	}
	w.result.Image, w.result.Snapshot = "", ""
	return w.journal.remove()
}

// discard removes image and snapshot, also those of which we have not heard.
func (w *work) discard(ctx context.Context) error {
	snapshot := w.journal.done.Snapshot
	if w.starting {
		// The call may have been carried out and its answer lost: the same call again says what it has made.
		var err error
		if snapshot, err = w.c.Snapshots.Start(ctx, w.journal.Start); err != nil {
			return fmt.Errorf("finding out whether a snapshot was started: %w", err)
		}
	}
	if snapshot == "" {
		return nil
	}
	if !w.registering {
		return w.delete(ctx, snapshot)
	}
	// An image that was just registered may not be shown yet; that its snapshot is in use is known at once.
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, errors.Join(w.deregister(ctx, snapshot), w.delete(ctx, snapshot))
	}, backoff.WithMaxElapsedTime(w.c.Settle))
	return err
}

func (w *work) delete(ctx context.Context, snapshot string) error {
	if err := w.c.Keeper.DeleteSnapshot(ctx, snapshot); err != nil {
		return fmt.Errorf("snapshot %s is left: %w", snapshot, err)
	}
	return nil
}

// deregister removes the images that are shown to have the snapshot.
func (w *work) deregister(ctx context.Context, snapshot string) error {
	images, err := w.c.Images.Find(ctx, map[string]string{TagDigest: w.result.Digest.String()})
	if err != nil {
		return fmt.Errorf("finding out whether an image was registered of snapshot %s: %w", snapshot, err)
	}
	for _, i := range images {
		if i.Snapshot != snapshot {
			continue
		}
		if err := w.c.Images.Deregister(ctx, i.ID); err != nil {
			return fmt.Errorf("image %s is left: %w", i.ID, err)
		}
	}
	return nil
}
