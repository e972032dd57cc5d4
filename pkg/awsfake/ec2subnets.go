package awsfake

import (
	"slices"
	"strings"
)

type xmlSubnet struct {
	ID    string `xml:"subnetId"`
	State string `xml:"state"`
	VPC   string `xml:"vpcId"`
	Zone  string `xml:"availabilityZone"`
	Free  int    `xml:"availableIpAddressCount"`
	// Public is whether machines get a public address.
	Public bool `xml:"mapPublicIpOnLaunch"`
}

// describeSubnets lists the subnets that a call names, all if it names none. Here a subnet that nobody has added does not
// exist, even in an account without any.
func (e *EC2) describeSubnets(p params) (any, error) {
	ids := p.list("SubnetId")
	known := e.network.subnets
	for _, id := range ids {
		if !slices.ContainsFunc(known, func(s Subnet) bool { return s.ID == id }) {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(known), func(s Subnet) bool { return len(ids) > 0 && !slices.Contains(ids, s.ID) })
	filters := filtersOf(p.structs("Filter"), "Value", true)
	for i := len(kept) - 1; i >= 0; i-- {
		ok, err := passAll(filters, map[string][]string{"subnet-id": {kept[i].ID}, "vpc-id": {kept[i].VPC}}, nil)
		if err != nil {
			return nil, err
		}
		if !ok {
			kept = slices.Delete(kept, i, i+1)
		}
	}
	kept, token, err := paged(p, "SubnetId", "subnetSet", kept)
	if err != nil {
		return nil, err
	}
	out := struct {
		Subnets   []xmlSubnet `xml:"subnetSet>item"`
		NextToken string      `xml:"nextToken,omitempty"`
	}{NextToken: token}
	for _, s := range kept {
		out.Subnets = append(out.Subnets, xmlSubnet{ID: s.ID, State: "available", VPC: s.VPC, Zone: s.Zone, Free: e.freeAddresses(s), Public: s.PublicAddresses})
	}
	return out, nil
}

// zoneList reads a list of availability zones, as a parameter of a stack has it.
func zoneList(value string) ([]any, error) {
	zones := strings.Split(value, ",")
	for _, zone := range zones {
		if !zonePattern.MatchString(zone) {
			return nil, refuse("InvalidParameterValue", "Invalid availability zone: [%s]", zone)
		}
	}
	return anyList(zones), nil
}
