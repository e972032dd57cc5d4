package function

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The environment of the function, as template.yaml sets it.
const (
	// EnvClusters is the allow-list: cluster=group,group;cluster=group.
	EnvClusters = "HARDTACK_CLUSTERS"
	// EnvZone is the id of the hosted zone: Z0123456789ABC.
	EnvZone = "HARDTACK_ZONE_ID"
	// EnvSuffix is the zone's name; empty means k8s.
	EnvSuffix = "HARDTACK_ZONE_NAME"
	// EnvHook is the lifecycle hook to complete; empty is role.DrainHook, and role.AllHooks every termination hook of the
	// groups.
	EnvHook = "HARDTACK_HOOK_NAME"
	// EnvQueue is the URL of the queue for reminders; if it is empty none are sent, and only scheduled runs complete the
	// hooks.
	EnvQueue = "HARDTACK_QUEUE_URL"
	// EnvAPIInternal is "true" if api.internal.<cluster> lists the masters' private addresses.
	EnvAPIInternal = "HARDTACK_API_INTERNAL"
	// EnvAPIZone is the id of a public hosted zone for api.<cluster>, and EnvAPISuffix its name; empty means none.
	EnvAPIZone   = "HARDTACK_API_ZONE_ID"
	EnvAPISuffix = "HARDTACK_API_ZONE_NAME"
	// Set by Lambda.
	EnvRegion   = "AWS_REGION"
	EnvKey      = "AWS_ACCESS_KEY_ID"
	EnvSecret   = "AWS_SECRET_ACCESS_KEY"
	EnvSession  = "AWS_SESSION_TOKEN"
	EnvEndpoint = "AWS_ENDPOINT_URL"
)

// Settings are the parsed environment.
type Settings struct {
	Scope  Scope
	Zone   string
	Suffix string
	Hook   string
	Queue  string
	// APIInternal adds api.internal.<cluster> to the zone. APIZone and APISuffix are the public zone with api.<cluster>.
	APIInternal        bool
	APIZone, APISuffix string
	Region             string
	Endpoint           string
	Key                Credentials
	// Client sends the requests to AWS; nil means the SDK's default.
	Client aws.HTTPClient
}

// Credentials are the credentials of the function's role, which Lambda sets in every execution environment and which
// are valid for longer than it lives.
type Credentials struct{ ID, Secret, Session string }

// Scope is the allow-list: each cluster's groups, in the order of the environment.
type Scope struct {
	clusters []string
	groups   map[string][]string
	byGroup  map[string]string
}

var (
	clusterForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	zoneForm    = regexp.MustCompile(`^Z[A-Z0-9]{1,31}$`)
)

// Read parses and validates the environment. The error has a line for each problem.
func Read(getenv func(string) string) (Settings, error) {
	s := Settings{
		Zone: getenv(EnvZone), Suffix: getenv(EnvSuffix), Hook: cmp.Or(getenv(EnvHook), role.DrainHook), Queue: getenv(EnvQueue),
		APIZone: getenv(EnvAPIZone), APISuffix: getenv(EnvAPISuffix),
		Region: getenv(EnvRegion), Endpoint: getenv(EnvEndpoint),
		Key: Credentials{getenv(EnvKey), getenv(EnvSecret), getenv(EnvSession)},
	}
	var errs []error
	var err error
	if s.Scope, err = parseScope(getenv(EnvClusters)); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", EnvClusters, err))
	}
	if !zoneForm.MatchString(s.Zone) {
		errs = append(errs, fmt.Errorf("%s: %q is not the id of a hosted zone; it looks like Z0123456789ABC", EnvZone, s.Zone))
	}
	switch text := getenv(EnvAPIInternal); text {
	case "", "false":
	case "true":
		s.APIInternal = true
	default:
		errs = append(errs, fmt.Errorf("%s: %q is neither true nor false", EnvAPIInternal, text))
	}
	if s.APIZone != "" && !zoneForm.MatchString(s.APIZone) {
		errs = append(errs, fmt.Errorf("%s: %q is not the id of a hosted zone; it looks like Z0123456789ABC", EnvAPIZone, s.APIZone))
	}
	if (s.APIZone == "") != (s.APISuffix == "") {
		errs = append(errs, fmt.Errorf("%s and %s go together: the public zone's id and its name, or neither", EnvAPIZone, EnvAPISuffix))
	}
	if s.Region == "" {
		errs = append(errs, fmt.Errorf("%s is empty; Lambda sets it, set it yourself elsewhere", EnvRegion))
	}
	if s.Key.ID == "" || s.Key.Secret == "" {
		errs = append(errs, fmt.Errorf("%s and %s are empty; Lambda sets them from the function's role", EnvKey, EnvSecret))
	}
	return s, errors.Join(errs...)
}

// parseScope reads cluster=group,group;cluster=group.
func parseScope(text string) (Scope, error) {
	s := Scope{groups: map[string][]string{}, byGroup: map[string]string{}}
	for part := range strings.SplitSeq(text, ";") {
		cluster, list, _ := strings.Cut(part, "=")
		cluster = strings.TrimSpace(cluster)
		if !clusterForm.MatchString(cluster) {
			return Scope{}, fmt.Errorf("%q is not a cluster's name: write cluster=group,group;cluster=group with DNS labels as clusters", cluster)
		}
		if slices.Contains(s.clusters, cluster) {
			return Scope{}, fmt.Errorf("cluster %s is there twice", cluster)
		}
		s.clusters = append(s.clusters, cluster)
		for group := range strings.SplitSeq(list, ",") {
			if group = strings.TrimSpace(group); group == "" {
				return Scope{}, fmt.Errorf("cluster %s has a group without a name", cluster)
			}
			if other, twice := s.byGroup[group]; twice {
				return Scope{}, fmt.Errorf("group %s is listed for %s and for %s; a group belongs to one cluster", group, other, cluster)
			}
			s.byGroup[group] = cluster
			s.groups[cluster] = append(s.groups[cluster], group)
		}
	}
	return s, nil
}

// Clusters returns the clusters.
func (s Scope) Clusters() []string { return slices.Clone(s.clusters) }

// Groups returns the allowed groups of a cluster.
func (s Scope) Groups(cluster string) []string { return slices.Clone(s.groups[cluster]) }

// AllGroups returns every allowed group.
func (s Scope) AllGroups() []string {
	var all []string
	for _, c := range s.clusters {
		all = append(all, s.groups[c]...)
	}
	return all
}
