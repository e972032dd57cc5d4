package ami

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// cleanupTimeout bounds the removal of an unfinished publication.
const cleanupTimeout = time.Minute

// abandon removes the unfinished snapshot and image, also if ctx has ended.
func (w *publication) abandon(ctx context.Context) error {
	if w.journal == nil {
		return nil
	}
	if w.request.Keep {
		w.c.Log.Warn("kept for another try", "snapshot", w.journal.done.Snapshot, "journal", w.journal.path)
		return w.journal.close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := w.discard(ctx); err != nil {
		// The journal stays, for the next attempt.
		return errors.Join(err, w.journal.close())
	}
	w.result.Image, w.result.Snapshot = "", ""
	return w.journal.remove()
}

// discard removes the image and the snapshot, also those whose creation was not confirmed.
func (w *publication) discard(ctx context.Context) error {
	snapshot := w.journal.done.Snapshot
	if w.starting {
		// The call may have been carried out and its answer lost: the same call again says what it has made.
		var err error
		if snapshot, err = w.c.Blocks.Start(ctx, w.journal.Start); err != nil {
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
	}, backoff.WithMaxElapsedTime(w.c.ConsistencyWait))
	return err
}

func (w *publication) delete(ctx context.Context, snapshot string) error {
	if err := w.c.Snapshots.DeleteSnapshot(ctx, snapshot); err != nil {
		return fmt.Errorf("snapshot %s is left: %w", snapshot, err)
	}
	return nil
}

// deregister removes the images that are shown to have the snapshot.
func (w *publication) deregister(ctx context.Context, snapshot string) error {
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
