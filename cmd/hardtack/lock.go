package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
)

// defaultLock is the lock of this program that is used when none is named.
const defaultLock = "kubernetes-1.36"

// lockSuffix is what lock files of this program end with, after their name.
const lockSuffix = ".lock.yaml"

func lockCommand() *cli.Command {
	return &cli.Command{
		Name:  "lock",
		Usage: "the components of the image: which there are, whether they are what they should be, and newer ones",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "print components, versions, licences, sources and digests",
				Flags: []cli.Flag{lockFlag(), archFlag("only this `ARCHITECTURE` (default: all)"), jsonFlag()}, Action: lockList},
			{Name: "verify", Usage: "bring every component here, or read the cache, and verify size, digest and signature",
				Flags: []cli.Flag{
					lockFlag(), mirrorFlag(),
					&cli.StringFlag{Name: "source", Value: string(fetch.Release), Usage: "release, modules (compile; may take long) or auto"},
					archFlag("`ARCHITECTURE` (default: this machine's)"),
					&cli.StringFlag{Name: "cache", Usage: "cache `DIRECTORY` (default: hardtack in the user's cache directory)"},
					jsonFlag(),
				}, Action: lockVerify},
			{Name: "update", Usage: "write newer patch versions into a lock file; needs the network",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "lock", Required: true, Usage: "the lock `FILE` to write anew"}, mirrorFlag(),
					&cli.BoolFlag{Name: "dry-run", Usage: "only print what would change"}, jsonFlag(),
				}, Action: lockUpdate},
		},
	}
}

func lockFlag() cli.Flag {
	return &cli.StringFlag{Name: "lock", Value: defaultLock, Usage: "lock `FILE`, or the name of one of this program's"}
}

func archFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "arch", Usage: usage} }

func mirrorFlag() cli.Flag {
	return &cli.StringFlag{Name: "mirror", Usage: "http(s) address or directory that has https://HOST/PATH at `MIRROR`/HOST/PATH"}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

// readLock reads the lock that --lock names: what looks like a name and not like a path of a file is one
// of this program's.
func readLock(name string) (*component.Lock, error) {
	var data []byte
	var err error
	if strings.ContainsRune(name, filepath.Separator) || strings.HasSuffix(name, ".yaml") {
		if data, err = os.ReadFile(name); err != nil {
			return nil, usagef("reading the lock: %w", err)
		}
	} else {
		name += lockSuffix
		if data, err = fs.ReadFile(images.FS, name); err != nil {
			return nil, usagef("this program has no %s: its locks are %s; a file is named with its path or .yaml", name, strings.Join(ownLocks(), ", "))
		}
	}
	l, problems := component.Parse(name, data)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("reading the lock:\n%w", err)
	}
	return l, nil
}

// ownLocks lists the names of this program's locks.
func ownLocks() []string {
	files, err := fs.Glob(images.FS, "*"+lockSuffix)
	if err != nil { // only a malformed pattern can be
		return nil
	}
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], lockSuffix)
	}
	return files
}

func lockList(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	l, err := readLock(c.String("lock"))
	if err != nil {
		return err
	}
	arches := component.Architectures()
	if arch := c.String("arch"); arch != "" {
		if !slices.Contains(arches, arch) {
			return usagef("architecture %q is not one of %s", arch, strings.Join(arches, ", "))
		}
		arches = []string{arch}
	}
	if c.Bool("json") {
		for i := range l.Components {
			for arch := range l.Components[i].Release {
				if !slices.Contains(arches, arch) {
					delete(l.Components[i].Release, arch)
				}
			}
		}
		return printJSON(c.App.Writer, struct {
			*component.Lock
			Fingerprint string `json:"fingerprint"`
		}{l, l.Fingerprint()})
	}
	return printLock(c, l, arches)
}

// printLock prints a line for each component and below it one for each of its downloads.
func printLock(c *cli.Context, l *component.Lock, arches []string) error {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, fingerprint %s\n\n", l.Name, l.Fingerprint())
	fmt.Fprintln(w, "COMPONENT\tVERSION\tLICENCE\tSOURCES")
	for _, p := range l.Components {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.Version, p.Licence, sources(p))
	}
	fmt.Fprintln(w, "\nFILES\tARCH\tDIGEST OF THE DOWNLOAD")
	for _, p := range l.Components {
		for _, arch := range arches {
			for _, d := range p.Release[arch] {
				fmt.Fprintf(w, "%s\t%s\t%s\n", served(p, d), arch, d.Digest)
			}
		}
	}
	return w.Flush()
}

// sources says where a component can come from.
func sources(p component.Component) string {
	var out []string
	for _, arch := range component.Architectures() {
		if len(p.Release[arch]) > 0 {
			out = append(out, arch)
		}
	}
	var text []string
	if len(out) > 0 {
		text = append(text, "release ("+strings.Join(out, ", ")+")")
	}
	if p.Modules != nil {
		text = append(text, "modules ("+p.Modules.Module+")")
	}
	return strings.Join(text, ", ")
}

// served lists the files that a download is, in the component's order.
func served(p component.Component, d component.Download) string {
	var names []string
	for _, f := range p.Files {
		if _, ok := d.Members[f.Name]; ok || d.As == f.Name {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ",")
}

// verdict is what `lock verify` says about one component.
type verdict struct {
	fetch.Result
	// Skipped says why there was nothing to verify.
	Skipped string `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
}

// onlyModules is the reason to skip a component that upstream releases no files of.
const onlyModules = "no release in the lock; --source modules builds it"

// verifyAll verifies every component, some at once, and does not stop at the first that is wrong.
func verifyAll(c *cli.Context, f *fetch.Fetcher, l *component.Lock) []verdict {
	arch, source := cmp.Or(c.String("arch"), runtime.GOARCH), fetch.Source(c.String("source"))
	verdicts := make([]verdict, len(l.Components))
	var group errgroup.Group
	group.SetLimit(4)
	for i, p := range l.Components {
		group.Go(func() error {
			v := verdict{Result: fetch.Result{Component: p.Name, Version: p.Version}}
			if source == fetch.Release && len(p.Release[arch]) == 0 && p.Modules != nil {
				v.Skipped = onlyModules
			} else if r, err := f.Verify(c.Context, p); err != nil {
				v.Error = err.Error()
			} else {
				v.Result = r
			}
			verdicts[i] = v
			return nil
		})
	}
	_ = group.Wait() // what failed is in the verdicts
	return verdicts
}

func lockVerify(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	l, err := readLock(c.String("lock"))
	if err != nil {
		return err
	}
	progress := newProgress(c.App.ErrWriter)
	f, err := fetch.New(fetch.Options{
		Assets: images.FS, Cache: c.String("cache"), Mirror: c.String("mirror"), Source: fetch.Source(c.String("source")),
		Arch: c.String("arch"), Progress: progress, Log: logger(c),
	})
	if err != nil {
		return usagef("%w", err)
	}
	verdicts := verifyAll(c, f, l)
	progress.finish()
	if c.Err() != nil {
		return c.Err()
	}
	if err := printVerdicts(c, verdicts); err != nil {
		return err
	}
	return failures(verdicts)
}

func printVerdicts(c *cli.Context, verdicts []verdict) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, verdicts)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tVERSION\tVERDICT\tFROM")
	for _, v := range verdicts {
		word, from := "ok", fmt.Sprintf("%s %s", v.Source, v.Origin)
		switch {
		case v.Error != "":
			word, from = "FAILED", "see below"
		case v.Skipped != "":
			word, from = "skipped", v.Skipped
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Component, v.Version, word, from)
	}
	return w.Flush()
}

// failures is the error that lists every component that did not verify; nil where all did. Where there
// was nothing at all to verify, nothing was verified, and that is no success.
func failures(verdicts []verdict) error {
	var lines []string
	skipped := 0
	for _, v := range verdicts {
		if v.Error != "" {
			lines = append(lines, v.Error)
		}
		if v.Skipped != "" {
			skipped++
		}
	}
	switch {
	case skipped == len(verdicts):
		return errors.New("nothing was verified: the lock has no release for this architecture")
	case len(lines) == 0:
		return nil
	}
	return fmt.Errorf("%d of %d components did not verify:\n%s", len(lines), len(verdicts), strings.Join(lines, "\n"))
}

func lockUpdate(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	file := c.String("lock")
	data, err := os.ReadFile(file)
	if err != nil {
		return usagef("lock update writes a lock file: %w", err)
	}
	l, problems := component.Parse(file, data)
	if err := problems.Err(); err != nil {
		return fmt.Errorf("reading the lock:\n%w", err)
	}
	cache, err := os.MkdirTemp("", "hardtack-update-")
	if err != nil {
		return fmt.Errorf("lock update: %w", err)
	}
	defer os.RemoveAll(cache)
	f, err := fetch.New(fetch.Options{Cache: cache, Mirror: c.String("mirror"), Log: logger(c)})
	if err != nil {
		return usagef("%w", err)
	}
	updates, err := f.Updates(c.Context, l)
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, u := range updates {
		maps.Copy(values, u.Values)
	}
	if len(values) > 0 && !c.Bool("dry-run") {
		if data, err = component.Rewrite(file, data, values); err != nil {
			return err
		}
		if err := replaceFile(file, data); err != nil {
			return err
		}
	}
	return printUpdates(c, updates)
}

// replaceFile gives the file new content, all of it or nothing, and keeps its mode.
func replaceFile(file string, data []byte) (err error) {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".lock-*")
	if err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// printUpdates prints what was found; a component whose update failed is an error.
func printUpdates(c *cli.Context, updates []fetch.Update) error {
	var failed []string
	for _, u := range updates {
		if u.Problem != "" {
			failed = append(failed, u.Component+": "+u.Problem)
		}
	}
	if c.Bool("json") {
		if err := printJSON(c.App.Writer, updates); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "COMPONENT\tFROM\tTO\tNOTE")
		for _, u := range updates {
			note := cmp.Or(u.Note, "-")
			if u.Problem != "" {
				note = "not taken, see below"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.Component, u.From, u.To, note)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d components could not be updated:\n%s", len(failed), len(updates), strings.Join(failed, "\n"))
	}
	return nil
}
