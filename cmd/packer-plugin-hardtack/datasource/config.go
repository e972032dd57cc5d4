//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,DatasourceOutput
//go:generate go tool packer-sdc struct-markdown

package datasource

// Config is what a template can say in `data "hardtack-lock"`.
type Config struct {
	// The lock file: a path, or the name of one that the plugin carries. The default is
	// `kubernetes-1.36`.
	Lock string `mapstructure:"lock"`
	// A directory of systemd units that the image is baked with, as in the provisioner's option of
	// that name: it is part of the fingerprint. The default is the units that the plugin carries.
	UnitsDir string `mapstructure:"units_dir"`
}

// DatasourceOutput is what a template gets.
type DatasourceOutput struct { //nolint:revive // packer-sdc documents only a struct of this name as output
	// The name of the lock, such as `kubernetes-1.36`.
	Name string `mapstructure:"name"`
	// The version of Kubernetes in it, such as `v1.36.3`.
	Kubernetes string `mapstructure:"kubernetes"`
	// Twelve hexadecimal digits that stand for everything that decides an image's content beside Debian
	// and what the template adds: Hardtack's version, the lock, the units, the plain files and the list
	// of packages. Use it in names of images.
	Fingerprint string `mapstructure:"fingerprint"`
	// The version of each component by its name.
	Versions map[string]string `mapstructure:"versions"`
}
