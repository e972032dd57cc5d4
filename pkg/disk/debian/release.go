package debian

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Release is the state of the archive: the signed release file of every suite that is used.
type Release struct {
	// Digests maps a release file's name, as apt keeps it, to its sha256 in hex.
	Digests map[string]string `json:"digests"`
	// Date is the newest of the release files' dates: no package is younger.
	Date time.Time `json:"date"`
}

// pinHook fetches the release files and nothing else, copies them out, and ends mmdebstrap, which has
// nothing more to do. apt checks the signatures.
const pinHook = `set -e
APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q --error-on=any update \
	-o Acquire::Languages=none \
	-o Acquire::IndexTargets::deb::Packages::DefaultEnabled=false \
	-o Acquire::IndexTargets::deb::Translations::DefaultEnabled=false
cp "$1"/var/lib/apt/lists/*Release .
touch fetched
exit 1`

// Pin reads the archive's release files. work is an existing directory for temporary files. It takes
// about a second.
func Pin(ctx context.Context, o Options, work string) (Release, error) {
	dir, err := os.MkdirTemp(work, "release-")
	if err != nil {
		return Release{}, fmt.Errorf("directory for release files: %w", err)
	}
	defer os.RemoveAll(dir)
	args := append([]string{"mmdebstrap", "--variant=custom", "--format=null", "--setup-hook=" + pinHook}, o.source()...)
	err = mmdebstrap(ctx, dir, environment(work, 0, false), nil, append(args, o.positional("-")...))
	if ctx.Err() != nil {
		return Release{}, ctx.Err()
	}
	if _, missing := os.Stat(filepath.Join(dir, "fetched")); missing != nil {
		return Release{}, fmt.Errorf("reading release files of suite %s: %w", o.Suite, errors.Join(ErrArchive, err))
	}
	return readRelease(dir)
}

// ErrArchive means that the archive could not be read. It is not reachable, or has no such suite, or its signature is invalid.
var ErrArchive = errors.New("the archive could not be read (is the suite's name right, and the mirror reachable?)")

func readRelease(dir string) (Release, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*Release"))
	if err != nil || len(files) == 0 {
		return Release{}, fmt.Errorf("release files in %s: none found", dir)
	}
	r := Release{Digests: make(map[string]string)}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return Release{}, fmt.Errorf("release file: %w", err)
		}
		date, err := releaseDate(data)
		if err != nil {
			return Release{}, fmt.Errorf("release file %s: %w", filepath.Base(file), err)
		}
		if date.After(r.Date) {
			r.Date = date
		}
		sum := sha256.Sum256(data)
		r.Digests[filepath.Base(file)] = hex.EncodeToString(sum[:])
	}
	return r, nil
}

// releaseDate finds the Date field, which RFC 1123 formats except that its zone is spelled UTC.
func releaseDate(data []byte) (time.Time, error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), "Date:")
		if !ok {
			continue
		}
		date, err := time.Parse(time.RFC1123, strings.TrimSpace(value))
		if err != nil {
			return time.Time{}, fmt.Errorf("field Date: %w", err)
		}
		return date.UTC(), nil
	}
	if err := lines.Err(); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, errors.New("has no field Date")
}
