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

// Timeouts for a server that is not there or that hangs. A body may take as long as it brings bytes.
const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
	stallTimeout  = 60 * time.Second
)

// newTransport is the transport for upstream: proxies from the environment, and the timeouts above.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       headerTimeout,
		MaxIdleConnsPerHost:   parallel,
		ForceAttemptHTTP2:     true,
		// Releases are compressed already, and a digest is of the bytes that travel.
		DisableCompression: true,
		// The library turns the answer into a bare text; its status says whether asking again can help.
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode >= 400 && resp.StatusCode < 500 {
				return &proxyError{proxy.Host, resp.Status}
			}
			return nil
		},
	}
}

// mirrorTransport answers requests for upstream's addresses from the mirror; without one it is inner,
// or the package's own transport where inner is nil.
func mirrorTransport(mirror string, inner http.RoundTripper) (http.RoundTripper, error) {
	if inner == nil {
		inner = newTransport()
	}
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

// mirrored carries out requests at base/HOST/PATH. It follows redirects itself: they lead to where the
// mirror says and must not be taken for upstream's addresses again.
type mirrored struct {
	base   *url.URL
	client *http.Client
}

// RoundTrip implements http.RoundTripper.
func (m *mirrored) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/v2/" {
		// A registry client asks this first, to learn how to log in; a mirror needs no login.
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

// maxManifest is the size that a manifest may have; registries refuse larger ones than 4 MiB.
const maxManifest = 4 << 20

// manifestType gives a manifest that was served as a plain file the content type that its text names:
// registries tell it in the header.
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

// hostOf is the part of a URL that says whose server it is, for messages and for remembering that it
// cannot be reached.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	return u.Host
}

// base is the last part of a URL's path, for progress.
func base(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return path.Base(u.Path)
}
