package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// Quota is one of the account's quotas in the region, and what of it is used.
type Quota struct {
	// Name is that of the check, What says what is counted.
	Name, What string
	// Service and Code are those of Service Quotas, empty where a quota is raised elsewhere.
	Service, Code string
	// Limit is the quota, Used what others than this cluster have, and Wanted what the cluster is to have at most.
	Limit, Used, Wanted int
	// Err is why the limit or the use is not known; nil if it is.
	Err error
}

func (l *list) quotas(all []Quota) {
	for _, q := range all {
		switch {
		case l.unread(q.Name, q.Err):
		case q.Used+q.Wanted > q.Limit:
			l.add(q.Name, doctor.Error, q.raise(), "%s: %d of %d are used, and the cluster has up to %d: %d too few", q.What, q.Used, q.Limit, q.Wanted, q.Used+q.Wanted-q.Limit)
		default:
			l.ok(q.Name, "%s: %d of %d are used, and the cluster has up to %d", q.What, q.Used, q.Limit, q.Wanted)
		}
	}
}

// raise is the next step for a quota that is too low.
func (q Quota) raise() string {
	if q.Code == "" {
		return "ask AWS for more (Service Quotas), or make the cluster smaller"
	}
	return fmt.Sprintf("aws service-quotas request-service-quota-increase --service-code %s --quota-code %s --desired-value %d, or make the cluster smaller", q.Service, q.Code, q.Used+q.Wanted)
}

// family is a set of instance types whose virtual processors are counted together, on-demand and spot instances apart.
type family struct {
	name, what string
	// types are the beginnings of the types' names, the letters before the first digit.
	types          []string
	onDemand, spot string
}

// families are those of "Amazon EC2 instance type quotas" (EC2 User Guide, "Amazon EC2 service quotas"), with the codes that Service Quotas
// has for them (AWS General Reference, "Amazon Elastic Compute Cloud endpoints and quotas").
var families = []family{
	{"standard", "A, C, D, H, I, M, R, T and Z", []string{"a", "c", "d", "h", "i", "im", "is", "m", "mac", "r", "t", "z"}, "L-1216C47A", "L-34B43A08"},
	{"dl", "DL", []string{"dl"}, "L-6E869C2A", "L-85EED4F7"},
	{"f", "F", []string{"f"}, "L-74FC7D96", "L-88CF9481"},
	{"g", "G and VT", []string{"g", "gr", "vt"}, "L-DB2E81BA", "L-3819A6DF"},
	{"hpc", "HPC", []string{"hpc"}, "L-F7808C92", ""},
	{"inf", "Inf", []string{"inf"}, "L-1945791B", "L-B5D1601B"},
	{"p", "P", []string{"p"}, "L-417A185B", "L-7212CCBC"},
	{"trn", "Trn", []string{"trn"}, "L-2C3B7624", "L-6B0D517C"},
	{"u", "high memory", []string{"u"}, "L-43DA4232", ""},
	{"x", "X", []string{"x"}, "L-7295265B", "L-E3A00192"},
}

// familyOf is the family of an instance type; its name is empty for a type of none that is known here.
func familyOf(instanceType string) family {
	letters := instanceType[:strings.IndexFunc(instanceType+"0", func(r rune) bool { return r < 'a' || r > 'z' })]
	i := slices.IndexFunc(families, func(f family) bool { return slices.Contains(f.types, letters) })
	if i < 0 {
		return family{}
	}
	return families[i]
}

// Machines are machines of one type, or of one of several types.
type Machines struct {
	// Types are what each machine may be of, and Spot whether they are spot instances.
	Types []string
	Spot  bool
	Count int
}

// Processors are the quotas of virtual processors that machines need: wanted are the cluster's at most, others those that run beside it.
// cpus are the processors of each type. Limit is left for the reader to fill in. Of several types of one family the largest counts, and of
// several families each one.
func Processors(wanted, others []Machines, cpus map[string]int) []Quota {
	var all []Quota
	find := func(f family, spot bool) *Quota {
		q := Quota{Name: "quotas.vcpus." + f.name, What: "virtual processors of on-demand instances of the types " + f.what, Service: "ec2", Code: f.onDemand}
		if spot {
			q.Name, q.What, q.Code = "quotas.spot."+f.name, "virtual processors of spot instances of the types "+f.what, f.spot
		}
		if q.Code == "" {
			return nil
		}
		i := slices.IndexFunc(all, func(have Quota) bool { return have.Name == q.Name })
		if i < 0 {
			i, all = len(all), append(all, q)
		}
		return &all[i]
	}
	for _, m := range wanted {
		largest := map[string]int{}
		for _, t := range m.Types {
			f := familyOf(t)
			largest[f.name] = max(largest[f.name], cpus[t])
		}
		for _, f := range families {
			if n := largest[f.name]; n > 0 && m.Count > 0 {
				if q := find(f, m.Spot); q != nil {
					q.Wanted += n * m.Count
				}
			}
		}
	}
	for _, m := range others {
		for i := range all {
			if f := familyOf(m.Types[0]); f.name != "" && (all[i].Code == f.onDemand && !m.Spot || all[i].Code == f.spot && m.Spot) {
				all[i].Used += cpus[m.Types[0]] * m.Count
			}
		}
	}
	slices.SortFunc(all, func(a, b Quota) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
