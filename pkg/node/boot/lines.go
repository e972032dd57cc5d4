package boot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// RuleLine is the rule of findings about lines of role files.
const RuleLine = "role-line"

// correctedFile overrides lines of role files that today's daemons do not accept. Units read it after the role file.
const correctedFile = "/run/hardtack/corrected.env"

// unitDirs are where units are: the image's, and the user data's.
var unitDirs = []string{"/usr/lib/systemd/system", unitDir}

// The seed's line for the cloud provider. Kubernetes 1.31 has removed the providers that were built in (KEP-2395): of the
// flag's values an empty one and "external" are left, and with any other the kubelet does not start.
const (
	cloudVariable = "CLOUD_PROVIDER"
	cloudFlag     = "--cloud-provider="
	cloudExternal = "external"
)

// roleTexts returns the contents of the role files that the steps write.
func roleTexts(steps []step) map[role.Role]string {
	texts := map[role.Role]string{}
	for _, s := range steps {
		if r, ok, err := role.OfFile(s.path); ok && err == nil {
			texts[r] = string(s.content)
		}
	}
	return texts
}

// keptRoleFiles are the contents of role files as they are.
func (a *agent) keptRoleFiles(roles role.Set) (map[role.Role]string, error) {
	texts := map[role.Role]string{}
	for _, r := range roles {
		text, err := os.ReadFile(a.path(r.File()))
		if err != nil {
			return nil, fmt.Errorf("reading a role file back: %w", err)
		}
		texts[r] = string(text)
	}
	return texts, nil
}

// checkLines checks the lines of the role files: a line that no program reads is a warning with the nearest known name,
// and one that would keep a daemon from starting is overridden.
func (a *agent) checkLines(report *Report, texts map[role.Role]string) error {
	corrected := ""
	for _, r := range report.Roles {
		vars := envfile.Parse(texts[r])
		known := append(config.Variables(r), a.unitVariables(r)...)
		for _, v := range vars {
			if slices.Contains(known, v.Name) || r == role.Etcd && strings.HasPrefix(v.Name, etcdPrefix) {
				continue
			}
			report.warn(r, v.Line, near.DidYouMean(v.Name, known), "the line %s= is read by no program on this machine", v.Name)
		}
		if value, _ := vars.Get(cloudVariable); slices.Contains(known, cloudVariable) && !isCloudProvider(value) {
			corrected = cloudVariable + "=\n"
			report.warn(r, 0, fmt.Sprintf("leave it out; %s=%s%s is for a cluster that runs a cloud controller manager", cloudVariable, cloudFlag, cloudExternal),
				"the line %s=%s is not used: Kubernetes has no built-in cloud providers since 1.31", cloudVariable, value)
		}
	}
	if corrected == "" || a.dryRun {
		return nil
	}
	s, err := a.step(userdata.File{Path: correctedFile, Content: []byte(corrected), Mode: 0o644})
	if err != nil {
		return err
	}
	return a.write([]step{s})
}

// etcdPrefix begins the variables that etcd itself reads.
const etcdPrefix = "ETCD_"

func (r *Report) warn(of role.Role, line int, hint, format string, args ...any) {
	r.Findings.Add(problem.Problem{File: of.File(), Line: line, Severity: problem.Warning, Rule: RuleLine, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// isCloudProvider reports whether a value of CLOUD_PROVIDER is one that daemons take.
func isCloudProvider(value string) bool {
	value = strings.TrimSpace(value)
	return value == "" || value == cloudFlag || value == cloudFlag+cloudExternal
}

// unitVariables are the variables in the command lines of units that read the role's file.
func (a *agent) unitVariables(r role.Role) []string {
	variable := regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]*)`)
	var names []string
	for _, dir := range unitDirs {
		files, _ := filepath.Glob(filepath.Join(a.path(dir), "*.service")) // the pattern is a good one
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(text, []byte("EnvironmentFile="+r.File())) && !bytes.Contains(text, []byte("EnvironmentFile=-"+r.File())) {
				continue // a link that leads nowhere is systemd's to tell of
			}
			for _, m := range variable.FindAllSubmatch(text, -1) {
				if name := string(m[1]); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
