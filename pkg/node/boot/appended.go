package boot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// appendedPath is the record of what has been appended to files.
const appendedPath = "/var/lib/hardtack/appended.json"

// appended is the record of what user data has appended to files on this instance. cloud-init appends once for each instance,
// whatever the file has already, and this reader runs at every boot: what a file contains cannot say whether it was done, since
// "localhost" is also the end of a line that was there before.
//
// It is renamed into its place before the files are. So a crash between the two leaves a record of a file that still is as it was
// before, which is the one case in which a recorded append is done again.
type appended struct {
	// InstanceID is the instance's; the record of another one counts for nothing, as with cloud-init.
	InstanceID string         `json:"instance_id"`
	Files      []appendedFile `json:"files"`

	// boot is the boot's identifier on a machine with a sealed root, else empty.
	boot string
	// isNew: there is something that the record on the disk does not have.
	isNew bool
}

// appendedFile is one append: the SHA-256 of what was appended, and of the file before, in hex.
type appendedFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Before  string `json:"before"`
	// Boot is the boot that it was done in, where the file is made anew at each (/etc on a sealed root).
	Boot string `json:"boot,omitempty"`
}

// loadAppended returns the record for an instance, an empty one if there is none. One that cannot be read is a finding: what it
// says may be appended a second time.
func (a *agent) loadAppended(report *Report, instanceID string) *appended {
	none := &appended{InstanceID: instanceID}
	if a.sealed {
		none.boot = a.sys("/proc/sys/kernel/random/boot_id")
	}
	data, err := os.ReadFile(a.path(appendedPath))
	if errors.Is(err, fs.ErrNotExist) {
		return none
	}
	r := appended{boot: none.boot}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		report.Findings.Add(problem.Problem{File: appendedPath, Severity: problem.Warning,
			Text: "is not used, so that what user data appends may be appended again: " + err.Error()})
		return none
	}
	if r.InstanceID != instanceID {
		return none
	}
	return &r
}

// needs reports whether content is still to be appended to a file that has have, and records that it will be.
func (r *appended) needs(path string, have, content []byte) bool {
	f := appendedFile{Path: path, Content: digest(content), Before: digest(have)}
	if strings.HasPrefix(path, "/etc/") {
		f.Boot = r.boot
	}
	i := slices.IndexFunc(r.Files, func(done appendedFile) bool { return done.Path == f.Path && done.Content == f.Content })
	switch {
	case i < 0:
		r.Files = append(r.Files, f)
	case r.Files[i].Boot == f.Boot:
		return r.Files[i].Before == f.Before
	default:
		r.Files[i] = f
	}
	r.isNew = true
	return true
}

// step is the step that writes the record; none is needed if nothing is new.
func (r *appended) step(a *agent) ([]step, error) {
	if !r.isNew {
		return nil, nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", appendedPath, err)
	}
	s, err := a.step(userdata.File{Path: appendedPath, Content: append(data, '\n'), Mode: 0o600})
	return []step{s}, err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
