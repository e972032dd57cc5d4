package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The environment of the function, as template.yaml sets it.
const (
	// envClusters is the allow-list: cluster=group,group;cluster=group.
	envClusters = "HARDTACK_CLUSTERS"
	// envZone is the id of the hosted zone: Z0123456789ABC.
	envZone = "HARDTACK_ZONE_ID"
	// envSuffix is the zone's name; empty is k8s.
	envSuffix = "HARDTACK_ZONE_NAME"
	// envHook is the lifecycle hook to complete; empty: every hook on termination of the groups.
	envHook = "HARDTACK_HOOK_NAME"
	// envQueue is the URL of the queue that reminders go to; empty: none are sent, and the schedule
	// alone finishes the hooks.
	envQueue = "HARDTACK_QUEUE_URL"
	// Lambda's own.
	envRegion   = "AWS_REGION"
	envKey      = "AWS_ACCESS_KEY_ID"
	envSecret   = "AWS_SECRET_ACCESS_KEY"
	envSession  = "AWS_SESSION_TOKEN"
	envEndpoint = "AWS_ENDPOINT_URL"
)

// settings is what the environment says.
type settings struct {
	Scope    scope
	Zone     string
	Suffix   string
	Hook     string
	Queue    string
	Region   string
	Endpoint string
	Key      credentials
}

// credentials are those of the function's role, which Lambda hands to every execution environment and
// which outlive it.
type credentials struct{ ID, Secret, Session string }

// scope is the allow-list: each cluster's groups, in the order of the environment.
type scope struct {
	clusters []string
	groups   map[string][]string
	byGroup  map[string]string
}

var (
	clusterForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	zoneForm    = regexp.MustCompile(`^Z[A-Z0-9]{1,31}$`)
)

// readSettings reads and checks all of the environment, and reports all that is wrong with it.
func readSettings(getenv func(string) string) (settings, error) {
	s := settings{
		Zone: getenv(envZone), Suffix: getenv(envSuffix), Hook: getenv(envHook), Queue: getenv(envQueue),
		Region: getenv(envRegion), Endpoint: getenv(envEndpoint),
		Key: credentials{getenv(envKey), getenv(envSecret), getenv(envSession)},
	}
	var errs []error
	var err error
	if s.Scope, err = parseScope(getenv(envClusters)); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", envClusters, err))
	}
	if !zoneForm.MatchString(s.Zone) {
		errs = append(errs, fmt.Errorf("%s: %q is not the id of a hosted zone; it looks like Z0123456789ABC", envZone, s.Zone))
	}
	if s.Region == "" {
		errs = append(errs, fmt.Errorf("%s is empty; Lambda sets it, set it yourself elsewhere", envRegion))
	}
	if s.Key.ID == "" || s.Key.Secret == "" {
		errs = append(errs, fmt.Errorf("%s and %s are empty; Lambda sets them from the function's role", envKey, envSecret))
	}
	return s, errors.Join(errs...)
}

// parseScope reads cluster=group,group;cluster=group.
func parseScope(text string) (scope, error) {
	s := scope{groups: map[string][]string{}, byGroup: map[string]string{}}
	for part := range strings.SplitSeq(text, ";") {
		cluster, list, _ := strings.Cut(part, "=")
		cluster = strings.TrimSpace(cluster)
		if !clusterForm.MatchString(cluster) {
			return scope{}, fmt.Errorf("%q is not a cluster's name: write cluster=group,group;cluster=group with DNS labels as clusters", cluster)
		}
		if slices.Contains(s.clusters, cluster) {
			return scope{}, fmt.Errorf("cluster %s is there twice", cluster)
		}
		s.clusters = append(s.clusters, cluster)
		for group := range strings.SplitSeq(list, ",") {
			if group = strings.TrimSpace(group); group == "" {
				return scope{}, fmt.Errorf("cluster %s has a group without a name", cluster)
			}
			if other, twice := s.byGroup[group]; twice {
				return scope{}, fmt.Errorf("group %s is listed for %s and for %s; a group belongs to one cluster", group, other, cluster)
			}
			s.byGroup[group] = cluster
			s.groups[cluster] = append(s.groups[cluster], group)
		}
	}
	return s, nil
}

// allGroups lists every allowed group.
func (s scope) allGroups() []string {
	var all []string
	for _, c := range s.clusters {
		all = append(all, s.groups[c]...)
	}
	return all
}
