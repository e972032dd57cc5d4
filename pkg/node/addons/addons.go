// Package addons installs the basic objects of a new cluster: the RBAC rules of nodes, and DNS.
//
// Its rule: the manifests in the image are the source of truth. Every master applies all of them at every start, in the
// order of their files; applying them twice or concurrently changes nothing.
package addons

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Dir has the manifests of the image, and Extra those that an operator adds with user data.
const (
	Dir   = "/usr/lib/hardtack/addons"
	Extra = "/etc/hardtack/addons"
)

// Optional is the directory below Dir of the manifests that are applied only where the document names them.
const Optional = "optional"

// Cluster is the API server. Calls may be repeated for the same object.
type Cluster interface {
	// Apply creates or updates an object, and leaves fields that it does not name alone.
	Apply(ctx context.Context, object map[string]any) error
	// Delete deletes an object that Apply has made, and no other.
	Delete(ctx context.Context, object map[string]any) error
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
	values := map[string]string{
		"CLUSTER_NAME": c.Cluster,
		"DNS_ADDRESS":  c.Network.DNSAddress,
		"DNS_DOMAIN":   c.Network.DNSDomain,
		"SERVICE_CIDR": service.String(),
		"POD_CIDR":     c.Network.PodCIDR,
		"PAUSE_IMAGE":  pauseImage,
	}
	for name, image := range c.AddonImages {
		values[machine.ImageVariable(name)] = image
	}
	return values, nil
}

// Certificates are the variables of the certificates that add-ons are given, each in base64 as Secrets have them, from the
// files of pki.MetricsServerBundle.
func Certificates(dir fs.FS) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for variable, name := range map[string]string{
		"KUBERNETES_CA": "ca.crt", "KUBELET_CA": "kubelet-ca.crt",
		"METRICS_SERVER_CERTIFICATE": pki.MetricsServer + pki.Crt, "METRICS_SERVER_KEY": pki.MetricsServer + pki.Key,
	} {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			errs = append(errs, err)
		}
		out[variable] = base64.StdEncoding.EncodeToString(data)
	}
	return out, errors.Join(errs...)
}

// Load reads the manifests *.yaml of the directories, sorted by name within each, then the chosen ones of Optional below
// the first directory, and expands their variables. A missing directory is empty; a file replaces one of the same name in
// an earlier directory. The error has all findings.
func Load(values map[string]string, chosen []string, dirs ...fs.FS) ([]Object, error) {
	var objects []Object
	var errs []error
	replaced := func(name string, by []fs.FS) bool {
		return slices.ContainsFunc(by, func(later fs.FS) bool { _, err := fs.Stat(later, name); return err == nil })
	}
	read := func(dir fs.FS, file string) {
		text, err := fs.ReadFile(dir, file)
		if err != nil {
			errs = append(errs, err)
			return
		}
		more, err := parse(path.Base(file), text, values)
		objects, errs = append(objects, more...), append(errs, err)
	}
	for i, dir := range dirs {
		names, err := fs.Glob(dir, "*.yaml")
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			if !replaced(name, dirs[i+1:]) {
				read(dir, name)
			}
		}
	}
	for _, name := range chosen {
		if !replaced(name+".yaml", dirs[1:]) {
			read(dirs[0], path.Join(Optional, name+".yaml"))
		}
	}
	return objects, errors.Join(errs...)
}

// Off are the objects of the optional manifests of a directory that are not chosen, the last one first; only what names them is
// filled in.
func Off(dir fs.FS, chosen []string) ([]Object, error) {
	files, err := fs.Glob(dir, path.Join(Optional, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, file := range files {
		if slices.Contains(chosen, strings.TrimSuffix(path.Base(file), ".yaml")) {
			continue
		}
		text, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, err
		}
		more, err := parse(path.Base(file), text, nil)
		if err != nil {
			return nil, err
		}
		slices.Reverse(more)
		objects = append(objects, more...)
	}
	return objects, nil
}

// parse reads one manifest. Without values its variables are empty.
func parse(name string, text []byte, values map[string]string) ([]Object, error) {
	var errs []error
	expanded := os.Expand(string(text), func(key string) string {
		value, ok := values[key]
		if !ok && values != nil {
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
	// heldUp is how long an object may hold up those behind it, of which one may be what it lacks.
	heldUp = time.Minute
)

// First is the manifest that gives the user of the add-ons its rights.
const First = "00-addons.yaml"

// Rights says whether the user of the add-ons may do everything.
type Rights interface {
	MayAll(ctx context.Context) (bool, error)
}

// Grant applies the objects of First as a superuser, unless the user of the add-ons has its rights: in a new cluster nobody but a
// superuser can. Failures are retried until they succeed or ctx ends, as in Apply. superuser is called for each try.
func Grant(ctx context.Context, own Rights, superuser func(context.Context) (Cluster, error), objects []Object, log *slog.Logger) error {
	return until(ctx, func() error {
		if may, err := own.MayAll(ctx); err != nil || may {
			return err
		}
		cluster, err := superuser(ctx)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if o.From != First {
				continue
			}
			if err := cluster.Apply(ctx, o.Value); err != nil {
				return err
			}
			log.Info("applied as a superuser", "object", o.String())
		}
		may, err := own.MayAll(ctx) // the API server learns of a binding a moment later
		if err == nil && !may {
			err = errors.New("they are not there yet")
		}
		return err
	}, func(err error) {
		log.Warn("giving the add-ons their rights, which is tried again", "error", err)
	})
}

// Apply applies the objects in order. Failures are retried until they succeed or ctx ends: the API server may start later
// than this machine, and another may take its place.
func Apply(ctx context.Context, cluster Cluster, objects []Object, log *slog.Logger) error {
	return each(ctx, "applying", "applied", cluster.Apply, objects, log)
}

// Remove deletes the objects in order, in the manner of Apply. What somebody else has made stays.
func Remove(ctx context.Context, cluster Cluster, objects []Object, log *slog.Logger) error {
	return each(ctx, "removing", "is not there", cluster.Delete, objects, log)
}

// each calls do for the objects one by one until it has succeeded for all. One that has failed for heldUp goes behind the others.
func each(ctx context.Context, doing, done string, do func(context.Context, map[string]any) error, objects []Object, log *slog.Logger) error {
	for queue := slices.Clone(objects); len(queue) > 0; {
		o := queue[0]
		queue = queue[1:]
		turn, cancel := context.WithTimeout(ctx, heldUp)
		err := until(turn, func() error { return do(ctx, o.Value) }, func(err error) {
			log.Warn(doing+" an object, which is tried again", "object", o.String(), "from", o.From, "error", err)
		})
		cancel()
		switch {
		case err == nil:
			log.Info(done, "object", o.String())
		case ctx.Err() != nil:
			return fmt.Errorf("%s %s of %s: %w", doing, o, o.From, err)
		default:
			queue = append(queue, o)
		}
	}
	return nil
}

// until calls do until it succeeds or ctx ends, and failed after each failure.
func until(ctx context.Context, do func() error, failed func(error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := do()
		if err == nil {
			return nil
		}
		failed(err)
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
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
