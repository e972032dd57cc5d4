// Package watch passes the notices that EC2 gives a machine on to the cluster, as a condition of the machine's node.
//
// Its rule: what cannot be read is as it was. A metadata service that does not answer takes no notice back, and one notice
// that cannot be read hides no other.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

const (
	// often is the time between two looks for the notices of a spot instance: EC2's user guide recommends to look every 5
	// seconds for one of two minutes.
	often = 5 * time.Second
	// seldom is the time between two looks for scheduled events, which come days before.
	seldom = time.Minute
	// again is after how long a condition is looked at once more: a node that is made anew has none.
	again = time.Minute
	// perQuestion bounds a question to the metadata service, and perWord one to the API server.
	perQuestion = 4 * time.Second
	perWord     = 15 * time.Second
)

// Metadata is the metadata service. Get's error matches imds.ErrNotFound where there is no such path.
type Metadata interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// Node is this machine's node. Both methods may be repeated.
type Node interface {
	// Ending returns the message of notice.Condition, "" if its status is not True.
	Ending(ctx context.Context) (string, error)
	// SetEnding sets it to True with a reason and a message; with an empty message to False.
	SetEnding(ctx context.Context, reason, message string) error
}

// Watcher looks for notices.
type Watcher struct {
	Metadata Metadata
	Node     Node
	Now      func() time.Time
	Log      *slog.Logger

	// spot reports whether the instance is a spot instance, once that is known: no other has their notices.
	spot, known bool
	// notices are those of each kind, as they were read last.
	notices map[notice.Kind][]notice.Notice
	// looked is when scheduled events were looked for, and told when the node was known to show what shown is.
	looked, told time.Time
	shown        string
	// failing are the questions that failed the last time.
	failing map[string]bool
}

// Run runs until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.Step(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(w.pause()):
		}
	}
}

func (w *Watcher) pause() time.Duration {
	if w.spot || !w.known || len(w.failing) > 0 {
		return often
	}
	return seldom
}

// Step looks once, and tells the cluster what has changed.
func (w *Watcher) Step(ctx context.Context) {
	if w.notices == nil {
		w.notices, w.failing = map[notice.Kind][]notice.Notice{}, map[string]bool{}
	}
	if !w.known {
		w.lifecycle(ctx)
	}
	if w.spot {
		w.look(ctx, notice.Spot, notice.SpotPath, one(notice.ReadSpot))
		w.look(ctx, notice.Rebalance, notice.RebalancePath, one(notice.ReadRebalance))
	}
	if now := w.Now(); now.Sub(w.looked) >= seldom || w.failing[notice.ScheduledPath] {
		w.looked = now
		w.look(ctx, notice.Scheduled, notice.ScheduledPath, notice.ReadScheduled)
	}
	w.tell(ctx)
}

func one(read func([]byte) (notice.Notice, error)) func([]byte) ([]notice.Notice, error) {
	return func(content []byte) ([]notice.Notice, error) {
		n, err := read(content)
		return []notice.Notice{n}, err
	}
}

// lifecyclePath has "spot" or "on-demand" ("Instance metadata categories" in EC2's user guide).
const lifecyclePath = "meta-data/instance-life-cycle"

func (w *Watcher) lifecycle(ctx context.Context) {
	content, err := w.get(ctx, lifecyclePath)
	if w.failed(lifecyclePath, err) {
		return
	}
	w.known, w.spot = true, strings.TrimSpace(string(content)) == "spot"
	w.Log.Info("looking for notices of EC2", "spot", w.spot)
}

// look reads the notices of a kind. A path that does not exist means that there are none.
func (w *Watcher) look(ctx context.Context, kind notice.Kind, path string, read func([]byte) ([]notice.Notice, error)) {
	content, err := w.get(ctx, path)
	var all []notice.Notice
	if err == nil && len(content) > 0 {
		all, err = read(content)
	}
	if !w.failed(path, err) {
		w.notices[kind] = all
	}
}

// get returns nothing for a path that does not exist.
func (w *Watcher) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, perQuestion, fmt.Errorf("not within %v", perQuestion))
	defer cancel()
	content, err := w.Metadata.Get(ctx, path)
	if errors.Is(err, imds.ErrNotFound) {
		return nil, nil
	}
	return content, err
}

// failed reports whether there is an error, and logs its beginning and its end.
func (w *Watcher) failed(question string, err error) bool {
	switch {
	case err != nil && !w.failing[question]:
		w.failing[question] = true
		w.Log.Warn("a notice of EC2 could not be passed on, which is tried again", "question", question, "error", err)
	case err == nil && w.failing[question]:
		delete(w.failing, question)
		w.Log.Info("notices of EC2 can be passed on again", "question", question)
	}
	return err != nil
}

// tell lets the node show the notices. It asks what the node shows at the start, when that is to change, and now and then
// while there are any.
func (w *Watcher) tell(ctx context.Context) {
	var all []notice.Notice
	for _, kind := range kinds {
		all = append(all, w.notices[kind]...)
	}
	message := notice.Format(all)
	now := w.Now()
	if !w.told.IsZero() && message == w.shown && (message == "" || now.Sub(w.told) < again) {
		return
	}
	if !w.failed("the node", w.show(ctx, all)) && !slices.ContainsFunc(kinds, w.lacks) {
		w.told, w.shown = now, message
	}
}

// kinds are the kinds of notices, by their urgency.
var kinds = []notice.Kind{notice.Spot, notice.Scheduled, notice.Rebalance}

// lacks reports whether this process has never read the notices of a kind: what the node shows of them still holds.
func (w *Watcher) lacks(k notice.Kind) bool {
	_, read := w.notices[k]
	return !read && (k == notice.Scheduled || !w.known || w.spot)
}

func (w *Watcher) show(ctx context.Context, all []notice.Notice) error {
	ctx, cancel := context.WithTimeoutCause(ctx, perWord, fmt.Errorf("not within %v", perWord))
	defer cancel()
	shown, err := w.Node.Ending(ctx)
	if err != nil {
		return err
	}
	before, _ := notice.Parse(shown) // what cannot be read is written anew
	all = append(all, slices.DeleteFunc(before, func(n notice.Notice) bool { return !w.lacks(n.Kind) })...)
	message := notice.Format(all)
	if shown == message {
		return nil
	}
	reason := "NoNotice"
	if len(all) > 0 {
		reason = all[0].Reason()
	}
	if err := w.Node.SetEnding(ctx, reason, message); err != nil {
		return err
	}
	w.Log.Warn("the node shows the notices of EC2", "notices", message)
	return nil
}
