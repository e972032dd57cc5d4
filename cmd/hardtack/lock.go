package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

func lockCommand() *cli.Command {
	return &cli.Command{
		Name:  "lock",
		Usage: "list, verify, export and update the image's components and their versions",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list components with their versions, licences, sources and digests",
				Flags: []cli.Flag{lockFlag(), archFlag("only this `ARCHITECTURE` (default: all)")}, Action: lockList},
			{Name: "verify", Usage: "fetch every component, or read it from the cache, and verify its size, digest and signature",
				Flags: append(fetchFlags(), lockFlag(),
					&cli.BoolFlag{Name: "require-pins", Usage: "refuse compiled programs that the lock does not pin, and compile with the Go version of its pins"}),
				Action: lockVerify},
			{Name: "export", Usage: "write one of the built-in locks into a directory, with the module archives that it compiles from",
				ArgsUsage: "DIRECTORY", Flags: []cli.Flag{&cli.StringFlag{Name: "lock", Value: bake.DefaultLock, Usage: "the `NAME` of a built-in lock"}}, Action: lockExport},
			{Name: "pin", Usage: "write into a lock file what members of archives and compiled programs come to",
				Flags: append(fetchFlags(), &cli.StringFlag{Name: "lock", Required: true, Usage: "the lock `FILE` to write pins into"},
					&cli.StringSliceFlag{Name: "component", Usage: "only this `COMPONENT` of the lock; may be repeated"}), Action: lockPin},
			{Name: "update", Usage: "update a lock file to the newest patch versions; needs the network",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "lock", Required: true, Usage: "the lock `FILE` to update"}, mirrorFlag(),
					&cli.BoolFlag{Name: "insecure-mirror", Usage: "believe digests that come over plain http, where anybody on the way can change them"},
					dryRunFlag(),
				}, Action: lockUpdate},
		},
	}
}

// fetchFlags are the flags of the commands that fetch or compile every component.
func fetchFlags() []cli.Flag {
	return []cli.Flag{
		mirrorFlag(),
		&cli.StringFlag{Name: "source", Value: string(fetch.Release), Usage: "fetch from `SOURCE`: release, modules (compiles; may take long) or auto"},
		archFlag("the `ARCHITECTURE` (default: this machine's)"),
		&cli.StringFlag{Name: "cache", Usage: "the cache `DIRECTORY` (default: hardtack in the user's cache directory)"},
	}
}

func lockFlag() cli.Flag {
	return &cli.StringFlag{Name: "lock", Value: bake.DefaultLock, Usage: "the `LOCK`: a file, or the name of a built-in lock"}
}

func archFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "arch", Usage: usage} }

func mirrorFlag() cli.Flag {
	return &cli.StringFlag{Name: "mirror", Usage: "fetch https://HOST/PATH from `MIRROR`/HOST/PATH, an http(s) address or a directory"}
}

// readLock reads a lock: by the name of one of this program's locks, or a file. One that lies over others is read with them.
func readLock(name string) (*lock.Lock, error) {
	l, err := bake.LoadLock(images.FS, name)
	if unknown := new(bake.UnknownLockError); errors.As(err, &unknown) && unknown.Name == name || errors.As(err, new(*fs.PathError)) {
		return nil, usagef("%w", err)
	}
	return l, err
}

// ownLocks lists the names of this program's locks.
func ownLocks() []string { return bake.LockNames(images.FS) }

func lockList(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	l, err := readLock(c.String("lock"))
	if err != nil {
		return err
	}
	arches := lock.Architectures()
	if arch := c.String("arch"); arch != "" {
		if !slices.Contains(arches, arch) {
			return usagef("architecture %q is not one of %s", arch, strings.Join(arches, ", "))
		}
		arches = []string{arch}
	}
	if structured(c) {
		for i := range l.Components {
			for arch := range l.Components[i].Release {
				if !slices.Contains(arches, arch) {
					delete(l.Components[i].Release, arch)
				}
			}
		}
		return printResult(c, struct {
			*lock.Lock
			Fingerprint string `json:"fingerprint"`
		}{l, l.Fingerprint()})
	}
	return printLock(c, l, arches)
}

// printLock prints a line for each component, and for each of its downloads.
func printLock(c *cli.Context, l *lock.Lock, arches []string) error {
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
				fmt.Fprintf(w, "%s\t%s\t%s\n", fileNames(p, d), arch, d.Digest)
			}
		}
	}
	return w.Flush()
}

// sources lists the sources of a component.
func sources(p lock.Component) string {
	var out []string
	for _, arch := range lock.Architectures() {
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

// fileNames lists the files of a download, in the component's order.
func fileNames(p lock.Component, d lock.Download) string {
	var names []string
	for _, f := range p.Files {
		if _, ok := d.Members[f.Name]; ok || d.As == f.Name {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ",")
}

// verdict is the result of `lock verify` for one component.
type verdict struct {
	fetch.Result
	// Skipped is why nothing was verified; empty if the component was.
	Skipped string `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
}

// onlyModules is why a component without released files is skipped.
const onlyModules = "no release in the lock; --source modules builds it"

// verifyAll verifies every component, several at once, and does not stop at the first failure.
func verifyAll(c *cli.Context, f *fetch.Fetcher, l *lock.Lock) []verdict {
	arch, source := cmp.Or(c.String("arch"), runtime.GOARCH), fetch.Source(c.String("source"))
	verdicts := make([]verdict, len(l.Components))
	var group errgroup.Group
	group.SetLimit(4)
	for i, p := range l.Components {
		group.Go(func() error {
			v := verdict{Result: fetch.Result{Component: p.Name, Version: p.Version, Entries: []rootfs.Entry{}}}
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
	_ = group.Wait() // the verdicts have the errors
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
	verdicts, err := verifyLock(c, l)
	if err != nil {
		return err
	}
	if err := printVerdicts(c, verdicts); err != nil {
		return err
	}
	return failures(verdicts)
}

// verifyLock verifies the lock's components as the flags of the command say.
func verifyLock(c *cli.Context, l *lock.Lock) ([]verdict, error) {
	progress := newProgress(c.App.ErrWriter)
	f, err := fetch.New(fetch.Options{
		Assets: images.FS, Cache: c.String("cache"), Mirror: c.String("mirror"), Source: fetch.Source(c.String("source")),
		Arch: c.String("arch"), RequirePins: c.Bool("require-pins"), Progress: progress, Log: logger(c),
	})
	if err != nil {
		return nil, usagef("%w", err)
	}
	verdicts := verifyAll(c, f, l)
	progress.finish()
	return verdicts, c.Err()
}

func lockPin(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	file := c.String("lock")
	data, err := readFile(c.Context, file, lock.MaxInput)
	if err != nil {
		return usagef("lock pin writes a lock file: %w", err)
	}
	l, problems := bake.ParseLock(images.FS, file, data)
	if err := problems.Err(); err != nil {
		return fmt.Errorf("the lock is not usable:\n%w", err)
	}
	if l.Components, err = chosen(l.Components, c.StringSlice("component")); err != nil {
		return err
	}
	for i := range l.Components {
		l.Components[i].Pins = nil // what is pinned now is not asked, so that a wrong pin can be replaced
	}
	verdicts, err := verifyLock(c, l)
	if err != nil {
		return err
	}
	var pins []lock.Pin
	for _, v := range verdicts {
		pins = append(pins, v.Pins...)
	}
	if data, err = lock.WithPins(file, data, pins); err != nil {
		return err
	}
	if err := replaceFile(file, data); err != nil {
		return err
	}
	for i := range verdicts {
		verdicts[i].Unpinned = nil // they are pinned now
	}
	if err := printVerdicts(c, verdicts); err != nil {
		return err
	}
	return failures(verdicts)
}

// chosen are those of the components that are named: all of them if none is.
func chosen(all []lock.Component, names []string) ([]lock.Component, error) {
	var known []string
	for _, c := range all {
		known = append(known, c.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("--component %s: the lock has none of that name, but %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c lock.Component) bool { return len(names) > 0 && !slices.Contains(names, c.Name) }), nil
}

func printVerdicts(c *cli.Context, verdicts []verdict) error {
	if structured(c) {
		return printResult(c, verdicts)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tVERSION\tVERDICT\tFROM")
	for _, v := range verdicts {
		word, from := "ok", fmt.Sprintf("%s %s%s", v.Source, v.Origin, notPinned(v))
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

// notPinned lists the files that no digest of the lock covers.
func notPinned(v verdict) string {
	var names []string
	for _, p := range v.Unpinned {
		names = append(names, p.File)
	}
	if len(names) == 0 {
		return ""
	}
	return "; not pinned: " + strings.Join(names, ", ")
}

// failures returns an error that lists the components that did not verify; nil if all did. It is an error too if
// nothing was verified.
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
	data, err := readFile(c.Context, file, lock.MaxInput)
	if err != nil {
		return usagef("lock update writes a lock file: %w", err)
	}
	l, problems := lock.Parse(file, data)
	if err := problems.Err(); err != nil {
		return fmt.Errorf("reading the lock:\n%w", err)
	}
	cache, err := os.MkdirTemp("", "hardtack-update-")
	if err != nil {
		return fmt.Errorf("lock update: %w", err)
	}
	defer os.RemoveAll(cache)
	f, err := fetch.New(fetch.Options{Cache: cache, Mirror: c.String("mirror"), NoPlainHTTP: !c.Bool("insecure-mirror"), Log: logger(c)})
	if err != nil {
		return usagef("%w", err)
	}
	updates, err := f.Updates(c.Context, l)
	if err != nil {
		return err
	}
	values := map[string]string{}
	for i, u := range updates {
		maps.Copy(values, u.Values)
		if p, _ := l.Component(u.Component); len(u.Values) > 0 && len(p.Pins) > 0 {
			updates[i].Note = strings.TrimPrefix(u.Note+"; its pins are gone: run hardtack lock pin", "; ")
		}
	}
	if len(values) > 0 && !c.Bool("dry-run") {
		if data, err = lock.Rewrite(file, data, values); err != nil {
			return err
		}
		if len(l.Pins) > 0 {
			if data, err = lock.WithPins(file, data, nil); err != nil {
				return err
			}
		}
		if err := replaceFile(file, data); err != nil {
			return err
		}
	}
	return printUpdates(c, updates)
}

// replaceFile replaces the file's content atomically, and keeps its mode.
func replaceFile(name string, data []byte) error {
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	if _, err := file.Replace(name, data, info.Mode().Perm()); err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// printUpdates prints the updates, and returns an error if one of them failed.
func printUpdates(c *cli.Context, updates []fetch.Update) error {
	var failed []string
	for _, u := range updates {
		if u.Problem != "" {
			failed = append(failed, u.Component+": "+u.Problem)
		}
	}
	if structured(c) {
		if err := printResult(c, updates); err != nil {
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
