package metadata

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// document returns the response for a path of any version of the service: versions differ only in their paths, and
// clients that use an old one read paths that have always existed.
func (s *Service) document(ctx context.Context, instance Instance, notices Notices, path string) answer {
	version, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	// Values may be requested with a trailing slash, which boto3 does, and directories without one.
	rest = strings.TrimSuffix(rest, "/")
	if version == "" {
		return text("latest")
	}
	if version != "latest" && !isDate(version) {
		return refuse(http.StatusNotFound)
	}
	tree := instance.tree()
	maps.Copy(tree, notices.tree())
	if role, ok := strings.CutPrefix(rest, rolePath); ok && role != "" && role == instance.Role {
		return s.credentials(ctx, instance)
	}
	if body, ok := tree[rest]; ok {
		a := answer{status: http.StatusOK, body: body}
		if rest == "user-data" {
			a.kind = "application/octet-stream"
		}
		return a
	}
	names := list(tree, rest)
	if len(names) == 0 {
		return refuse(http.StatusNotFound)
	}
	return text(strings.Join(names, "\n"))
}

func text(s string) answer { return answer{status: http.StatusOK, body: []byte(s)} }

func isDate(version string) bool {
	_, err := time.Parse(time.DateOnly, version)
	return err == nil
}

// list lists a directory, with a slash after subdirectories; nil if it is not a directory.
func list(tree map[string][]byte, dir string) []string {
	if dir != "" {
		dir += "/"
	}
	var names []string
	for path := range tree {
		rest, ok := strings.CutPrefix(path, dir)
		if !ok {
			continue
		}
		if name, _, deeper := strings.Cut(rest, "/"); deeper {
			rest = name + "/"
		}
		names = append(names, rest)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rolePath is the directory of the roles' credentials.
const rolePath = "meta-data/iam/security-credentials/"

// tree returns all metadata of the instance, by path below the version.
func (i Instance) tree() map[string][]byte {
	tree := map[string][]byte{}
	if i.UserData != nil {
		tree["user-data"] = i.UserData
	}
	for path, value := range i.values() {
		if value != "" {
			tree["meta-data/"+path] = []byte(value)
		}
	}
	for key, value := range i.Tags {
		if key != "" && key != "." && key != ".." && !strings.Contains(key, "/") {
			tree["meta-data/tags/instance/"+key] = []byte(value)
		}
	}
	if i.Role != "" {
		tree[rolePath+i.Role] = nil // its content is from credentials
		tree["meta-data/iam/info"] = i.profile()
	}
	tree["dynamic/instance-identity/document"] = i.identity()
	return tree
}

// values returns the paths with a simple value; empty values do not exist.
func (i Instance) values() map[string]string {
	v := map[string]string{
		"ami-id":                             i.ImageID,
		"ami-launch-index":                   "0",
		"autoscaling/target-lifecycle-state": i.LifecycleState,
		"hostname":                           i.Card.Hostname,
		"instance-action":                    "none",
		"instance-id":                        i.ID,
		"instance-life-cycle":                lifecycle(i),
		"instance-type":                      i.Type,
		"local-hostname":                     i.Card.Hostname,
		"local-ipv4":                         addr(i),
		"mac":                                i.Card.MAC.String(),
		"placement/availability-zone":        i.Placement.Zone,
		"placement/region":                   i.Placement.Region,
		"profile":                            "default-hvm",
		"services/domain":                    "amazonaws.com",
		"services/partition":                 "aws",
	}
	if len(i.Card.MAC) == 0 {
		return v
	}
	card := "network/interfaces/macs/" + i.Card.MAC.String() + "/"
	v[card+"device-number"] = "0"
	v[card+"local-hostname"] = i.Card.Hostname
	v[card+"local-ipv4s"] = addr(i)
	v[card+"mac"] = i.Card.MAC.String()
	v[card+"owner-id"] = i.Placement.Account
	if i.Card.Subnet.IsValid() {
		v[card+"subnet-ipv4-cidr-block"] = i.Card.Subnet.String()
		v[card+"vpc-ipv4-cidr-block"] = i.Card.Subnet.String()
		v[card+"vpc-ipv4-cidr-blocks"] = i.Card.Subnet.String()
	}
	return v
}

func lifecycle(i Instance) string {
	if i.Spot {
		return "spot"
	}
	return "on-demand"
}

func addr(i Instance) string {
	if !i.Card.Addr.IsValid() {
		return ""
	}
	return i.Card.Addr.String()
}

// identity returns the instance identity document. Its signatures are left out: only AWS can make them.
func (i Instance) identity() []byte {
	return indent(struct {
		AccountID        string    `json:"accountId"`
		Architecture     string    `json:"architecture"`
		AvailabilityZone string    `json:"availabilityZone"`
		ImageID          string    `json:"imageId"`
		InstanceID       string    `json:"instanceId"`
		InstanceType     string    `json:"instanceType"`
		PendingTime      time.Time `json:"pendingTime"`
		PrivateIP        string    `json:"privateIp"`
		Region           string    `json:"region"`
		Version          string    `json:"version"`
	}{i.Placement.Account, i.Arch, i.Placement.Zone, i.ImageID, i.ID, i.Type, seconds(i.Launched), addr(i), i.Placement.Region, "2017-09-30"})
}

func (i Instance) profile() []byte {
	return indent(struct {
		Code               string
		LastUpdated        time.Time
		InstanceProfileArn string
		InstanceProfileID  string `json:"InstanceProfileId"`
	}{"Success", seconds(i.Launched), "arn:aws:iam::" + i.Placement.Account + ":instance-profile/" + i.Role, "AIPA" + i.Role})
}

// credentials returns the credentials of the instance's role in EC2's format.
func (s *Service) credentials(ctx context.Context, instance Instance) answer {
	c, err := s.source.Credentials(ctx, instance.ID, instance.Role)
	if err != nil {
		s.log.WarnContext(ctx, "an instance's role may not be assumed", "instance", instance.ID, "role", instance.Role, "error", err)
		return answer{status: http.StatusOK, body: indent(struct {
			Code        string
			Message     string
			LastUpdated time.Time
		}{"AssumeRoleUnauthorizedAccess", err.Error(), seconds(time.Now())})}
	}
	return answer{status: http.StatusOK, body: indent(struct {
		Code            string
		LastUpdated     time.Time
		Type            string
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}{"Success", seconds(c.Updated), "AWS-HMAC", c.AccessKeyID, c.SecretAccessKey, c.Token, seconds(c.Expires)})}
}

// seconds rounds to EC2's format: UTC, without fractions.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func indent(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // plain values always marshal
	}
	return text
}
