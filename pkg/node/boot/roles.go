package boot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// checkRoles refuses a role of an operator's own that no unit names, neither of the image nor of the user data: a machine with
// it would start nothing, and say nothing. Hardtack's own roles are in every image.
func (a *agent) checkRoles(result userdata.Result) error {
	var problems []error
	for _, r := range role.Own(result.Roles) {
		names := regexp.MustCompile(`(?m)^Condition[A-Za-z]+=.*` + regexp.QuoteMeta(r.File()) + `\s*$`)
		found, err := a.anyUnit(names)
		if err != nil {
			return err
		}
		for _, f := range result.Files {
			found = found || isUnitFile(f.Path) && names.Match(f.Content)
		}
		if !found {
			problems = append(problems, fmt.Errorf("role %q: no unit of this image has ConditionPathExists=%s, so that nothing would start for it (launch an image with such a unit, or give the machine another role)", r, r.File()))
		}
	}
	return errors.Join(problems...)
}

// anyUnit reports whether a unit of the machine, or a drop-in of one, matches.
func (a *agent) anyUnit(names *regexp.Regexp) (bool, error) {
	for _, dir := range unitDirs {
		for _, pattern := range []string{"*.*", "*.d/*.conf"} {
			files, err := fs.Glob(os.DirFS(a.path(dir)), pattern)
			if err != nil {
				return false, fmt.Errorf("looking for units: %w", err)
			}
			for _, file := range files {
				text, err := os.ReadFile(a.path(path.Join(dir, file)))
				if err == nil && names.Match(bytes.TrimSpace(text)) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
