// Package bake writes a tree to a machine and verifies it there.
//
// Its rule: only what was read back counts. An upload can lose its end without an error, so every mode, link and digest
// is read on the target after writing, and any difference is an error. For the same reason a bake that was interrupted
// is repaired by running it again.
package bake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Target runs commands on a machine or in a root directory. Run passes the script to `sh -c` as root, with stdin, and
// copies its output to stdout and stderr before it returns; a nil reader is empty and a nil writer discards. exit is
// the exit status; err is only set if the script could not be run, or if its end is not known. Run returns soon after
// ctx ends, with ctx's error. It is never called concurrently.
type Target interface {
	Run(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (exit int, err error)
}

// Progress receives the progress of a bake.
type Progress interface {
	// Step starts a step; the text is for display: "verifying 143 files".
	Step(text string)
	// Sent reports that the target has received n more bytes of the stream, of total. It is called for every write and
	// must not block.
	Sent(n, total int64)
}

// Job is the input of a bake.
type Job struct {
	Tree *rootfs.Tree
	// Architecture of the tree, as Go writes it: "amd64".
	Architecture string
	// Packages are the required Debian packages; missing ones are installed.
	Packages []string
	// Image describes the tree for the manifest and the SBOM.
	Image Image
	// Progress may be nil; Log must be set.
	Progress Progress
	Log      *slog.Logger
}

// Result is the result of a bake.
type Result struct {
	// Written counts the written and removed paths: an identical second bake writes nothing.
	Written Written
	// Installed are the packages that were missing.
	Installed []string
	Manifest  Manifest
	// ManifestJSON and SBOM are the bytes that are in the image.
	ManifestJSON, SBOM []byte
	// Roles is the role table as text.
	Roles []byte
	// Warnings are findings about the target that the bake did not cause.
	Warnings []string
}

// Written counts the paths written to a target or removed from it.
type Written struct {
	Paths   int
	Bytes   int64
	Removed int
}

// baker is one bake under way.
type baker struct {
	job     Job
	target  Target
	result  Result
	journal journal
	// metadata is the tree of the manifest, the SBOM and the digests.
	metadata *rootfs.Tree
}

// Run bakes: on success the target holds exactly the tree, its manifest, SBOM and digests, and has passed every check.
// The error names the step, and the path if there is one. Running it again repairs a failed bake.
func Run(ctx context.Context, target Target, job Job) (Result, error) {
	b := &baker{job: job, target: target}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"probing the target", b.probe},
		{"installing packages", b.packages},
		{"writing the tree", b.writeTree},
		{"cleaning up", b.cleanup},
		{"writing the manifest", b.writeManifest},
		{"verifying the target", b.verify},
	}
	for _, step := range steps {
		start := time.Now()
		b.step("%s", step.name)
		if err := step.run(ctx); err != nil {
			return b.result, fmt.Errorf("%s: %w", step.name, err)
		}
		job.Log.Debug("bake step done", "step", step.name, "took", time.Since(start))
	}
	return b.result, nil
}

func (b *baker) step(format string, args ...any) {
	if b.job.Progress != nil {
		b.job.Progress.Step(fmt.Sprintf(format, args...))
	}
}

// Fingerprint is twelve hex digits over the inputs of an image, except for Debian itself and the additions of a
// template: Hardtack's version (and with it the agent), the lock, the package list, and the trees of units and plain
// files.
func Fingerprint(lock string, packages []string, trees ...fs.FS) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%s\x00%s\x00", version.String(), lock, strings.Join(packages, "\n"))
	for _, tree := range trees {
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(tree, name)
			fmt.Fprintf(hash, "%s\x00%d\x00%s", name, len(content), content)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("reading what goes into the image: %w", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// script runs a script that must succeed and returns what it printed.
func (b *baker) script(ctx context.Context, script string, stdin io.Reader) (string, error) {
	var out, errs bytes.Buffer
	exit, err := b.target.Run(ctx, prelude+script, stdin, &out, &errs)
	if err != nil {
		return "", err
	}
	if exit != 0 {
		return out.String(), &scriptError{exit: exit, output: strings.TrimSpace(errs.String())}
	}
	return out.String(), nil
}

// prelude sets the output format that is parsed here, and the modes of files that say.
const prelude = "export LC_ALL=C QUOTING_STYLE=literal; umask 022; "

// scriptError is a script that ran on the target and failed.
type scriptError struct {
	exit   int
	output string
}

func (e *scriptError) Error() string {
	if e.output == "" {
		return fmt.Sprintf("the target's shell ended with %d and said nothing", e.exit)
	}
	return fmt.Sprintf("the target's shell ended with %d: %s", e.exit, lastLines(e.output, 8))
}

// lastLines keeps the end of a long output, where tools say why.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append([]string{"…"}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}

// failedWith reports whether a script failed and the target's tools printed that text about it.
func failedWith(err error, text string) bool {
	var failed *scriptError
	return errors.As(err, &failed) && strings.Contains(failed.output, text)
}
