package awsfake

import "strings"

// machineType is what EC2 says of a type ("Amazon EC2 instance types", the tables of specifications).
type machineType struct {
	Name         string `xml:"instanceType"`
	Current      bool   `xml:"currentGeneration"`
	Architecture string `xml:"processorInfo>supportedArchitectures>item"`
	CPUs         int    `xml:"vCpuInfo>defaultVCpus"`
	MiB          int    `xml:"memoryInfo>sizeInMiB"`
	// Boot are the boot modes; NVMe, ENA and the TPM are required, supported or unsupported.
	Boot []string `xml:"supportedBootModes>item"`
	NVMe string   `xml:"ebsInfo>nvmeSupport"`
	ENA  string   `xml:"networkInfo>enaSupport"`
	TPM  string   `xml:"nitroTpmSupport"`
}

// The boot modes of EC2's types: most of those with x86 have both, and Graviton has UEFI alone.
var (
	bothModes  = []string{"legacy-bios", "uefi"}
	legacyMode = []string{"legacy-bios"}
	uefiMode   = []string{"uefi"}
)

const (
	needs, has, lacks = "required", "supported", "unsupported"
)

// machineTypes are a few of EC2's types, by name.
var machineTypes = []machineType{
	{"c7i.4xlarge", true, "x86_64", 16, 32768, bothModes, needs, needs, has},
	{"c7i.large", true, "x86_64", 2, 4096, bothModes, needs, needs, has},
	{"g4ad.xlarge", true, "x86_64", 4, 16384, legacyMode, needs, needs, lacks},
	{"i3.large", true, "x86_64", 2, 15616, legacyMode, has, has, lacks},
	{"i4g.large", true, "arm64", 2, 16384, uefiMode, needs, needs, lacks},
	{"m5.large", true, "x86_64", 2, 8192, bothModes, needs, needs, has},
	{"m6i.large", true, "x86_64", 2, 8192, bothModes, needs, needs, has},
	{"m7a.large", true, "x86_64", 2, 8192, bothModes, needs, needs, has},
	{"m7g.large", true, "arm64", 2, 8192, uefiMode, needs, needs, has},
	{"m7i.2xlarge", true, "x86_64", 8, 32768, bothModes, needs, needs, has},
	{"m7i.large", true, "x86_64", 2, 8192, bothModes, needs, needs, has},
	{"m7i.xlarge", true, "x86_64", 4, 16384, bothModes, needs, needs, has},
	{"r7i.large", true, "x86_64", 2, 16384, bothModes, needs, needs, has},
	{"t2.micro", true, "x86_64", 1, 1024, legacyMode, lacks, lacks, lacks},
	{"t3.large", true, "x86_64", 2, 8192, bothModes, needs, needs, has},
	{"t3.medium", true, "x86_64", 2, 4096, bothModes, needs, needs, has},
	{"t3.small", true, "x86_64", 2, 2048, bothModes, needs, needs, has},
}

// describeTypes lists instance types: those that the call names, which all have to exist, or all.
func (e *EC2) describeTypes(p params) (any, error) {
	size, err := p.integer("MaxResults", 100)
	if err != nil {
		return nil, err
	}
	if size < 5 || size > 100 {
		return nil, refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and 100.", size)
	}
	list := machineTypes
	if filters := filtersOf(p.structs("Filter"), "Value", true); len(filters) > 0 {
		list = nil
		for _, t := range machineTypes {
			ok, err := passAll(filters, map[string][]string{"instance-type": {t.Name}}, nil)
			if err != nil {
				return nil, err
			}
			if ok {
				list = append(list, t)
			}
		}
	}
	if names := p.list("InstanceType"); len(names) > 0 {
		list = nil
		var missing []string
		for _, name := range names {
			found := false
			for _, t := range machineTypes {
				if t.Name == name {
					list, found = append(list, t), true
				}
			}
			if !found {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(missing, ", "))
		}
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Types     []machineType `xml:"instanceTypeSet>item"`
		NextToken string        `xml:"nextToken,omitempty"`
	}{list, token}, nil
}
