package bake

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// tools are the programs that the scripts of this package use; all are in a Debian of the smallest kind.
const tools = "tar sha256sum stat xargs find grep rm rmdir df uname dpkg-query systemd-analyze"

// machines maps Go's names of architectures to what `uname -m` prints.
func machines() map[string]string { return map[string]string{"amd64": "x86_64", "arm64": "aarch64"} }

// Architecture returns the target's architecture, as Go writes it. It first verifies that the target runs commands and
// returns their output and exit status.
func Architecture(ctx context.Context, target Target) (string, error) {
	if err := checkTarget(ctx, target); err != nil {
		return "", err
	}
	b := &baker{target: target}
	out, err := b.script(ctx, "uname -m", nil)
	if err != nil {
		return "", fmt.Errorf("asking the target for its architecture: %w", err)
	}
	machine := strings.TrimSpace(out)
	for arch, name := range machines() {
		if name == machine {
			return arch, nil
		}
	}
	return "", fmt.Errorf("the target is a %q machine: Hardtack has images for x86_64 and aarch64", machine)
}

// checkTarget verifies that the output and the exit status of a command are returned. Packer's communicator "none"
// runs nothing and says that everything succeeded.
func checkTarget(ctx context.Context, target Target) error {
	nonce := rand.Text()
	var out, errs bytes.Buffer
	if _, err := target.Run(ctx, "echo "+nonce, nil, &out, &errs); err != nil {
		return err
	}
	if strings.TrimSpace(out.String()) != nonce {
		return fmt.Errorf("the target does not run commands: `echo %s` printed %q%s (a build with communicator = \"none\" cannot be provisioned; "+
			"use ssh, or the builder hardtack-disk)", nonce, out.String(), firstReason(errs.String()))
	}
	exit, err := target.Run(ctx, "exit 7", nil, nil, nil)
	if err != nil {
		return err
	}
	if exit != 7 {
		return fmt.Errorf("the target reports exit status %d for `exit 7`: nothing that it says can be relied on "+
			"(use a communicator that reports exit statuses, such as ssh)", exit)
	}
	return nil
}

func firstReason(stderr string) string {
	if stderr = strings.TrimSpace(stderr); stderr != "" {
		return " and said " + lastLines(stderr, 3)
	}
	return ""
}

// probe checks cheaply what the slow steps rely on.
func (b *baker) probe(ctx context.Context) error {
	arch, err := Architecture(ctx, b.target)
	if err != nil {
		return err
	}
	if arch != b.job.Architecture {
		return fmt.Errorf("the target is %s and the tree is for %s", arch, b.job.Architecture)
	}
	return Probe(ctx, b.target)
}

// Probe checks that the target is a system that a tree can be baked into, and that commands run as root: in a moment, and
// before anything is fetched for it.
func Probe(ctx context.Context, target Target) error {
	b := &baker{target: target}
	if err := b.base(ctx); err != nil {
		return err
	}
	out, err := b.script(ctx, `
for tool in `+tools+`; do command -v "$tool" >/dev/null || echo "missing $tool"; done
[ "$(id -u)" = 0 ] || echo "not root"
tar --version 2>/dev/null | grep -q "GNU tar" || echo "missing GNU tar"
test -d /usr/lib/systemd/system || echo "missing systemd"`, nil)
	if err != nil {
		return err
	}
	var problems []error
	for line := range strings.Lines(out) {
		problems = append(problems, errors.New(strings.TrimSpace(line)))
	}
	if len(problems) > 0 {
		return fmt.Errorf("the target is not a Debian system that commands run in as root: %w", errors.Join(problems...))
	}
	return nil
}
