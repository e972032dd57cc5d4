package awstest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
)

const (
	region    = "us-east-1"
	debianID  = "ami-0deb1a130000000ab"
	debianAMI = "debian-13-amd64-20260601-2500"
	// debianOwner is Debian's account: images/aws.pkr.hcl asks for its images only.
	debianOwner = "136693071363"
)

// cloud is moto behind a proxy that keeps the requests of EC2.
type cloud struct {
	url  string // Packer's endpoint, the proxy
	moto string // the test's endpoint, whose requests are not recorded
	mu   sync.Mutex
	seen []url.Values
	// before are the snapshots that moto starts with: those of the images in its catalogue.
	before map[string]bool
}

// startCloud starts moto with Debian's image in its catalogue. It calls launched with the key pair of each instance,
// which an instance learns from its metadata.
func startCloud(t *testing.T, launched func(name, publicKey string)) *cloud {
	t.Helper()
	catalogue := filepath.Join(t.TempDir(), "amis.json")
	writeJSON(t, catalogue, []map[string]any{
		debianImage(debianID, debianAMI, debianOwner, "2026-06-01T00:00:00.000Z"),
		// Older, and of a stranger who borrows the name: neither may be taken.
		debianImage("ami-0deb1a130000000aa", "debian-13-amd64-20260501-2400", debianOwner, "2026-05-01T00:00:00.000Z"),
		debianImage("ami-0bad0000000000000", "debian-13-amd64-29991231-9999", "666666666666", "2026-11-01T00:00:00.000Z"),
	})
	c := &cloud{moto: moto.Start(t, "MOTO_AMIS_PATH="+catalogue), before: map[string]bool{}}
	target, err := url.Parse(c.moto)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form := c.keep(r)
		forward.ServeHTTP(w, r)
		if form.Get("Action") == "RunInstances" {
			launched(form.Get("KeyName"), c.publicKey(t, form.Get("KeyName")))
		}
	}))
	t.Cleanup(proxy.Close)
	c.url = proxy.URL
	for _, s := range c.snapshots(t) {
		c.before[s.ID] = true
	}
	return c
}

func debianImage(id, name, owner, date string) map[string]any {
	return map[string]any{
		"ami_id": id, "name": name, "owner_id": owner, "creation_date": date, "description": name, "public": true,
		"architecture": "x86_64", "virtualization_type": "hvm", "hypervisor": "xen", "image_type": "machine", "state": "available",
		"root_device_type": "ebs", "root_device_name": "/dev/xvda", "boot_mode": "uefi-preferred",
	}
}

// keep remembers an EC2 request and leaves it readable.
func (c *cloud) keep(r *http.Request) url.Values {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, form)
	return form
}

func (c *cloud) requests(action string) []url.Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []url.Values
	for _, form := range c.seen {
		if form.Get("Action") == action {
			out = append(out, form)
		}
	}
	return out
}

func (c *cloud) only(t *testing.T, action string) url.Values {
	t.Helper()
	all := c.requests(action)
	if len(all) != 1 {
		t.Fatalf("%d requests %s, want one", len(all), action)
	}
	return all[0]
}

// ask is one request of EC2's query protocol; out takes the answer's XML.
func (c *cloud) ask(t *testing.T, action string, params map[string]string, out any) {
	t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for k, v := range params {
		form.Set(k, v)
	}
	// Not t.Context(): the proxy asks as well, while a test is ending.
	req, err := http.NewRequest(http.MethodPost, c.moto, strings.NewReader(form.Encode()))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// moto takes the region and the service from the credential and checks no signature.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+region+"/ec2/aws4_request, SignedHeaders=host, Signature=none")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v\n%s", action, res.Status, err, body)
		return
	}
	if err := xml.Unmarshal(body, out); err != nil {
		t.Errorf("%s: %v\n%s", action, err, body)
	}
}

func writeJSON(t *testing.T, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
