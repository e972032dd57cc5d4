package boot

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// machine identifies the hardware.
type machine struct {
	// id is the instance id or the product's UUID, empty where it says neither. It does not move with
	// a copy of the disk, as /etc/machine-id does.
	id string
	// ec2 reports whether this is EC2, and why says how that is known.
	ec2 bool
	why string
}

// instanceTag matches an instance id, which EC2 Nitro also gives as the board's asset tag.
var instanceTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^i-[0-9a-f]{8,17}$`) })

// littleEndianEC2 matches the first group of a UUID that begins with "ec2" before its bytes are
// swapped, as some hypervisors show it.
var littleEndianEC2 = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{4}2[0-9a-f]ec-`) })

// ec2Vendor is the system vendor that Nitro and bare-metal instances show.
const ec2Vendor = "Amazon EC2"

// readMachine reads DMI, and recognises EC2 by the marks that AWS documents ("Detect whether a host is
// an EC2 instance"), which are also those by which cloud-init's ds-identify does.
func (a *agent) readMachine() machine {
	vendor, tag := a.dmi("sys_vendor"), a.dmi("board_asset_tag")
	uuid := strings.ToLower(a.dmi("product_uuid"))
	m := machine{}
	switch {
	case vendor == ec2Vendor && instanceTag().MatchString(tag):
		m.id = tag
	case strings.Trim(uuid, "0f-") != "":
		m.id = uuid
	}
	switch {
	case vendor == ec2Vendor:
		m.ec2, m.why = true, `the system vendor is "`+vendor+`"`
	case strings.HasPrefix(uuid, "ec2") || littleEndianEC2().MatchString(uuid):
		m.ec2, m.why = true, "the product UUID is EC2's"
	case strings.HasPrefix(a.sys("/sys/hypervisor/uuid"), "ec2"):
		m.ec2, m.why = true, "the hypervisor's UUID is EC2's"
	case vendor == "":
		m.why = "the machine shows no system vendor"
	default:
		m.why = `the system vendor is "` + vendor + `", not EC2`
	}
	return m
}

func (a *agent) dmi(name string) string { return a.sys("/sys/class/dmi/id/" + name) }

// sys reads a one-line file of sysfs, "" where there is none.
func (a *agent) sys(name string) string {
	data, err := os.ReadFile(a.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
