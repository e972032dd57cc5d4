// Package metadata is the instance metadata service of a lab's machines, version 2, as EC2 documents it.
//
// Its rule: an answer is for whoever asks, known by the address of the connection and nothing else, and is
// computed from the instance as it is at that moment; a request that EC2 would refuse is refused, also where
// being lenient would be simpler.
package metadata

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Address is where every EC2 instance finds the service.
func Address() netip.AddrPort { return netip.MustParseAddrPort("169.254.169.254:80") }

// Instance is what the service says about one instance. The zero value of a field that is a name means that the
// path is not found.
type Instance struct {
	ID      string // "i-" and 17 hex digits
	Type    string // "m7i.large"
	ImageID string // "ami-…"
	// Launched is when the instance was asked for.
	Launched  time.Time
	Placement Placement
	Card      Card
	// UserData is as it was given, at most 16 KiB on EC2; nil is none.
	UserData []byte
	// Tags are shown as where InstanceMetadataTags is enabled; nil is disabled. Keys that cannot be a path's last
	// part are left out, as EC2 does not allow them there.
	Tags map[string]string
	// Role is the name of the instance profile's role; empty is no profile.
	Role string
	// LifecycleState is the state that the instance's group wants it in: "InService", "Terminated". Empty is no group.
	LifecycleState string
	// HopLimit is how far the token travels; 0 means 1, the machine itself and none of its pods.
	HopLimit int
}

// Placement is where the instance runs.
type Placement struct {
	Account string // 12 digits
	Region  string
	Zone    string
}

// Card is the instance's only network card.
type Card struct {
	Addr netip.Addr
	MAC  net.HardwareAddr
	// Subnet is the network of its subnet, which is taken for the VPC's too.
	Subnet netip.Prefix
	// Hostname is its private DNS name: "ip-10-1-0-12.eu-central-1.compute.internal".
	Hostname string
}

// Credentials are those of a role for a while.
type Credentials struct {
	AccessKeyID, SecretAccessKey, Token string
	Updated, Expires                    time.Time
}

// Source is the region behind the service. It is asked at every request, by several goroutines.
type Source interface {
	// Instance is the running instance that has the address; false is none, which gets 404 for everything.
	Instance(addr netip.Addr) (Instance, bool)
	// Credentials are those of the instance's role. An error is told to the machine as EC2 tells that a role may
	// not be assumed.
	Credentials(ctx context.Context, instanceID, role string) (Credentials, error)
}

// Fault is what goes wrong with requests of one instance.
type Fault struct {
	// Path is the beginning of the paths that it is about ("/latest/user-data"); empty is all.
	Path string
	// Status, when not 0, is answered instead; 401 makes every token of the instance invalid too, as a restart of
	// the service does.
	Status int
	// Delay comes before the answer.
	Delay time.Duration
	// Half promises the whole answer, sends half of it and hangs up; Cut hangs up without any.
	Half, Cut bool
	// Times is how many requests meet it; 0 is all, until SetFaults is called again.
	Times int
}

// Request is one that was answered.
type Request struct {
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"` // its id, or the address where no instance has it
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Status   int       `json:"status"` // 0 where the service hung up
}

// maxRequests is how many of the last requests are kept.
const maxRequests = 2000

// Service answers the machines of one network. It is safe for use by several goroutines.
type Service struct {
	source Source
	log    *slog.Logger

	mu       sync.Mutex
	tokens   map[string]token
	faults   map[string][]Fault
	requests []Request
}

type token struct {
	instance string
	ends     time.Time
}

// New makes a service; a nil log discards.
func New(source Source, log *slog.Logger) *Service {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{source: source, log: log, tokens: map[string]token{}, faults: map[string][]Fault{}}
}

// SetFaults replaces the faults of an instance: the first that is about a request's path is what it meets. None ends
// all faults.
func (s *Service) SetFaults(instanceID string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[instanceID] = append([]Fault(nil), faults...)
}

// Requests lists the last 2000 requests, the oldest first.
func (s *Service) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Serve answers on the listener until ctx ends, and closes it. Nothing of it runs any more when it returns.
func (s *Service) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	_ = server.Close() // connections that are still there end with the service
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serving instance metadata: %w", err)
}

// hopLimiter is a connection whose packets can be told how far to travel.
type hopLimiter interface{ SetHopLimit(hops int) error }

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if limiter, ok := c.(hopLimiter); ok {
		return context.WithValue(ctx, connKey{}, limiter)
	}
	return ctx
}

// farHops is the hop limit of everything but tokens.
const farHops = 64

// answer is a response to be.
type answer struct {
	status int
	body   []byte
	kind   string // of content; empty is text/plain
	// life is of the token, in seconds; 0 is none.
	life int
	hops int
}

func refuse(status int) answer {
	return answer{status: status, body: []byte(http.StatusText(status) + "\n"), hops: farHops}
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	instance, id, known := s.who(r)
	fault := s.fault(id, r.URL.Path)
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	a := refuse(http.StatusNotFound)
	switch {
	case fault.Status != 0:
		a = refuse(fault.Status)
	case fault.Cut:
		a.status = 0
	case known:
		a = s.answer(r, instance)
	}
	s.keep(Request{time.Now(), id, r.Method, r.URL.Path, a.status})
	if fault.Cut {
		panic(http.ErrAbortHandler)
	}
	write(w, r, a, fault.Half)
}

func write(w http.ResponseWriter, r *http.Request, a answer, half bool) {
	if c, ok := r.Context().Value(connKey{}).(hopLimiter); ok {
		if err := c.SetHopLimit(a.hops); err != nil {
			panic(http.ErrAbortHandler) // rather no answer than one that travels too far
		}
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	if a.kind == "" {
		h.Set("Content-Type", "text/plain")
	}
	h.Set("Server", "EC2ws")
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	if a.life > 0 {
		h.Set(ttlHeader, strconv.Itoa(a.life))
	}
	w.WriteHeader(a.status)
	if !half {
		_, _ = w.Write(a.body) // a machine that is gone reads no more
		return
	}
	_, _ = w.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(w).Flush() // else nothing would leave before the hang-up
	panic(http.ErrAbortHandler)
}

// who asks: the instance that has the connection's address.
func (s *Service) who(r *http.Request) (Instance, string, bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return Instance{}, r.RemoteAddr, false
	}
	addr := from.Addr().Unmap()
	instance, ok := s.source.Instance(addr)
	if !ok {
		return Instance{}, addr.String(), false
	}
	return instance, instance.ID, true
}

func (s *Service) fault(id, path string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.faults[id]
	for i := range all {
		f := &all[i]
		if !strings.HasPrefix(path, f.Path) || f.Times < 0 {
			continue
		}
		hit := *f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				f.Times = -1 // used up
			}
		}
		if hit.Status == http.StatusUnauthorized {
			s.forget(id)
		}
		return hit
	}
	return Fault{}
}

// forget drops an instance's tokens; the caller holds the lock.
func (s *Service) forget(id string) {
	for t, owner := range s.tokens {
		if owner.instance == id {
			delete(s.tokens, t)
		}
	}
}

func (s *Service) keep(r Request) {
	s.log.Debug("metadata", "instance", r.Instance, "method", r.Method, "path", r.Path, "status", r.Status)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == maxRequests {
		s.requests = append(s.requests[:0], s.requests[maxRequests/2:]...)
	}
	s.requests = append(s.requests, r)
}

// The headers of version 2.
const (
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
)

func (s *Service) answer(r *http.Request, instance Instance) answer {
	if r.URL.Path == "/latest/api/token" {
		return s.newToken(r, instance)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return refuse(http.StatusMethodNotAllowed)
	}
	s.mu.Lock()
	t, ok := s.tokens[r.Header.Get(tokenHeader)]
	s.mu.Unlock()
	left := time.Until(t.ends)
	if !ok || t.instance != instance.ID || left <= 0 {
		return refuse(http.StatusUnauthorized)
	}
	a := s.document(r.Context(), instance, r.URL.Path)
	a.life, a.hops = int(left/time.Second), farHops
	return a
}

// newToken answers the request for a token: by PUT, with a life between a second and six hours, and not for what a
// proxy passed on.
func (s *Service) newToken(r *http.Request, instance Instance) answer {
	life, err := strconv.Atoi(r.Header.Get(ttlHeader))
	switch {
	case r.Method != http.MethodPut:
		return refuse(http.StatusMethodNotAllowed)
	case r.Header.Get("X-Forwarded-For") != "":
		return refuse(http.StatusForbidden)
	case err != nil || life < 1 || life > 21600:
		return refuse(http.StatusBadRequest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for t, owner := range s.tokens {
		if now.After(owner.ends) {
			delete(s.tokens, t)
		}
	}
	text := rand.Text() + rand.Text() + "=="
	s.tokens[text] = token{instance.ID, now.Add(time.Duration(life) * time.Second)}
	return answer{status: http.StatusOK, body: []byte(text), life: life, hops: max(1, instance.HopLimit)}
}
