package boot

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// unitDir is where user data may put units and drop-ins.
const unitDir = "/etc/systemd/system"

// Units is the service manager. It is only used if the user data has units. Reload makes it read all unit files again
// and keeps waiting jobs. Start queues a start of each unit, in order, and does not wait for them. The caller closes
// it.
type Units interface {
	Reload(ctx context.Context) error
	Start(ctx context.Context, names ...string) error
	Close()
}

// isUnitFile reports whether a path is that of a unit or a drop-in.
func isUnitFile(name string) bool { return strings.HasPrefix(name, unitDir+"/") }

// unitKinds are the suffixes of units that can be started by being installed.
var unitKinds = []string{".service", ".socket", ".timer", ".path", ".mount", ".target"}

// installed lists the units of the user data that ask to be started with the machine, in the order of the
// user data. No link is made for that: the user data of every boot says it anew.
func installed(files []userdata.File) []string {
	var names []string
	for _, f := range files {
		name := path.Base(f.Path)
		if path.Dir(f.Path) != unitDir || !slices.Contains(unitKinds, path.Ext(name)) || strings.Contains(name, "@") {
			continue
		}
		options, _ := unit.Parse(name, f.Content)
		if slices.ContainsFunc(options, func(o unit.Option) bool {
			return o.Section == "Install" && (o.Name == "WantedBy" || o.Name == "RequiredBy")
		}) {
			names = append(names, name)
		}
	}
	return names
}

// notifyUnits makes the service manager load the units of the user data, and starts those that have an [Install]
// section. systemd has read its units and queued its start jobs before this program runs; but every unit of a role
// waits for this program, so that units started here keep their order relative to those.
func (a *agent) notifyUnits(ctx context.Context, changed bool, names []string) (err error) {
	if !changed && len(names) == 0 {
		return nil
	}
	if a.units == nil {
		a.log.Warn("the user data has units, and nothing here tells a service manager of them", "units", names)
		return nil
	}
	units, err := a.units(ctx)
	if err != nil {
		return fmt.Errorf("telling systemd of the user data's units: %w", err)
	}
	defer units.Close()
	if changed {
		if err := units.Reload(ctx); err != nil {
			return fmt.Errorf("having systemd read the user data's units: %w", err)
		}
	}
	if err := units.Start(ctx, names...); err != nil {
		return fmt.Errorf("starting the user data's units: %w", err)
	}
	return nil
}

// notifyKeptUnits loads and starts the units of the last user data, which the machine keeps.
func (a *agent) notifyKeptUnits(ctx context.Context, before state) error {
	if a.dryRun {
		return nil
	}
	var files []userdata.File
	for _, name := range before.Files {
		if !isUnitFile(name) {
			continue
		}
		data, err := os.ReadFile(a.path(name))
		if err != nil {
			return fmt.Errorf("reading a unit of the user data that is kept: %w", err)
		}
		files = append(files, userdata.File{Path: name, Content: data})
	}
	return a.notifyUnits(ctx, false, installed(files))
}
