package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// optionsUnit applies what the document asks of all machines and what systemd applies before the user data is there. Every boot does it anew,
// since a sealed root forgets what is below /etc.
const optionsUnit = "hardtack-options.service"

// needsFile is the drop-in of a daemon that does not start where the unit has failed: a machine that is not as its document says does not
// become part of the cluster, and a refresh stops at the first one.
const needsFile = "60-hardtack-options.conf"

var (
	containerdUnit = component{executable: "containerd"}.unit()
	kubeletUnit    = component{executable: "kubelet"}.unit()
	// mainUnits are the daemons without which a role is none.
	mainUnits = map[role.Role]string{
		role.Masters: component{executable: "kube-apiserver"}.unit(), role.Etcd: component{executable: "etcd"}.unit(), role.Minions: containerdUnit,
	}
)

// options are the files of what all machines of the group get, whatever their roles, and the unit that applies them.
func (c *Complete) options(g Group) []File {
	files, commands := c.Cluster.Machines.kernelFiles()
	for _, more := range []func() ([]File, []string){c.Cluster.Machines.trustFiles, func() ([]File, []string) { return c.masquerade(g) }} {
		f, each := more()
		files, commands = append(files, f...), append(commands, each...)
	}
	files = append(files, c.limits(g)...)
	files = append(files, c.proxies(g)...)
	if len(commands) == 0 {
		return files
	}
	text := "[Unit]\nDescription=Applies what the cluster's document says of all machines\nAfter=" + unit.UserData + "\nBefore=" + strings.Join(daemons(g), " ") +
		"\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
		// systemd's programs write to the journal past a console, unless they are told to write to stderr, which is what this target is.
		"Environment=SYSTEMD_LOG_TARGET=console\nStandardError=journal+console\n"
	for _, command := range commands {
		text += "ExecStart=" + command + "\n"
	}
	files = append(files, File{Path: path.Join(unitDir, optionsUnit), Content: []byte(text + "\n[Install]\nWantedBy=multi-user.target\n")})
	for _, r := range g.Roles {
		if name := mainUnits[r]; name != "" {
			files = append(files, File{Path: path.Join(unitDir, name+".d", needsFile), Content: []byte("[Unit]\nRequires=" + optionsUnit + "\nAfter=" + optionsUnit + "\n")})
		}
	}
	return files
}

// daemons are the units of the group's roles, without duplicates.
func daemons(g Group) []string {
	var names []string
	for _, u := range g.Roles.Units() {
		if !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}

// ownFile says which field of the document writes a file, or "": one of fileAssets in its place would be lost, or win by accident.
func ownFile(name string) string {
	switch base := path.Base(name); {
	case name == sysctlFile:
		return "machines.sysctls"
	case name == modulesFile || name == modprobeFile:
		return "machines.kernelModules"
	case base == limitsFile && path.Dir(name) == path.Join(unitDir, containerdUnit+".d"):
		return "machines.nofile"
	case base == proxyFile && strings.HasPrefix(name, unitDir+"/"):
		return "proxy"
	case name == masqueradeFile:
		return "network.nonMasqueradeCIDRs"
	case isAnchor(name):
		return "machines.trustAnchors"
	case name == clockFile || name == path.Join(unitDir, clockUnit):
		return "network.timeServers"
	case name == path.Join(unitDir, optionsUnit) || base == needsFile && strings.HasPrefix(name, unitDir+"/"):
		return "machines"
	}
	return ""
}
