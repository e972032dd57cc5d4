// Package terraform reads what Terraform has made of a cluster: the output "hardtack" of the module that
// `hardtack stack terraform` writes.
//
// Its rule: it reads what it is given and runs nothing. Terraform's state is Terraform's own, and is never written.
package terraform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Output is the name of the module's output with everything that Hardtack's commands need.
const Output = "hardtack"

// version is that of the output's form.
const version = 1

// Outputs is what the module has made.
type Outputs struct {
	// Cluster is the cluster's name, Region where it is.
	Cluster string `json:"cluster"`
	Region  string `json:"region"`
	// Zone is the id of the hosted zone, OwnsZone whether `terraform destroy` deletes it.
	Zone     string `json:"zone_id"`
	OwnsZone bool   `json:"owns_zone"`
	// Groups are the names of the AutoScaling groups, in the document's order, and Roles their instance roles.
	Groups []string          `json:"groups"`
	Roles  map[string]string `json:"roles"`
	// Machines is whether the groups are to have machines.
	Machines bool `json:"machines"`
	// LoadBalancer is the DNS name of the load balancer before the API servers, empty without one.
	LoadBalancer string `json:"load_balancer,omitempty"`
}

// ErrNoOutput means that the text has outputs, and not the module's.
var ErrNoOutput = errors.New(`there is no output "hardtack"`)

// Parse reads the output from any of the forms in which Terraform gives it: `terraform output -json`, `terraform output -json hardtack`,
// `terraform show -json`, and a state, as a file or from `terraform state pull`. A module that is a part of a larger one has the output
// only if that one passes it on.
func Parse(data []byte) (*Outputs, error) {
	value, err := find(data)
	if err != nil {
		return nil, err
	}
	var out struct {
		Outputs
		Version int `json:"version"`
	}
	if err := json.Unmarshal(value, &out); err != nil {
		return nil, fmt.Errorf("reading Terraform's output %s: %w", Output, err)
	}
	if out.Version != version {
		return nil, fmt.Errorf("reading Terraform's output %s: its form is %d, and this program knows %d: write the module with this program, and apply it", Output, out.Version, version)
	}
	if err := out.check(); err != nil {
		return nil, fmt.Errorf("reading Terraform's output %s: %w", Output, err)
	}
	return &out.Outputs, nil
}

// output is an output in a state and in `terraform output -json`.
type output struct {
	Value json.RawMessage `json:"value"`
}

// find finds the value of the output in any of the forms.
func find(data []byte) (json.RawMessage, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		if looksLikeText(data) {
			return nil, fmt.Errorf("reading Terraform's outputs: this is not JSON: give it the state's file, or what terraform output -json prints")
		}
		return nil, fmt.Errorf("reading Terraform's outputs: %w", err)
	}
	switch {
	case top["groups"] != nil && top["cluster"] != nil:
		return data, nil
	case top["values"] != nil: // terraform show -json
		var values struct {
			Outputs map[string]output `json:"outputs"`
		}
		if err := json.Unmarshal(top["values"], &values); err != nil {
			return nil, fmt.Errorf("reading Terraform's values: %w", err)
		}
		return among(values.Outputs)
	case top["terraform_version"] != nil: // a state; that of a plan or of nothing has no outputs
		var outputs map[string]output
		if err := json.Unmarshal(orEmpty(top["outputs"]), &outputs); err != nil {
			return nil, fmt.Errorf("reading the outputs of Terraform's state: %w", err)
		}
		return among(outputs)
	}
	var outputs map[string]output
	if err := json.Unmarshal(data, &outputs); err != nil {
		return nil, fmt.Errorf("reading Terraform's outputs: %w", err)
	}
	return among(outputs)
}

func orEmpty(data json.RawMessage) json.RawMessage {
	if data == nil {
		return json.RawMessage("{}")
	}
	return data
}

func looksLikeText(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && data[0] != '{'
}

func among(outputs map[string]output) (json.RawMessage, error) {
	if found, ok := outputs[Output]; ok {
		return found.Value, nil
	}
	names := "it has none at all: has it been applied?"
	if len(outputs) > 0 {
		names = "it has " + strings.Join(slices.Sorted(maps.Keys(outputs)), ", ")
	}
	return nil, fmt.Errorf("reading Terraform's outputs: %w (%s)", ErrNoOutput, names)
}

// check reports everything that is missing.
func (o *Outputs) check() error {
	var errs []error
	for name, value := range map[string]string{"cluster": o.Cluster, "region": o.Region, "zone_id": o.Zone} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", name))
		}
	}
	if len(o.Groups) == 0 {
		errs = append(errs, errors.New("groups is empty"))
	}
	for i, name := range o.Groups {
		if name == "" || slices.Index(o.Groups, name) < i {
			errs = append(errs, fmt.Errorf("groups[%d]: %q is empty or there twice", i, name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
