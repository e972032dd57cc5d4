package template

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

const zoneID = "Zone"

// zone adds the private zone, if the stack makes it, and then also the placeholders of the cluster.
func (b *builder) zone() {
	name := strings.TrimSuffix(record.DefaultSuffix, ".")
	b.out.Resources[zoneID] = Resource{Type: "AWS::Route53::HostedZone", Condition: makesZone, Properties: object{
		"Name":             name,
		"HostedZoneConfig": object{"Comment": "Hardtack: the records of the clusters in this VPC, kept by hardtack-dns"},
		"VPCs":             []any{object{"VPCId": ref(ParameterVPC), "VPCRegion": ref("AWS::Region")}},
	}}
	for id, set := range b.placeholders() {
		values := []any{}
		for _, v := range set.Values {
			if set.Type == record.TXT {
				v = `"` + v + `"` // our own values need no escaping
			}
			values = append(values, v)
		}
		b.out.Resources[id] = Resource{Type: "AWS::Route53::RecordSet", Condition: makesZone,
			DeletionPolicy: "RetainExceptOnCreate", UpdateReplacePolicy: "Retain",
			Properties: object{
				"HostedZoneId": ref(zoneID), "Name": set.Name, "Type": set.Type, "TTL": fmt.Sprint(int(set.TTL.Seconds())), "ResourceRecords": values,
			}}
	}
	b.out.Outputs[OutputZone] = Output{Description: "The private zone: ZoneId of the function's stack",
		Value: choose(makesZone, ref(zoneID), ref(ParameterZone))}
}

// placeholders are the records with which a cluster is created, by their logical names.
func (b *builder) placeholders() map[string]record.Set {
	sets := map[string]record.Set{}
	for _, set := range record.Placeholders(b.cluster.Cluster.Name, record.DefaultPolicy()) {
		label, _, _ := strings.Cut(set.Name, ".")
		id := "Placeholder" + logical(strings.TrimLeft(label, "_"))
		sets[id] = set
	}
	return sets
}
