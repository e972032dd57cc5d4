package awstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// resource has the fields of EC2's answers that the test reads.
type resource struct {
	ID    string
	State string
	Tags  []tag
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func (r resource) tags() map[string]string {
	out := map[string]string{}
	for _, t := range r.Tags {
		out[t.Key] = t.Value
	}
	return out
}

type image struct {
	ID      string `xml:"imageId"`
	Name    string `xml:"name"`
	Tags    []tag  `xml:"tagSet>item"`
	Devices []struct {
		Snapshot string `xml:"ebs>snapshotId"`
	} `xml:"blockDeviceMapping>item"`
}

func (i image) tags() map[string]string { return resource{Tags: i.Tags}.tags() }

func (i image) snapshot() string {
	if len(i.Devices) == 0 {
		return ""
	}
	return i.Devices[0].Snapshot
}

func (c *cloud) ownImages(t *testing.T) []image {
	t.Helper()
	var out struct {
		Images []image `xml:"imagesSet>item"`
	}
	c.ask(t, "DescribeImages", map[string]string{"Owner.1": "self"}, &out)
	return out.Images
}

func (c *cloud) snapshots(t *testing.T) []resource {
	t.Helper()
	var out struct {
		Items []struct {
			ID   string `xml:"snapshotId"`
			Tags []tag  `xml:"tagSet>item"`
		} `xml:"snapshotSet>item"`
	}
	c.ask(t, "DescribeSnapshots", nil, &out)
	var all []resource
	for _, s := range out.Items {
		all = append(all, resource{ID: s.ID, Tags: s.Tags})
	}
	return all
}

func (c *cloud) snapshot(t *testing.T, id string) resource {
	t.Helper()
	all := c.snapshots(t)
	i := slices.IndexFunc(all, func(s resource) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("there is no snapshot %q", id)
	}
	return all[i]
}

// publicKey is the public key in an instance's metadata.
func (c *cloud) publicKey(t *testing.T, name string) string {
	t.Helper()
	var out struct {
		Keys []string `xml:"keySet>item>publicKey"`
	}
	c.ask(t, "DescribeKeyPairs", map[string]string{"KeyName.1": name, "IncludePublicKey": "true"}, &out)
	if len(out.Keys) != 1 {
		t.Errorf("key pair %q has %d public keys", name, len(out.Keys))
		return ""
	}
	return out.Keys[0]
}

// builder lists the temporary resources of a build, by kind.
func (c *cloud) builder(t *testing.T) map[string][]resource {
	t.Helper()
	var instances struct {
		Items []struct {
			ID    string `xml:"instanceId"`
			State string `xml:"instanceState>name"`
			Tags  []tag  `xml:"tagSet>item"`
		} `xml:"reservationSet>item>instancesSet>item"`
	}
	var volumes struct {
		Items []struct {
			ID        string `xml:"volumeId"`
			Encrypted bool   `xml:"encrypted"`
			Tags      []tag  `xml:"tagSet>item"`
		} `xml:"volumeSet>item"`
	}
	var groups struct {
		Items []struct {
			ID   string `xml:"groupId"`
			Name string `xml:"groupName"`
			Tags []tag  `xml:"tagSet>item"`
		} `xml:"securityGroupInfo>item"`
	}
	var keys struct {
		Items []struct {
			ID   string `xml:"keyPairId"`
			Tags []tag  `xml:"tagSet>item"`
		} `xml:"keySet>item"`
	}
	c.ask(t, "DescribeInstances", nil, &instances)
	c.ask(t, "DescribeVolumes", nil, &volumes)
	c.ask(t, "DescribeSecurityGroups", nil, &groups)
	c.ask(t, "DescribeKeyPairs", nil, &keys)

	out := map[string][]resource{}
	for _, i := range instances.Items {
		if i.State != "terminated" { // EC2 keeps showing those for an hour
			out["instance"] = append(out["instance"], resource{i.ID, i.State, i.Tags})
		}
	}
	for _, v := range volumes.Items {
		out["volume"] = append(out["volume"], resource{v.ID, fmt.Sprintf("encrypted=%v", v.Encrypted), v.Tags})
	}
	for _, g := range groups.Items {
		if g.Name != "default" {
			out["security group"] = append(out["security group"], resource{g.ID, "", g.Tags})
		}
	}
	for _, k := range keys.Items {
		out["key pair"] = append(out["key pair"], resource{k.ID, "", k.Tags})
	}
	return out
}

// expectBuilder checks that each temporary resource exists once, and has a tag with its expiry.
func (c *cloud) expectBuilder(t *testing.T) {
	t.Helper()
	all := c.builder(t)
	for _, kind := range []string{"instance", "volume", "security group", "key pair"} {
		if len(all[kind]) != 1 {
			t.Errorf("%s: %d while provisioning, want one: %+v", kind, len(all[kind]), all[kind])
			continue
		}
		tags := all[kind][0].tags()
		expires, err := time.Parse(time.RFC3339, tags["HardtackExpires"])
		if left := time.Until(expires); err != nil || left < time.Hour || left > 3*time.Hour {
			t.Errorf("%s has tags %v: want HardtackExpires within three hours", kind, tags)
		}
		if !strings.HasPrefix(tags["HardtackBuilder"], "hardtack-small-amd64-") {
			t.Errorf("%s has tags %v: want HardtackBuilder with the name of the image", kind, tags)
		}
	}
	if v := all["volume"]; len(v) == 1 && v[0].State != "encrypted=true" {
		t.Errorf("the builder's volume is not encrypted: %+v", v)
	}
}

// expectNothingLeft checks that of the build's own resources none is left, nor a snapshot without an image.
func (c *cloud) expectNothingLeft(t *testing.T) {
	t.Helper()
	for kind, list := range c.builder(t) {
		t.Errorf("left behind: %s %+v", kind, list)
	}
	used := map[string]bool{}
	for _, i := range c.ownImages(t) {
		used[i.snapshot()] = true
	}
	for _, s := range c.snapshots(t) {
		if !c.before[s.ID] && !used[s.ID] {
			t.Errorf("left behind: snapshot %+v", s)
		}
	}
}
