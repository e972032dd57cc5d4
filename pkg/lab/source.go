package lab

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/vnet/metadata"
)

// source is the region as the machines' network asks it: who has an address, and what a name means.
type source struct{ daemon *Daemon }

var (
	_ metadata.Source = source{}
	_ vnet.Resolver   = source{}
)

// Instance is the running machine that has the address.
func (s source) Instance(addr netip.Addr) (metadata.Instance, bool) {
	for _, g := range s.daemon.host.list() {
		g.mu.Lock()
		lives := g.addr == addr && !g.started.IsZero() && g.ended.IsZero()
		g.mu.Unlock()
		if !lives {
			continue
		}
		m, ok := s.daemon.region.account.EC2().Machine(g.id)
		if !ok {
			return metadata.Instance{}, false
		}
		userData := []byte(m.UserData)
		if g.fault.UserData != nil {
			userData = g.fault.UserData
		}
		return metadata.Instance{
			ID: m.ID, Type: m.Type, ImageID: m.Image, Launched: m.Launched, UserData: userData, Role: m.Role,
			Placement: metadata.Placement{Account: accountID, Region: regionName, Zone: m.Zone},
			Card:      metadata.Card{Addr: addr, MAC: vnet.MACOf(addr), Subnet: subnet, Hostname: hostName(addr)},
			Tags:      maps.Clone(m.Tags), LifecycleState: s.target(g),
		}, true
	}
	return metadata.Instance{}, false
}

// target is the state in which the machine's group wants it.
func (s source) target(g *guest) string {
	for _, i := range s.daemon.region.account.AutoScaling().Instances(g.group.Scaling) {
		if i.ID == g.id && strings.HasPrefix(i.State, awsfake.StateTerminating) {
			return awsfake.StateTerminated
		}
	}
	return awsfake.StateInService
}

// credentialsLife is how long a role's credentials are good for: EC2's are for about six hours.
const credentialsLife = 6 * time.Hour

// Credentials are those of the role of the machine's group.
func (s source) Credentials(_ context.Context, instance, role string) (metadata.Credentials, error) {
	m, ok := s.daemon.region.account.EC2().Machine(instance)
	if !ok || m.Role != role {
		return metadata.Credentials{}, fmt.Errorf("machine %s has no role %q", instance, role)
	}
	now := time.Now()
	key, err := s.daemon.region.account.Issue(role, instance, credentialsLife)
	if err != nil {
		return metadata.Credentials{}, fmt.Errorf("machine %s may not use its role: %w", instance, err)
	}
	return metadata.Credentials{AccessKeyID: key.AccessKey, SecretAccessKey: key.Secret, Token: key.Token, Updated: now, Expires: key.Expires}, nil
}

// Resolve answers as the private zone's name servers do.
func (s source) Resolve(_ context.Context, q vnet.Question) (vnet.Reply, error) {
	a := s.daemon.region.account.Route53().Resolve(awsfake.Query{Name: q.Name, Type: q.Type, VPC: vpcID, Server: 3, At: time.Now()})
	return vnet.Reply{Values: a.Values, TTL: a.TTL, Alias: a.Alias, NXDomain: a.NXDomain, Unknown: a.Refused}, nil
}
