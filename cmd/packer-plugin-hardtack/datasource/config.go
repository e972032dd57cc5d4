//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,DatasourceOutput
//go:generate go tool packer-sdc struct-markdown

package datasource

// Config is the configuration of `data "hardtack-lock"`.
type Config struct {
	// The lock file: a path, or the name of a lock of the plugin. The default is `kubernetes-1.36`.
	Lock string `mapstructure:"lock"`
	// Directories of systemd units that lie over the plugin's, as in the provisioner's option of this name: they are part of
	// the fingerprint.
	UnitsDir []string `mapstructure:"units_dir"`
	// Paths of systemd units to add, as in the provisioner's option of this name: they are part of the fingerprint.
	Units []string `mapstructure:"units"`
}

// DatasourceOutput is the output of the data source.
type DatasourceOutput struct { //nolint:revive // packer-sdc documents only a struct of this name as output
	// The name of the lock, such as `kubernetes-1.36`.
	Name string `mapstructure:"name"`
	// The version of Kubernetes in it, such as `v1.36.3`.
	Kubernetes string `mapstructure:"kubernetes"`
	// Twelve hexadecimal digits that stand for the image's content, except for Debian and the template's additions:
	// Hardtack's version, the lock, the units, the plain files and the list of packages. Use it in tags of images; a name
	// with it is not known to `packer validate`, which runs data sources only with `-evaluate-datasources`.
	Fingerprint string `mapstructure:"fingerprint"`
	// The version of Hardtack, which is the plugin's, such as `0.1.0`.
	Hardtack string `mapstructure:"hardtack"`
	// The versions of the components by their names.
	Versions map[string]string `mapstructure:"versions"`
}
