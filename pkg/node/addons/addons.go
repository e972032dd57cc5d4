// Package addons installs the basic objects of a new cluster: the RBAC rules of nodes, and DNS.
//
// Its rule: the manifests in the image are the source of truth. Every master applies all of them at every start, in the
// order of their files; applying them twice or concurrently changes nothing.
package addons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Dir has the manifests of the image, and Extra those that an operator adds with user data.
const (
	Dir   = "/usr/lib/hardtack/addons"
	Extra = "/etc/hardtack/addons"
)

// Cluster is the API server. Apply may be repeated for the same object.
type Cluster interface {
	// Apply creates or updates an object, and leaves fields that it does not name alone.
	Apply(ctx context.Context, object map[string]any) error
}

// Object is an object of a manifest.
type Object struct {
	// From is the file name, for errors.
	From  string
	Value map[string]any
}

// String returns the object's kind and name.
func (o Object) String() string {
	kind, _ := o.Value["kind"].(string)
	meta, _ := o.Value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return kind + "/" + name
}

// Values are the variables that manifests may use as ${NAME}. pauseImage is the sandbox image of the machine's
// containerd.
func Values(c machine.Config, pauseImage string) (map[string]string, error) {
	service, err := netip.ParsePrefix(c.Network.ServiceCIDR)
	if err != nil {
		return nil, fmt.Errorf("network.serviceCIDR: %w", err)
	}
	return map[string]string{
		"CLUSTER_NAME": c.Cluster,
		"DNS_ADDRESS":  c.Network.DNSAddress,
		"DNS_DOMAIN":   c.Network.DNSDomain,
		"SERVICE_CIDR": service.String(),
		"POD_CIDR":     c.Network.PodCIDR,
		"PAUSE_IMAGE":  pauseImage,
	}, nil
}

// Load reads the manifests *.yaml of the directories, sorted by name within each, and expands their variables. A
// missing directory is empty; a file replaces one of the same name in an earlier directory. The error has all findings.
func Load(values map[string]string, dirs ...fs.FS) ([]Object, error) {
	var objects []Object
	var errs []error
	for i, dir := range dirs {
		names, err := fs.Glob(dir, "*.yaml")
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			if slices.ContainsFunc(dirs[i+1:], func(later fs.FS) bool { _, err := fs.Stat(later, name); return err == nil }) {
				continue
			}
			text, err := fs.ReadFile(dir, name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			more, err := parse(name, text, values)
			objects, errs = append(objects, more...), append(errs, err)
		}
	}
	return objects, errors.Join(errs...)
}

// parse reads one manifest.
func parse(name string, text []byte, values map[string]string) ([]Object, error) {
	var errs []error
	expanded := os.Expand(string(text), func(key string) string {
		value, ok := values[key]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: ${%s} is not a variable of manifests", name, key))
		}
		return value
	})
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var objects []Object
	for d := yaml.NewDecoder(strings.NewReader(expanded)); ; {
		var value map[string]any
		err := d.Decode(&value)
		switch {
		case errors.Is(err, io.EOF):
			return objects, errors.Join(errs...)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case value == nil: // between two separators, or comments alone
			continue
		}
		o := Object{name, value}
		if kind, n, _ := strings.Cut(o.String(), "/"); kind == "" || n == "" {
			errs = append(errs, fmt.Errorf("%s: object %d has no kind or no metadata.name", name, len(objects)+1))
		}
		objects = append(objects, o)
	}
}

// The delay between attempts. An API server that has just started refuses requests for a second or two.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Apply applies the objects in order. Failures are retried until they succeed or ctx ends: the API server may start later
// than this machine, and another may take its place.
func Apply(ctx context.Context, cluster Cluster, objects []Object, log *slog.Logger) error {
	for _, o := range objects {
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			err := cluster.Apply(ctx, o.Value)
			if err == nil {
				log.Info("applied", "object", o.String())
				break
			}
			log.Warn("applying an object, which is tried again", "object", o.String(), "from", o.From, "error", err)
			select {
			case <-ctx.Done():
				return fmt.Errorf("applying %s of %s: %w", o, o.From, errors.Join(err, ctx.Err()))
			case <-time.After(pause):
			}
		}
	}
	return nil
}

// PauseImage returns the sandbox image of containerd's configuration.
func PauseImage(config []byte) (string, error) {
	for line := range bytes.Lines(config) {
		key, value, ok := bytes.Cut(line, []byte("="))
		if ok && string(bytes.TrimSpace(key)) == "sandbox" {
			return strings.Trim(string(bytes.TrimSpace(value)), `"'`), nil
		}
	}
	return "", errors.New("containerd's configuration names no sandbox image")
}
