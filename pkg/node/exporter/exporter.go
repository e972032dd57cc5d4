// Package exporter serves the metrics of a master: its own, and those of the daemons beside it that listen on 127.0.0.1 only.
//
// Its rule: who asks shows a certificate of the cluster's authority for the group pki.GroupMetrics, in the handshake, or reads
// nothing. And no value outlives its source: what could not be read in the last round is not there.
package exporter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	// round is the time between two looks at the sources, and patience how long one of them may take.
	round    = 30 * time.Second
	patience = 20 * time.Second
	// idle is how long a connection may wait for its next request: two of Prometheus' usual intervals.
	idle = 2 * time.Minute
)

// Source is something that metrics are read from.
type Source struct {
	// Name is the value of the label source.
	Name string
	// Read returns all metrics of the source. An error means that nothing is known; it is called again.
	Read func(context.Context) ([]Metric, error)
}

// Exporter is the server. All fields are needed.
type Exporter struct {
	// Dir has the files of the bundle pki.DirController, which are read for each connection: they are renewed.
	Dir     string
	Roles   role.Set
	Sources []Source
	Lists   Lists
	Now     func() time.Time
	Log     *slog.Logger
	// Turn is called after each round, for a watchdog; nil is none.
	Turn func()

	mu   sync.Mutex
	read map[string][]Metric
}

var sourceUp = newFamily("metrics_source_up", "Whether the source was read in the last round: 1 or 0.", "source")

// Run reads the sources, again and again until ctx ends. A source that hangs or fails delays no other.
func (e *Exporter) Run(ctx context.Context) {
	for {
		e.Look(ctx)
		if e.Turn != nil {
			e.Turn()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(round):
		}
	}
}

// Look reads all sources once.
func (e *Exporter) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range e.Sources {
		all.Go(func() {
			metrics, err := s.Read(ctx)
			up := 1.0
			if err != nil {
				if ctx.Err() == nil || errors.Is(err, context.DeadlineExceeded) {
					e.Log.Warn("metrics cannot be read, which is tried again", "source", s.Name, "error", err)
				}
				metrics, up = nil, 0
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.read == nil {
				e.read = map[string][]Metric{}
			}
			e.read[s.Name] = append(metrics, gauge(sourceUp, up, s.Name))
		})
	}
	all.Wait()
}

// metrics are what the last round has read.
func (e *Exporter) metrics(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(e.read))...)
	e.mu.Unlock()
	w.Header().Set("Content-Type", contentType)
	_ = writeText(w, all) // who asked has gone
}

// Serve answers on the listener until ctx ends.
func (e *Exporter) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug), // handshakes that fail: anybody on the network can cause them
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return e.config() }}
	if err := server.Serve(tls.NewListener(listener, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics on %s: %w", listener.Addr(), err)
	}
	return nil
}

// config is made for each connection, from files that are renewed and, when an authority is replaced, change.
func (e *Exporter) config() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(e.Dir, "server"+pki.Crt), filepath.Join(e.Dir, "server"+pki.Key))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(e.Dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(e.Dir, "ca.crt"))
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}, nil
}

// handler has Path for the own metrics, and below it each daemon's.
func (e *Exporter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, e.metrics)
	for _, d := range daemons {
		if e.Roles.Has(d.role) {
			mux.Handle("GET "+d.path(), e.pass(d))
		}
	}
	for job := range e.Lists {
		mux.Handle("GET "+TargetsPath+"/"+job, e.list(job))
	}
	return e.only(mux)
}

// only lets in who belongs to the group. The handshake has verified the certificate at the connection's start, and a connection can
// be older than the certificate's end.
func (e *Exporter) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := r.TLS.PeerCertificates[0]
		switch {
		case e.Now().After(shown.NotAfter):
			w.Header().Set("Connection", "close")
			http.Error(w, "the certificate has expired; next: hardtack monitoring writes a new one", http.StatusForbidden)
		case !slices.Contains(shown.Subject.Organization, pki.GroupMetrics):
			http.Error(w, "the certificate is not for the group "+pki.GroupMetrics+"; next: hardtack monitoring writes one that is", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// pass hands a daemon's metrics on. Nothing of the request reaches the daemon but what it may answer in.
func (e *Exporter) pass(d daemon) http.Handler {
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, ResponseHeaderTimeout: patience, IdleConnTimeout: idle,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			// The controller manager and the scheduler serve with a certificate that they make for themselves at each start. It is
			// asked on this machine's 127.0.0.1, and a client's certificate tells an impostor nothing that is secret.
			InsecureSkipVerify: true,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(filepath.Join(e.Dir, "client"+pki.Crt), filepath.Join(e.Dir, "client"+pki.Key))
				return &pair, err
			},
		},
	}
	return &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			header := http.Header{}
			for _, name := range []string{"Accept", "Accept-Encoding"} {
				header[name] = r.In.Header[name]
			}
			r.Out.Header, r.Out.Host, r.Out.Body = header, d.address, nil
			r.Out.URL = &url.URL{Scheme: d.scheme, Host: d.address, Path: "/metrics"}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("asking %s: %v; next: systemctl status %s", d.name, err, d.name), http.StatusBadGateway)
		},
	}
}
