// Package addons gives a new cluster what it needs to be usable: the rights of nodes, and DNS.
//
// Its rule: the manifests in the image are the truth. Every master applies all of them at every start, in the order
// of their files; who applies them twice, or two at once, changes nothing.
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

	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
)

// Dir is where the image has the manifests, and Extra where a machine may have more: an operator's, by user data.
const (
	Dir   = "/usr/lib/hardtack/addons"
	Extra = "/etc/hardtack/addons"
)

// Cluster is the API server. Apply may be called again for the same object.
type Cluster interface {
	// Apply makes an object what it says, and leaves fields that it does not name alone.
	Apply(ctx context.Context, object map[string]any) error
}

// Object is one object of a manifest.
type Object struct {
	// From is the file, for errors.
	From  string
	Value map[string]any
}

// String is the object's kind and name.
func (o Object) String() string {
	kind, _ := o.Value["kind"].(string)
	meta, _ := o.Value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return kind + "/" + name
}

// Values are what manifests may name as ${NAME}. The pause image is the one that the machine's containerd has.
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

// Load reads the manifests *.yaml of the directories, by name within each, with the values in place. A directory that
// is not there has none; a file takes the place of one of the same name in a directory before its own. Everything that
// is wrong is in one error.
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
			errs = append(errs, fmt.Errorf("%s: ${%s} is no value that manifests have", name, key))
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

// Between two tries of what failed. An API server that has just started refuses for a second or two.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Apply applies the objects in their order. What fails is tried again until it works or the context ends: the API
// server may come later than this machine, and another may take its place in between.
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

// PauseImage finds the sandbox image in containerd's configuration: the one image of every node.
func PauseImage(config []byte) (string, error) {
	for line := range bytes.Lines(config) {
		key, value, ok := bytes.Cut(line, []byte("="))
		if ok && string(bytes.TrimSpace(key)) == "sandbox" {
			return strings.Trim(string(bytes.TrimSpace(value)), `"'`), nil
		}
	}
	return "", errors.New("containerd's configuration names no sandbox image")
}
