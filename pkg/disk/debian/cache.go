package debian

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// cacheEntry is one kept base system: <options>-<release>.tar and the same name with .json, which says how
// it was made and the tar's digest. The json file is written last: without it the tar does not count. Nobody signs either:
// they count because the directory is this user's alone, which checkOwn sees to.
type cacheEntry struct {
	dir     string // empty: nothing is kept
	options string // digest of everything but the archive's state
	release string // digest of the archive's state
}

// record is the content of the json file.
type record struct {
	Result
	// SHA256 is that of the tar, in hex.
	SHA256 string `json:"sha256"`
}

// checkOwn refuses a cache that belongs to another user, or that others can write.
func (m Maker) checkOwn() error {
	if m.Cache == "" {
		return nil
	}
	if err := file.CheckOwn(m.Cache); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("kept base systems: %w", err)
	}
	return nil
}

func (m Maker) entry(ctx context.Context, o Options, r Result) (cacheEntry, error) {
	if m.Cache == "" {
		return cacheEntry{}, nil
	}
	options, err := optionsKey(ctx, o)
	if err != nil {
		return cacheEntry{}, err
	}
	release, err := digest(r)
	return cacheEntry{dir: m.Cache, options: options, release: release}, err
}

// optionsKey covers the whole command line, so that changing what is left out or put in, here or by
// the user, never finds an old result; and mmdebstrap's version.
func optionsKey(ctx context.Context, o Options) (string, error) {
	version, err := run.Output(ctx, "mmdebstrap", "--version")
	if err != nil {
		return "", fmt.Errorf("version of mmdebstrap: %w", err)
	}
	return digest(struct {
		Command []string
		Initrd  bool
		Tool    string
	}{o.command("ROOT"), o.Initrd, string(bytes.TrimSpace(version))})
}

func digest(v any) (string, error) {
	data, err := json.Marshal(v) // struct fields in order, map keys sorted
	if err != nil {
		return "", fmt.Errorf("key of the base system: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

func (e cacheEntry) path(suffix string) string {
	return filepath.Join(e.dir, e.options+"-"+e.release+suffix)
}

func (e cacheEntry) tar() string { return e.path(".tar") }

// usable returns an error if the tar is not there or is not what its record says.
func (e cacheEntry) usable() error {
	if e.dir == "" {
		return fs.ErrNotExist
	}
	_, err := readRecord(e.path(".json"))
	return err
}

// readRecord reads a record, and compares its tar with it.
func readRecord(name string) (record, error) {
	data, err := file.ReadOwn(name)
	if err != nil {
		return record{}, fmt.Errorf("kept base system: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("kept base system %s: %w", name, err)
	}
	tar := strings.TrimSuffix(name, ".json") + ".tar"
	sum, err := file.SHA256(tar)
	if err != nil {
		return r, fmt.Errorf("kept base system: %w", err)
	}
	if sum != r.SHA256 {
		return r, fmt.Errorf("kept base system %s: its sha256 is %s, and %q is in its record", tar, sum, r.SHA256)
	}
	return r, nil
}

// store keeps source, and removes what the same options gave at earlier states of the archive.
func (e cacheEntry) store(ctx context.Context, source string, r Result) error {
	if e.dir == "" {
		return nil
	}
	partial := fmt.Sprintf("%s.%d.partial", e.tar(), os.Getpid())
	defer os.Remove(partial) // gone already when all went well
	if err := pack(ctx, source, partial); err != nil {
		return err
	}
	sum, err := file.SHA256(partial)
	if err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	if err := os.Rename(partial, e.tar()); err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	data, err := json.MarshalIndent(record{r, sum}, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	if _, err := file.Replace(e.path(".json"), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	return e.prune()
}

func (e cacheEntry) prune() error {
	var errs []error
	for _, suffix := range []string{".json", ".tar"} { // the json first: it makes the tar count
		old, err := filepath.Glob(filepath.Join(e.dir, e.options+"-*"+suffix))
		errs = append(errs, err)
		for _, file := range old {
			if file != e.path(suffix) {
				errs = append(errs, os.Remove(file))
			}
		}
	}
	return errors.Join(errs...)
}

// newest unpacks the newest kept base system of these options, without asking the archive.
func (m Maker) newest(ctx context.Context, o Options, target string) (Result, error) {
	if m.Cache == "" {
		return Result{}, errors.New("offline: the base cache is switched off, so there is nothing to use")
	}
	options, err := optionsKey(ctx, o)
	if err != nil {
		return Result{}, err
	}
	kept, err := filepath.Glob(filepath.Join(m.Cache, options+"-*.json"))
	if err != nil || len(kept) == 0 {
		return Result{}, fmt.Errorf("offline: no base system of %s with these packages is kept in %s (build once with the archive reachable)",
			o.Suite, m.Cache)
	}
	results := make(map[string]Result)
	var refused error
	for _, file := range kept {
		r, err := readRecord(file)
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		results[file] = r.Result
	}
	if len(results) == 0 {
		return Result{}, fmt.Errorf("offline: none that is kept can be used (build once with the archive reachable):\n%w", refused)
	}
	file := slices.MaxFunc(slices.Collect(maps.Keys(results)), func(a, b string) int {
		return cmp.Or(results[a].Release.Date.Compare(results[b].Release.Date), cmp.Compare(a, b))
	})
	r := results[file]
	r.Cached = true
	if m.Epoch > 0 {
		r.Epoch = m.Epoch
	}
	m.sayf("Offline: base system of %s, not compared with the archive", r.Release.Date.Format("2006-01-02 15:04 MST"))
	return r, unpack(ctx, strings.TrimSuffix(file, ".json")+".tar", target)
}
