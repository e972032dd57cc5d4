package bake

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Base is a release of a distribution, and what is known about an image on it.
type Base struct {
	// ID and Version are those of os-release.
	ID, Version string
	// Systemd is the major version of systemd in it.
	Systemd int
	// Tested is set where images are baked and booted by Hardtack's own tests.
	Tested bool
}

// LeastSystemd is the first version of systemd that knows all settings of the units: RestartSteps= and RestartMaxDelaySec=.
const LeastSystemd = 254

// Bases lists the releases whose systemd was looked up. Another release of a Debian is judged by the systemd that it has.
func Bases() []Base {
	return []Base{
		{"debian", "13", 257, true},
		{"debian", "12", 252, false},
		{"debian", "11", 247, false},
		{"ubuntu", "24.04", 255, false},
		{"ubuntu", "22.04", 249, false},
	}
}

// base refuses a target by its os-release and its systemd.
func (b *baker) base(ctx context.Context) error {
	out, err := b.script(ctx, `. /etc/os-release
printf '%s\n' "$ID" "$ID_LIKE" "${VERSION_ID:-$VERSION_CODENAME}" "$PRETTY_NAME"
systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p'`, nil)
	if err != nil {
		return fmt.Errorf("reading the target's os-release: %w", err)
	}
	fields := append(strings.Split(strings.TrimSuffix(out, "\n"), "\n"), "", "", "", "", "")
	return judge(osRelease{id: fields[0], like: strings.Fields(fields[1]), version: fields[2], name: fields[3]}, parseInt(fields[4]))
}

// osRelease is what a target says of itself.
type osRelease struct {
	id      string
	like    []string
	version string
	name    string
}

// judge returns why a base is refused, or nil. A systemd of 0 was not found.
func judge(o osRelease, systemd int) error {
	const next = "bake on Debian 13, as the builder hardtack-disk and the templates aws.pkr.hcl and local.pkr.hcl do"
	name := strings.TrimSpace(o.name)
	if name == "" {
		name = strings.TrimSpace(o.id + " " + o.version)
	}
	if !slices.Contains(append(o.like, o.id), "debian") {
		return fmt.Errorf("the target is %s, and images are made of a Debian system (%s)", name, next)
	}
	for _, known := range Bases() {
		if systemd == 0 && known.ID == o.id && known.Version == o.version {
			systemd = known.Systemd
		}
	}
	switch {
	case systemd == 0:
		return fmt.Errorf("the target is %s, and has no systemd (%s)", name, next)
	case systemd < LeastSystemd:
		return fmt.Errorf("the target is %s with systemd %d, and the units need %d (%s)", name, systemd, LeastSystemd, next)
	}
	return nil
}
