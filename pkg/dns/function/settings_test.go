package function

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func TestReadSettings(t *testing.T) {
	good := map[string]string{EnvClusters: "demo=a,b;prod=c", EnvZone: "Z1", EnvRegion: "r", EnvKey: "k", EnvSecret: "s"}
	for _, tt := range []struct{ name, key, value, want string }{
		{"good", "", "", ""},
		{"no clusters", EnvClusters, "", `"" is not a cluster's name`},
		{"no groups", EnvClusters, "demo", "without a name"},
		{"not a label", EnvClusters, "De_mo=a", "not a cluster's name"},
		{"cluster twice", EnvClusters, "demo=a;demo=b", "there twice"},
		{"group of two clusters", EnvClusters, "demo=a;prod=a", "a group belongs to one cluster"},
		{"no zone", EnvZone, "k8s", "not the id of a hosted zone"},
		{"no region", EnvRegion, "", EnvRegion},
		{"no key", EnvKey, "", EnvKey},
		{"no secret", EnvSecret, "", EnvSecret},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(func(k string) string {
				if k == tt.key {
					return tt.value
				}
				return good[k]
			})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Every variable arrives where it belongs.
func TestSettingsAreWhole(t *testing.T) {
	env := map[string]string{
		EnvClusters: " demo = a , b ;prod=c", EnvZone: "Z1", EnvSuffix: "cluster.example", EnvHook: "leave", EnvQueue: "https://queue",
		EnvAPIInternal: "true", EnvAPIZone: "Z2", EnvAPISuffix: "example.com",
		EnvRegion: "eu-central-1", EnvEndpoint: "https://lab", EnvKey: "k", EnvSecret: "s", EnvSession: "token",
	}
	got, err := Read(func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Zone: "Z1", Suffix: "cluster.example", Hook: "leave", Queue: "https://queue", APIInternal: true, APIZone: "Z2", APISuffix: "example.com",
		Region: "eu-central-1", Endpoint: "https://lab", Key: Credentials{ID: "k", Secret: "s", Session: "token"}, Scope: got.Scope,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Scope{})); diff != "" {
		t.Errorf("the settings (-want +got):\n%s", diff)
	}
	type lists struct{ Clusters, Demo, Prod, Else, All []string }
	s := got.Scope
	if diff := cmp.Diff(lists{[]string{"demo", "prod"}, []string{"a", "b"}, []string{"c"}, nil, []string{"a", "b", "c"}},
		lists{s.Clusters(), s.Groups("demo"), s.Groups("prod"), s.Groups("else"), s.AllGroups()}); diff != "" {
		t.Errorf("the allow-list (-want +got):\n%s", diff)
	}
	delete(env, EnvHook)
	if got, err := Read(func(k string) string { return env[k] }); err != nil || got.Hook != role.DrainHook {
		t.Errorf("without a hook's name: %q, %v", got.Hook, err)
	}
}
