package template

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

//go:embed terraform/*.tf terraform/key/*.tf
var terraform embed.FS

// ModuleData is the file of a Terraform module with the values from the cluster's document.
const ModuleData = "cluster.json"

// moduleData is the input of the module's plain files.
type moduleData struct {
	Cluster string                `json:"cluster"`
	Names   []string              `json:"names"`
	Groups  map[string]groupModel `json:"groups"`
	// Volumes are by the names of members.
	Volumes map[string]moduleVolume `json:"volumes"`
	// Backups is the bucket of etcd's backups, if there is to be one.
	Backups []moduleBackups `json:"backups"`
	Pods    modulePods      `json:"pods"`
	Roles   []string        `json:"roles"`
	// RoleTags are further tags of the security group of a role.
	RoleTags     map[string]map[string]string `json:"role_tags"`
	Ingress      []rule                       `json:"ingress"`
	Zone         string                       `json:"zone"`
	Placeholders []moduleRecord               `json:"placeholders"`
	APIPort      int                          `json:"api_port"`
	APIAccess    []accessRange                `json:"api_access"`
	// Tags are the document's, of everything.
	Tags map[string]string `json:"tags"`
	// CapacityTimeout is for how many seconds Terraform waits for a group's machines, whose launch hook may take the most of it.
	CapacityTimeout int       `json:"capacity_timeout"`
	AWS             moduleAWS `json:"aws"`
}

type moduleAWS struct {
	LoadBalancer string `json:"load_balancer"`
	Key          string `json:"key"`
	// DualStack is whether the load balancer has addresses of IPv6 too.
	DualStack      bool   `json:"dual_stack"`
	ImageParameter string `json:"image_parameter"`
	RootDevice     string `json:"root_device"`
}

// moduleVolume is the volume of a member of etcd, in the zone of the subnet at Place.
type moduleVolume struct {
	Name       string `json:"name"`
	Place      int    `json:"place"`
	Size       int    `json:"size"`
	IOPS       int    `json:"iops"`
	Throughput int    `json:"throughput"`
	Key        string `json:"key"`
}

type moduleRecord struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	TTL    int      `json:"ttl"`
	Values []string `json:"values"`
}

// capacityMargin is the time that a machine has, in seconds, beside its launch hook's: EC2 starts it, and a first one may fail.
const capacityMargin = 600

// Module returns the files, by name, of a Terraform module that makes the same resources as Render's template: plain
// files that are the same for every cluster, and ModuleData. If aws.secretsKey is an alias, the directory key has a module
// that makes the key.
func Module(c *spec.Complete, ca []byte, options ...Option) (map[string][]byte, error) {
	b, err := newBuilder(c, ca, options...)
	if err != nil {
		return nil, err
	}
	data, err := b.module()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", ModuleData, err)
	}
	files := map[string][]byte{ModuleData: append(text, '\n')}
	names, err := fs.Glob(terraform, "terraform/*.tf")
	if err != nil {
		return nil, fmt.Errorf("reading the module: %w", err)
	}
	if key := c.Cluster.AWS.SecretsKey; strings.HasPrefix(key, "alias/") {
		names = append(names, "terraform/key/main.tf")
		text, err := json.MarshalIndent(map[string]any{"cluster": c.Cluster.Name, "alias": key, "tags": c.Cluster.AWS.Tags}, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("writing %s of the key: %w", ModuleData, err)
		}
		files[path.Join("key", ModuleData)] = append(text, '\n')
	}
	for _, name := range names {
		if files[strings.TrimPrefix(name, "terraform/")], err = terraform.ReadFile(name); err != nil {
			return nil, fmt.Errorf("reading the module: %w", err)
		}
	}
	return files, nil
}

func (b *builder) module() (moduleData, error) {
	s := b.cluster.Cluster
	data := moduleData{
		Cluster: s.Name, Names: b.names(), Groups: map[string]groupModel{}, Volumes: map[string]moduleVolume{}, Backups: b.moduleBackups(), Pods: b.modulePods(), RoleTags: map[string]map[string]string{},
		Zone: strings.TrimSuffix(record.DefaultSuffix, "."), APIPort: s.API.Port, APIAccess: b.ranges(),
		AWS:     moduleAWS{s.AWS.LoadBalancer, s.AWS.Key, b.dualStack(), ImageParameter(s.AWS.Channel), ami.RootDevice},
		Ingress: b.rules(), Tags: b.ownTags(nil), CapacityTimeout: launchTimeout + capacityMargin,
	}
	if !b.has(role.Masters) {
		data.AWS.LoadBalancer = spec.LoadBalancerNone
	}
	for _, r := range b.roles() {
		if !b.reached(r) {
			continue
		}
		data.Roles = append(data.Roles, string(r))
		if b.ownsNodes(r) {
			data.RoleTags[string(r)] = map[string]string{ownedTag(s.Name): owned}
		}
	}
	for _, set := range record.Placeholders(s.Name, record.DefaultPolicy()) {
		data.Placeholders = append(data.Placeholders, moduleRecord{set.Name, set.Type, int(set.TTL.Seconds()), set.Values})
	}
	for _, g := range b.cluster.Groups {
		group, err := b.model(g)
		if err != nil {
			return moduleData{}, fmt.Errorf("group %s: %w", g.Name, err)
		}
		data.Groups[b.cluster.AutoScaling(g)] = group
		if e := s.Etcd; b.cluster.Volume(g) {
			data.Volumes[g.Member] = moduleVolume{b.volumeName(g), b.place(g), e.Size, e.IOPS, e.Throughput, e.Key}
		}
	}
	return data, nil
}
