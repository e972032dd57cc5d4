// Package metadata is the instance metadata service of the lab's machines: version 2, as EC2 documents it.
//
// Its rule: the caller is identified by the address of the connection and nothing else, and answers show the current
// state of its instance. A request that EC2 rejects is rejected, even if serving it were simpler.
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

// Address returns the address of the service on every EC2 instance.
func Address() netip.AddrPort { return netip.MustParseAddrPort("169.254.169.254:80") }

// Instance is the metadata of an instance. The paths of empty fields are not found.
type Instance struct {
	ID      string // "i-" and 17 hex digits
	Type    string // "m7i.large"
	ImageID string // "ami-…"
	Arch    string // of the image: "x86_64" or "arm64"
	// Launched is when the launch was requested.
	Launched  time.Time
	Placement Placement
	Card      Card
	// UserData is returned unchanged, at most 16 KiB on EC2; nil means none.
	UserData []byte
	// Tags are shown as with InstanceMetadataTags enabled; nil means disabled. Keys that cannot be the last element of a
	// path are left out, as EC2 does not allow them there.
	Tags map[string]string
	// Role is the name of the instance profile's role; empty means no profile.
	Role string
	// LifecycleState is the target state in the instance's group: "InService", "Terminated". Empty means no group.
	LifecycleState string
	// Spot reports whether it is a spot instance.
	Spot bool
	// HopLimit is the hop limit of responses with a token; 0 means 1, which reaches the machine but not its pods.
	HopLimit int
}

// Placement is the location of the instance.
type Placement struct {
	Account string // 12 digits
	Region  string
	Zone    string
}

// Card is the instance's only network interface.
type Card struct {
	Addr netip.Addr
	MAC  net.HardwareAddr
	// Subnet is the subnet's CIDR block, which is shown for the VPC too.
	Subnet netip.Prefix
	// Hostname is the private DNS name: "ip-10-1-0-12.eu-central-1.compute.internal".
	Hostname string
}

// Credentials are temporary credentials of a role.
type Credentials struct {
	AccessKeyID, SecretAccessKey, Token string
	Updated, Expires                    time.Time
}

// Source provides the metadata. It is called for every request, and must be safe for concurrent use.
type Source interface {
	// Instance returns the running instance with the address; if there is none, every request gets 404.
	Instance(addr netip.Addr) (Instance, bool)
	// Credentials returns credentials of the instance's role. On an error the machine gets EC2's answer for a role that
	// cannot be assumed.
	Credentials(ctx context.Context, instanceID, role string) (Credentials, error)
}

// Fault is a fault for requests of one instance.
type Fault struct {
	// Path is a prefix of the affected paths ("/latest/user-data"); empty means all.
	Path string
	// Status, if not 0, is the response; 401 also invalidates all tokens of the instance, as a restart of the service
	// does.
	Status int
	// Delay is the time before the response.
	Delay time.Duration
	// Half sends half of the response and closes the connection; Cut closes it without a response.
	Half, Cut bool
	// Times is the number of affected requests; 0 means all, until SetFaults is called again.
	Times int
}

// Request is a request that was handled.
type Request struct {
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"` // its id, or the address if no instance has it
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Status   int       `json:"status"` // 0: connection closed without a response
}

// maxRequests is the number of requests that are kept.
const maxRequests = 2000

// Service serves the machines of one network. It is safe for concurrent use.
type Service struct {
	source Source
	log    *slog.Logger

	mu       sync.Mutex
	tokens   map[string]token
	faults   map[string][]Fault
	notices  map[string]Notices
	requests []Request
}

type token struct {
	instance string
	ends     time.Time
}

// New returns a service; a nil log discards.
func New(source Source, log *slog.Logger) *Service {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{source: source, log: log, tokens: map[string]token{}, faults: map[string][]Fault{}, notices: map[string]Notices{}}
}

// SetFaults replaces the faults of an instance; a request meets the first one that matches its path. Without any, the
// service works again.
func (s *Service) SetFaults(instanceID string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[instanceID] = append([]Fault(nil), faults...)
}

// Requests returns the last 2000 requests, the oldest first.
func (s *Service) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Serve serves on the listener until ctx ends, then closes it and waits for all requests.
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
	_ = server.Close() // closes the remaining connections
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serving instance metadata: %w", err)
}

// hopLimiter is a connection with a settable hop limit.
type hopLimiter interface{ SetHopLimit(hops int) error }

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if limiter, ok := c.(hopLimiter); ok {
		return context.WithValue(ctx, connKey{}, limiter)
	}
	return ctx
}

// farHops is the hop limit of all responses without a token.
const farHops = 64

// answer is a response.
type answer struct {
	status int
	body   []byte
	kind   string // Content-Type; empty is text/plain
	// life is the token's lifetime in seconds; 0 means no token.
	life int
	hops int
}

func refuse(status int) answer {
	return answer{status: status, body: []byte(http.StatusText(status) + "\n"), hops: farHops}
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	instance, id, known := s.caller(r)
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
			panic(http.ErrAbortHandler) // better no response than one that can travel too far
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
	_ = http.NewResponseController(w).Flush() // otherwise nothing is sent before the connection is closed
	panic(http.ErrAbortHandler)
}

// caller returns the instance with the connection's address.
func (s *Service) caller(r *http.Request) (Instance, string, bool) {
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

// The headers of IMDSv2.
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
	a := s.document(r.Context(), instance, s.noticesOf(instance), r.URL.Path)
	a.life, a.hops = int(left/time.Second), farHops
	return a
}

// newToken handles the request for a token: PUT, with a lifetime between a second and six hours. Requests forwarded by
// a proxy are rejected.
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
