// Package wait delays the start of a unit until the servers and files that it needs are there.
//
// Its rule: only a verified answer ends a wait, never a timeout, and the unit's status always says what is missing,
// address by address. Names are resolved again at every attempt and nothing is cached, so that a machine that starts
// before its masters finds them once they exist. All addresses are tried in parallel, so that servers that never answer
// do not delay the others.
package wait

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Resolver resolves names, as *net.Resolver does. It must not cache answers.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Prober requests a URL from one address. It returns nil only for an answer 200 of a server whose certificate is valid
// for the URL's host; other errors have a reason. It must be safe for concurrent use.
type Prober interface {
	Probe(ctx context.Context, target *url.URL, at netip.AddrPort) error
}

// Announced is the Prober for an address alone: every one is good that a machine may have. Records of a name without members
// have one of those that are set aside for documentation (RFC 5737, RFC 3849).
type Announced struct{}

var documentation = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}

// Probe asks nobody.
func (Announced) Probe(_ context.Context, _ *url.URL, at netip.AddrPort) error {
	if slices.ContainsFunc(documentation, func(p netip.Prefix) bool { return p.Contains(at.Addr()) }) {
		return reason.Errorf(reason.DNS, "no server is announced yet: the name has its placeholder")
	}
	return nil
}

// The defaults of Options.
const (
	// DefaultAttempt bounds one question: a TLS handshake takes seconds on an emulated processor that boots.
	DefaultAttempt = 10 * time.Second
	// DefaultMinWait and DefaultMaxWait bound the wait between two tries, which is drawn from half to one and a
	// half of what the backoff says. A boot waits for it, and a thousand machines that wait together
	// are some 300 questions a second to a master that comes up.
	DefaultMinWait = 100 * time.Millisecond
	DefaultMaxWait = 3 * time.Second
)

// Options are the options of Run. Durations of 0 are the defaults.
type Options struct {
	// Files must exist, be readable and not be empty; of each inner list one file is enough.
	Files [][]string
	// Targets are URLs: one of them must answer, at one of its addresses. Empty is no wait for an answer.
	Targets          []*url.URL
	Resolver         Resolver
	Prober           Prober
	Attempt          time.Duration
	MinWait, MaxWait time.Duration
	// Status receives a text about what is missing whenever that changes; may be nil.
	Status func(text string)
	// Log receives the same; may be nil.
	Log *slog.Logger
}

// Run waits until everything is there, or until ctx ends; the error then says what was missing.
func Run(ctx context.Context, o Options) error {
	w := newWaiter(o)
	if err := w.files(ctx); err != nil {
		return err
	}
	if len(o.Targets) == 0 {
		return nil
	}
	return w.targets(ctx)
}

type waiter struct {
	Options
	last string
}

func newWaiter(o Options) *waiter {
	if o.Attempt == 0 {
		o.Attempt = DefaultAttempt
	}
	if o.MinWait == 0 {
		o.MinWait = DefaultMinWait
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	if o.Status == nil {
		o.Status = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &waiter{Options: o}
}

// report reports what is missing, unless that was the last report.
func (w *waiter) report(ctx context.Context, err error) {
	text := reason.Status(err)
	if text == w.last {
		return
	}
	w.last = text
	w.Status(text)
	w.Log.InfoContext(ctx, "waiting", "reason", string(reason.Of(err)), "cause", err.Error())
}

// targets tries all of them until one answers.
func (w *waiter) targets(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = w.MinWait, w.MaxWait
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := w.try(ctx)
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err // what the end of ctx cuts short says less than what came before it
			w.report(ctx, err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w, while waiting: %w", context.Cause(ctx), last)
	}
	return err
}

// try asks every address of every target at the same time; the first good answer ends it.
func (w *waiter) try(ctx context.Context) error {
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(w.Targets))
	good := false
	for i, target := range w.Targets {
		wg.Go(func() {
			err := w.tryTarget(tctx, target)
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
			if err == nil {
				good = true
				cancel()
			}
		})
	}
	wg.Wait()
	if good {
		return nil
	}
	return nearestError(errs)
}

// tryTarget resolves the host of one target and asks all its addresses.
func (w *waiter) tryTarget(ctx context.Context, target *url.URL) error {
	addrs, err := w.resolve(ctx, target)
	if err != nil {
		return err
	}
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(addrs))
	for i, at := range addrs {
		go func() {
			actx, done := context.WithTimeoutCause(tctx, w.Attempt, fmt.Errorf("no answer within %v", w.Attempt))
			defer done()
			answers <- answer{i, w.Prober.Probe(actx, target, at)}
		}()
	}
	errs := make([]error, len(addrs))
	for range addrs {
		a := <-answers
		if a.err == nil {
			return nil
		}
		errs[a.i] = &reason.Error{Reason: reason.Of(a.err), Err: fmt.Errorf("%s: %w", addrs[a.i].Addr(), a.err)}
	}
	err = nearestError(errs)
	return &reason.Error{Reason: reason.Of(err), Err: fmt.Errorf("%s: %w", target, err)}
}

// resolve returns every address of the target's host, in order, with its port.
func (w *waiter) resolve(ctx context.Context, target *url.URL) ([]netip.AddrPort, error) {
	port, err := portOf(target)
	if err != nil {
		return nil, err
	}
	if addr, err := netip.ParseAddr(target.Hostname()); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(addr, port)}, nil
	}
	rctx, cancel := context.WithTimeout(ctx, w.Attempt)
	defer cancel()
	// The name as the daemons ask for it: with a dot at its end /etc/hosts would not be looked at.
	addrs, err := w.Resolver.LookupNetIP(rctx, "ip", target.Hostname())
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		var dns *net.DNSError
		if errors.As(err, &dns) {
			err = errors.New(dnsText(dns)) // without the server's ports and the name again
		}
		return nil, reason.Errorf(reason.DNS, "%s: resolving %s: %w", target, target.Hostname(), err)
	}
	var out []netip.AddrPort
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(a.Unmap(), port))
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}

// dnsText is the text of a resolver's error, the same at every attempt with the same outcome.
func dnsText(e *net.DNSError) string {
	switch {
	case e.IsNotFound:
		return "no such name or no address (asked of " + server(e) + ")"
	case e.IsTimeout:
		return "no answer from " + server(e)
	}
	return e.Err + " (asked of " + server(e) + ")"
}

func server(e *net.DNSError) string {
	if e.Server == "" {
		return "the system's resolver"
	}
	return e.Server
}

func portOf(target *url.URL) (uint16, error) {
	switch text := target.Port(); {
	case text != "":
		port, err := strconv.ParseUint(text, 10, 16)
		return uint16(port), err
	case target.Scheme == "http":
		return 80, nil
	}
	return 443, nil
}

// nearness orders reasons by how near the wait is to its end: of several addresses' errors the nearest is
// the one to look at.
var nearness = []reason.Reason{reason.NotReady, reason.Clock, reason.Untrusted, reason.Unreachable, reason.DNS}

// nearestError joins errors into one line that has the reason of the nearest.
func nearestError(errs []error) error {
	var texts []string
	best := len(nearness)
	r := reason.Of(errs[0])
	for _, err := range errs {
		texts = append(texts, err.Error())
		if i := slices.Index(nearness, reason.Of(err)); i >= 0 && i < best {
			best, r = i, nearness[i]
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return reason.Errorf(r, "%s", strings.Join(texts, "; "))
}
