// Command packer-plugin-hardtack is the Packer plugin: a builder that makes a disk, a provisioner and a data source
// that bake Hardtack into a machine, and a post-processor that makes a machine image of the disk.
package main

import (
	"fmt"
	"os"

	"github.com/hashicorp/packer-plugin-sdk/plugin"
	sdkversion "github.com/hashicorp/packer-plugin-sdk/version"

	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/builder"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/datasource"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/postprocessor/ami"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/provisioner"
	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func main() {
	set := plugin.NewSet()
	set.RegisterBuilder("disk", builder.New(images.FS, provisioner.Program))
	set.RegisterProvisioner(plugin.DEFAULT_NAME, provisioner.New(images.FS, units.FS))
	set.RegisterPostProcessor("ami", ami.New())
	set.RegisterDatasource("lock", datasource.New(images.FS, units.FS))
	set.SetVersion(sdkversion.NewPluginVersion(version.Version, version.Prerelease, ""))
	if err := set.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
