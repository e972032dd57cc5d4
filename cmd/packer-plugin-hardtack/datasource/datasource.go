//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,DatasourceOutput
//go:generate go tool packer-sdc struct-markdown

package datasource

import (
	"cmp"
	"io/fs"
	"os"

	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/packer-plugin-sdk/hcl2helper"
	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/template/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
)

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
type DatasourceOutput struct {
	// The name of the lock, such as `kubernetes-1.36`.
	Name string `mapstructure:"name"`
	// The version of Kubernetes in it, such as `v1.36.3`.
	Kubernetes string `mapstructure:"kubernetes"`
	// Twelve hexadecimal digits that stand for everything that decides an image's content beside
	// Debian: the lock, the units, the plain files and the list of packages. Use it in names of images.
	Fingerprint string `mapstructure:"fingerprint"`
	// The version of each component by its name.
	Versions map[string]string `mapstructure:"versions"`
}

// Datasource reads a lock.
type Datasource struct {
	config Config
	assets fs.FS // images
	units  fs.FS
}

// New makes a data source over the files that the plugin carries.
func New(assets, units fs.FS) *Datasource { return &Datasource{assets: assets, units: units} }

var _ packer.Datasource = (*Datasource)(nil)

// ConfigSpec is the shape of Config for Packer.
func (d *Datasource) ConfigSpec() hcldec.ObjectSpec { return d.config.FlatMapstructure().HCL2Spec() }

// OutputSpec is the shape of DatasourceOutput for Packer.
func (d *Datasource) OutputSpec() hcldec.ObjectSpec {
	return (&DatasourceOutput{}).FlatMapstructure().HCL2Spec()
}

// Configure takes the template's values.
func (d *Datasource) Configure(raws ...any) error {
	if err := config.Decode(&d.config, &config.DecodeOpts{PluginType: "hardtack-lock"}, raws...); err != nil {
		return err
	}
	d.config.Lock = cmp.Or(d.config.Lock, bake.DefaultLock)
	return nil
}

// Execute reads the lock and everything else that the fingerprint stands for.
func (d *Datasource) Execute() (cty.Value, error) {
	out, err := d.read()
	if err != nil {
		return cty.NullVal(cty.EmptyObject), err
	}
	return hcl2helper.HCL2ValueFromConfig(out, d.OutputSpec()), nil
}

func (d *Datasource) read() (DatasourceOutput, error) {
	lock, err := bake.LoadLock(d.assets, d.config.Lock)
	if err != nil {
		return DatasourceOutput{}, err
	}
	packages, err := bake.Packages(d.assets)
	if err != nil {
		return DatasourceOutput{}, err
	}
	plain, err := fs.Sub(d.assets, "rootfs")
	if err != nil {
		return DatasourceOutput{}, err
	}
	units := d.units
	if d.config.UnitsDir != "" {
		units = os.DirFS(d.config.UnitsDir)
	}
	fingerprint, err := bake.Fingerprint(lock.Fingerprint(), packages, units, plain)
	if err != nil {
		return DatasourceOutput{}, err
	}
	out := DatasourceOutput{Name: lock.Name, Kubernetes: lock.Kubernetes(), Fingerprint: fingerprint, Versions: map[string]string{}}
	for _, c := range lock.Components {
		out.Versions[c.Name] = c.Version
	}
	return out, nil
}
