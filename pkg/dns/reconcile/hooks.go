package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// finishHooks completes the hooks of the machines that wait to be terminated and have left the records
// for longer than any resolver may still answer with them. For the others it asks to be called again.
func (r *call) finishHooks(ctx context.Context, v view) error {
	if r.c.Hooks == nil {
		return nil
	}
	published := addresses(r.managed(v.have))
	var failures []error
	for _, g := range v.fleet.Groups {
		for _, m := range g.Members {
			if m.Lifecycle != record.TerminatingWait {
				continue
			}
			h := r.judgeHook(v, published, m)
			h.Group = g.Name
			if h.State == HookDone {
				if err := r.complete(ctx, h); err != nil {
					h.State = HookFailed
					failures = append(failures, err)
				}
			}
			r.addHook(h)
		}
	}
	return errors.Join(failures...)
}

// judgeHook decides about a machine in Terminating:Wait: HookDone means that its hook may be completed now.
func (r *call) judgeHook(v view, published map[string]int, m record.Member) HookReport {
	h := HookReport{InstanceID: m.InstanceID}
	if slices.ContainsFunc(addressesOf(m), func(ip string) bool { return published[ip] > 0 }) {
		return HookReport{InstanceID: m.InstanceID, State: HookHeld}
	}
	left := r.c.Clock.Now() // at the earliest, where a generation had no room for it
	if v.at.find(m.InstanceID) >= 0 {
		left = v.at.leftBy(m.InstanceID)
	}
	h.Due = left.Add(r.c.Policy.TTL + r.c.Propagation)
	h.State = HookDone
	if h.Due.After(r.c.Clock.Now()) {
		h.State = HookWaiting
	}
	return h
}

// addressesOf returns the addresses by which a machine may be published.
func addressesOf(m record.Member) []string {
	var out []string
	for _, ip := range []netip.Addr{m.Private, m.Private6, m.Public} {
		if ip.IsValid() {
			out = append(out, ip.String())
		}
	}
	return out
}

func (r *call) complete(ctx context.Context, h HookReport) error {
	_, err := retry(ctx, r, func() (struct{}, error) {
		r.report.Calls.Hooks++
		return struct{}{}, r.c.Hooks.Complete(ctx, h.Group, h.InstanceID)
	})
	if err != nil {
		return fmt.Errorf("completing the hook of %s (its group %s goes on by itself when the hook's time is over): %w",
			h.InstanceID, h.Group, err)
	}
	return nil
}

// addHook adds a machine to the report, and moves the time to be called again forward to its due time.
func (r *call) addHook(h HookReport) {
	r.report.Hooks = append(r.report.Hooks, h)
	if h.State == HookHeld {
		r.log.Warn("a terminating machine is the last of its record and stays published", "instance", h.InstanceID, "group", h.Group)
	}
	if h.State == HookWaiting && (r.report.CallAgainAt.IsZero() || h.Due.Before(r.report.CallAgainAt)) {
		r.report.CallAgainAt = h.Due
	}
}
