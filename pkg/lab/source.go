package lab

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
)

// source answers the questions of the machines' network about the region: the instance of an address, the answer to a
// DNS query.
type source struct{ *host }

var (
	_ metadata.Source = source{}
	_ vnet.Resolver   = source{}
)

// Instance returns the running machine with this address.
func (s source) Instance(addr netip.Addr) (metadata.Instance, bool) {
	for _, g := range s.list() {
		g.mu.Lock()
		lives := g.addr == addr && !g.started.IsZero() && g.ended.IsZero()
		g.mu.Unlock()
		if !lives {
			continue
		}
		m, ok := s.account.EC2().Machine(g.id)
		if !ok {
			return metadata.Instance{}, false
		}
		userData := []byte(m.UserData)
		if g.fault.UserData != nil {
			userData = g.fault.UserData
		}
		image, _ := s.account.Images().Image(m.Image) // a machine outlives its image
		return metadata.Instance{
			ID: m.ID, Type: m.Type, ImageID: m.Image, Arch: image.Firmware.Architecture, Launched: m.Launched, UserData: userData, Role: m.Role,
			Placement: metadata.Placement{Account: accountID, Region: regionName, Zone: m.Zone},
			Card:      metadata.Card{Addr: addr, MAC: vnet.MACOf(addr), Subnet: subnet, Hostname: hostName(addr)},
			Spot:      g.spot(),
			Tags:      shownTags(m), LifecycleState: s.target(g),
		}, true
	}
	return metadata.Instance{}, false
}

// shownTags returns the tags in the machine's metadata: as on EC2, none unless its launch template enables them.
func shownTags(m awsfake.Machine) map[string]string {
	if m.Launch == nil || m.Launch.Metadata == nil || m.Launch.Metadata.Tags != "enabled" {
		return nil
	}
	return maps.Clone(m.Tags)
}

// target is the lifecycle state to which the machine's group moves it.
func (s source) target(g *guest) string {
	for _, i := range s.account.AutoScaling().Instances(g.scaling) {
		if i.ID == g.id && strings.HasPrefix(i.State, awsfake.StateTerminating) {
			return awsfake.StateTerminated
		}
	}
	return awsfake.StateInService
}

// credentialsLife is the lifetime of a role's credentials: EC2's live about six hours.
const credentialsLife = 6 * time.Hour

// Credentials returns credentials of the machine's role.
func (s source) Credentials(_ context.Context, instance, role string) (metadata.Credentials, error) {
	m, ok := s.account.EC2().Machine(instance)
	if !ok || m.Role != role {
		return metadata.Credentials{}, fmt.Errorf("machine %s has no role %q", instance, role)
	}
	now := time.Now()
	key, err := s.account.Issue(role, instance, credentialsLife)
	if err != nil {
		return metadata.Credentials{}, fmt.Errorf("machine %s may not use its role: %w", instance, err)
	}
	return metadata.Credentials{AccessKeyID: key.AccessKey, SecretAccessKey: key.Secret, Token: key.Token, Updated: now, Expires: key.Expires}, nil
}

// Resolve answers as the private zone's name servers do.
func (s source) Resolve(_ context.Context, q vnet.Question) (vnet.Reply, error) {
	a := s.account.Route53().Resolve(awsfake.Query{Name: q.Name, Type: q.Type, VPC: vpcID})
	return vnet.Reply{Values: a.Values, TTL: a.TTL, Alias: a.Alias, NXDomain: a.NXDomain, Unknown: a.Refused}, nil
}
