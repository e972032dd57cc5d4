package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Timeouts for servers that are down or hang. A body may take any time as long as bytes arrive.
const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
	stallTimeout  = 60 * time.Second
)

// newTransport returns the transport for upstream: proxies from the environment, and the timeouts above.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       headerTimeout,
		MaxIdleConnsPerHost:   parallel,
		ForceAttemptHTTP2:     true,
		// Releases are compressed already, and digests are of the bytes as transferred.
		DisableCompression: true,
		// net/http reduces the proxy's response to a text; retrying depends on its status.
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode >= 400 && resp.StatusCode < 500 {
				return &proxyError{proxy.Host, resp.Status}
			}
			return nil
		},
	}
}

// mirrorTransport sends requests for upstream's addresses to the mirror; without one it returns inner.
func mirrorTransport(mirror string, inner http.RoundTripper) (http.RoundTripper, error) {
	if mirror == "" {
		return inner, nil
	}
	u, err := url.Parse(mirror)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return &mirrored{base: u.JoinPath("/"), client: &http.Client{Transport: inner}}, nil
	}
	if err == nil && u.Scheme != "" {
		return nil, fmt.Errorf("mirror %q is neither an http(s) address nor a directory", mirror)
	}
	info, err := os.Stat(mirror)
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("mirror %s is not a directory", mirror)
	}
	files := http.NewFileTransportFS(os.DirFS(filepath.Clean(mirror)))
	return &mirrored{base: &url.URL{Scheme: "file", Path: "/"}, client: &http.Client{Transport: files}}, nil
}

// mirrored sends requests to base/HOST/PATH. It follows redirects itself: they lead to addresses of the mirror,
// which must not be mapped again.
type mirrored struct {
	base   *url.URL
	client *http.Client
}

// RoundTrip implements http.RoundTripper.
func (m *mirrored) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/v2/" {
		// Registry clients request this first to learn how to log in; a mirror needs no login.
		return answer(req, http.StatusOK), nil
	}
	moved := req.Clone(req.Context())
	moved.URL = m.base.JoinPath(req.URL.Host, req.URL.EscapedPath())
	moved.Host, moved.RequestURI = "", ""
	resp, err := m.client.Do(moved)
	if err != nil {
		return nil, err
	}
	resp.Request = req
	if strings.Contains(req.URL.Path, "/manifests/") {
		return manifestType(resp)
	}
	return resp, nil
}

func answer(req *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

// maxManifest is the maximum size of a manifest; registries reject larger ones than 4 MiB.
const maxManifest = 4 << 20

// manifestType sets the content type of a manifest that is served as a plain file, from its text: registries send it
// in the header.
func manifestType(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode != http.StatusOK || resp.Request.Method == http.MethodHead {
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", resp.Request.URL, err)
	}
	var named struct {
		MediaType string `json:"mediaType"`
	}
	if json.Unmarshal(data, &named) == nil && named.MediaType != "" {
		resp.Header.Set("Content-Type", named.MediaType)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	return resp, nil
}

// hostOf returns the host of a URL, for messages and for the list of unreachable hosts.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	return u.Host
}

// base returns the last element of a URL's path, for progress.
func base(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return path.Base(u.Path)
}
