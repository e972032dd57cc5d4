package datasource

import (
	"cmp"
	"fmt"
	"io/fs"

	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/packer-plugin-sdk/hcl2helper"
	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/template/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit/layer"
)

// Datasource reads a lock.
type Datasource struct {
	config Config
	assets fs.FS // images
	units  fs.FS
}

// New returns a data source for the plugin's assets and units.
func New(assets, units fs.FS) *Datasource { return &Datasource{assets: assets, units: units} }

var _ packer.Datasource = (*Datasource)(nil)

// ConfigSpec returns the HCL2 specification of Config.
func (d *Datasource) ConfigSpec() hcldec.ObjectSpec { return d.config.FlatMapstructure().HCL2Spec() }

// OutputSpec returns the HCL2 specification of DatasourceOutput.
func (d *Datasource) OutputSpec() hcldec.ObjectSpec {
	return (&DatasourceOutput{}).FlatMapstructure().HCL2Spec()
}

// Configure decodes the template's values.
func (d *Datasource) Configure(raws ...any) error {
	if err := config.Decode(&d.config, &config.DecodeOpts{PluginType: "hardtack-lock"}, raws...); err != nil {
		return err
	}
	d.config.Lock = cmp.Or(d.config.Lock, bake.DefaultLock)
	return nil
}

// Execute reads the lock and computes the fingerprint.
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
	plan := bake.Plan{Assets: d.assets, Units: d.units, Lock: lock}
	for _, dir := range d.config.UnitsDir {
		plan.Layers = append(plan.Layers, layer.Directory(dir))
	}
	for _, file := range d.config.Units {
		one, err := layer.Single(file)
		if err != nil {
			return DatasourceOutput{}, fmt.Errorf("units: %w", err)
		}
		plan.Layers = append(plan.Layers, one)
	}
	fingerprint, err := plan.Fingerprint()
	if err != nil {
		return DatasourceOutput{}, err
	}
	out := DatasourceOutput{Name: lock.Name, Kubernetes: lock.Kubernetes(), Fingerprint: fingerprint, Hardtack: version.String(), Versions: map[string]string{}}
	for _, c := range lock.Components {
		out.Versions[c.Name] = c.Version
	}
	return out, nil
}
