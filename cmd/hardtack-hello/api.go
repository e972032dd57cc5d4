package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
)

// refuseLabel on an object makes the webhook refuse it.
const refuseLabel = "hello.hardtack.dev/refuse"

// maxReview is the largest review that is read, in bytes: twice the largest object that etcd takes, since a review
// of a change holds the old one too.
const maxReview = 3 << 20

// The aggregated API.
const (
	apiGroup   = "hello.hardtack.dev"
	apiVersion = apiGroup + "/v1"
	apiPath    = "/apis/" + apiVersion
)

// review is what the webhook reads and writes of admission.k8s.io/v1's AdmissionReview.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
}

type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
	Status  *struct {
		Message string `json:"message"`
	} `json:"status,omitempty"`
}

func webhook(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	address, pair := pairFlags(flags)
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	config, err := pair.config()
	if err != nil {
		return err
	}
	return listen(ctx, *address, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
			return
		}
		out := judge(in)
		fmt.Fprintf(s.out, "%s: allowed %v\n", in.Request.Object.Metadata.Name, out.Response.Allowed)
		reply(w, out)
	}))
}

func judge(in review) review {
	out := review{APIVersion: in.APIVersion, Kind: in.Kind, Response: &response{UID: in.Request.UID, Allowed: true}}
	if _, refuse := in.Request.Object.Metadata.Labels[refuseLabel]; refuse {
		out.Response.Allowed = false
		out.Response.Status = &struct {
			Message string `json:"message"`
		}{"hello refuses what has the label " + refuseLabel}
	}
	return out
}

func apiservice(ctx context.Context, args []string, _ streams) error {
	flags := flag.NewFlagSet("apiservice", flag.ContinueOnError)
	address, pair := pairFlags(flags)
	flags.StringVar(&pair.clientCA, "client-ca", "", "")
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	if pair.clientCA == "" {
		return usageError{fmt.Errorf("apiservice: --client-ca is missing: who asks is only known by the front proxy's certificate")}
	}
	config, err := pair.config()
	if err != nil {
		return err
	}
	return listen(ctx, *address, config, api())
}

// api is the aggregated API: one kind of object, and one object that says who asked.
func api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+apiPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": apiVersion,
			"resources": []any{map[string]any{"name": "greetings", "singularName": "greeting", "namespaced": false,
				"kind": "Greeting", "verbs": []string{"get", "list"}}}})
	})
	greeting := func(r *http.Request) map[string]any {
		return map[string]any{"kind": "Greeting", "apiVersion": apiVersion, "metadata": map[string]any{"name": "hello"},
			"to": r.Header.Get("X-Remote-User")}
	}
	mux.HandleFunc("GET "+apiPath+"/greetings", func(w http.ResponseWriter, r *http.Request) {
		reply(w, map[string]any{"kind": "GreetingList", "apiVersion": apiVersion, "metadata": map[string]any{},
			"items": []any{greeting(r)}})
	})
	mux.HandleFunc("GET "+apiPath+"/greetings/hello", func(w http.ResponseWriter, r *http.Request) {
		reply(w, greeting(r))
	})
	return mux
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // who asked has gone
}

// pair is a server's certificate, and the authority of its clients where they need one.
type pair struct{ cert, key, clientCA string }

func pairFlags(flags *flag.FlagSet) (address *string, p *pair) {
	p = &pair{}
	address = flags.String("listen", ":8443", "")
	flags.StringVar(&p.cert, "cert", "", "")
	flags.StringVar(&p.key, "key", "", "")
	return address, p
}

func (p *pair) config() (*tls.Config, error) {
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("reading the server's certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13}
	if p.clientCA == "" {
		return config, nil
	}
	// As every aggregated API has to: the cluster changes the file while it replaces the authority.
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.demanding(config) }
	_, err = p.demanding(config)
	return config, err
}

// demanding is the configuration with which a server demands a certificate of the authority that is in the file now.
func (p *pair) demanding(config *tls.Config) (*tls.Config, error) {
	text, err := os.ReadFile(p.clientCA)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of clients: %w", err)
	}
	config = config.Clone()
	config.GetConfigForClient = nil
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", p.clientCA)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}
