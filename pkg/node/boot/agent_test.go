package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree is a directory tree as path to content; a link's content is "-> target".
type tree map[string]string

const (
	minionsFile = "etc/sysconfig/kubernetes-minions"
	mastersFile = "etc/sysconfig/kubernetes-masters"
	etcdFile    = "etc/sysconfig/kubernetes-etcd"
	stateFile   = "var/lib/hardtack/userdata.json"
	recordFile  = "var/lib/hardtack/appended.json"
	fileSource  = "etc/hardtack/user-data"
	credential  = "run/credentials/@system/hardtack.userdata"
	minions     = "#cloud-config\nwrite_files:\n- {path: /etc/sysconfig/kubernetes-minions, content: 'A=1'}\n"
	masters     = "#cloud-config\nwrite_files:\n- {path: /etc/sysconfig/kubernetes-masters, content: 'A=1'}\n"
)

// nitro is what an EC2 instance shows of itself.
var nitro = tree{"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/board_asset_tag": "i-0123456789abcdef0\n"}

// with returns the tree with others over it.
func (t tree) with(others ...tree) tree {
	out := maps.Clone(t)
	for _, o := range others {
		maps.Copy(out, o)
	}
	return out
}

// make writes the tree below a new directory.
func (t tree) make(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	t.put(tb, root)
	return root
}

func (t tree) put(tb testing.TB, root string) {
	tb.Helper()
	for name, content := range t {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		target, link := strings.CutPrefix(content, "-> ")
		var err error
		if link {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// read returns what is below root and not in but.
func readTree(tb testing.TB, root string, but ...tree) tree {
	tb.Helper()
	out := tree{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(but, func(t tree) bool { _, ok := t[name]; return ok }) {
			return nil
		}
		data, err := os.ReadFile(file)
		out[name] = string(data)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

var errNone = errors.New("none")

// service is a metadata service with an answer or an error.
type service struct {
	id, data string
	index    int
	err      error
	asked    []string
	// denials are how often it wrongly says that there is no user data.
	denials int
}

func (s *service) UserData(ctx context.Context) ([]byte, error) {
	s.asked = append(s.asked, "user-data")
	if s.err != nil {
		return nil, s.wait(ctx)
	}
	if s.denials--; s.data == "" || s.denials >= 0 {
		return nil, fmt.Errorf("user-data: %w", errNone)
	}
	return []byte(s.data), nil
}

func (s *service) InstanceID(ctx context.Context) (string, error) {
	s.asked = append(s.asked, "instance-id")
	if s.err != nil {
		return "", s.wait(ctx)
	}
	return s.id, nil
}

func (s *service) LaunchIndex(context.Context) (int, error) {
	s.asked = append(s.asked, "launch-index")
	if s.index < 0 {
		return 0, fmt.Errorf("launch-index: %w", errNone)
	}
	return s.index, nil
}

// wait gives the error when the context ends, as a service out of reach does.
func (s *service) wait(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", s.err, context.Cause(ctx))
}

// options are those of a test: a short deadline, and the service.
func options(root string, s *service) Options {
	return Options{Root: root, NoUserData: errNone, Deadline: 20 * time.Millisecond, Metadata: func(endpoint string) (Metadata, error) {
		s.asked = append(s.asked, "at "+endpoint)
		return s, nil
	}}
}

// TestSources gives one tree each, and checks which source had the user data.
func TestSources(t *testing.T) {
	seed := tree{"var/lib/cloud/seed/nocloud/user-data": minions, "var/lib/cloud/seed/nocloud/meta-data": "instance-id: i-seed\n"}
	net := tree{"var/lib/cloud/seed/nocloud-net/user-data": minions}
	cred := tree{credential: minions, "run/credentials/@system/hardtack.instance-id": "i-cred\n"}
	file := tree{fileSource: minions}
	uuid := tree{"sys/class/dmi/id/product_uuid": "0DD7D1C4-0000-4000-8000-0123456789AB\n"}
	tests := []struct {
		name           string
		tree           tree
		source, id     string
		tried          int
		imds, endpoint string // what the metadata service has; the endpoint asked
	}{
		{"credential", cred.with(seed, file, nitro), "credential", "i-cred", 0, "", ""},
		{"credential, id from the hardware", tree{credential: minions}.with(uuid), "credential", "0dd7d1c4-0000-4000-8000-0123456789ab", 0, "", ""},
		{"seed", seed.with(net, file, nitro), "seed", "i-seed", 1, "", ""},
		{"second seed", net.with(file), "seed", "", 1, "", ""},
		{"no seed beside a sealed root", seed.with(nitro, sealedRoot), "imds", "i-imds", 4, minions, ""},
		{"but if it is asked for", seed.with(nitro, tree{"proc/cmdline": "roothash=0 hardtack.userdata=seed,imds\n"}), "seed", "i-seed", 0, "", ""},
		{"empty credential passed over", cred.with(seed, tree{credential: " \n"}), "seed", "i-seed", 1, "", ""},
		{"file", file.with(nitro), "file", "i-0123456789abcdef0", 3, "", ""},
		{"metadata service", nitro, "imds", "i-imds", 4, minions, ""},
		{"by the UUID", tree{"sys/class/dmi/id/product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF\n"}, "imds", "i-imds", 4, minions, ""},
		{"by the swapped UUID", tree{"sys/class/dmi/id/product_uuid": "45E12AEC-DCD1-B213-94ED-012345ABCDEF\n"}, "imds", "i-imds", 4, minions, ""},
		{"by the hypervisor", tree{"sys/hypervisor/uuid": "ec2e1916-9099-7caf-fd21-012345abcdef\n"}, "imds", "i-imds", 4, minions, ""},
		{"by the kernel command line", cred.with(tree{"proc/cmdline": "quiet hardtack.userdata=imds hardtack.imds=http://192.0.2.1\n"}), "imds", "i-imds", 0, minions, "http://192.0.2.1"},
		{"order of the kernel command line", cred.with(seed, file, tree{"proc/cmdline": "hardtack.userdata=seed hardtack.userdata=file,seed\n"}), "file", "", 0, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &service{id: "i-imds", data: test.imds}
			report, err := Run(t.Context(), options(test.tree.make(t), s))
			if err != nil {
				t.Fatal(err)
			}
			if report.Source != test.source || report.InstanceID != test.id || len(report.Tried) != test.tried || report.Roles.String() != "minions" {
				t.Errorf("%+v", report)
			}
			var want []string
			if test.imds != "" {
				want = []string{"at " + test.endpoint, "instance-id", "user-data"}
			}
			if !slices.Equal(s.asked, want) {
				t.Errorf("asked %q, want %q", s.asked, want)
			}
		})
	}
}

// TestUnitCredentials prefers the unit's own credential directory to the system's.
func TestUnitCredentials(t *testing.T) {
	o := options(tree{credential: masters}.make(t), &service{})
	o.Credentials = tree{"hardtack.userdata": minions}.make(t)
	report, err := Run(t.Context(), o)
	if err != nil || report.Roles.String() != "minions" || !strings.HasPrefix(report.From, o.Credentials) {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestFailures has no role, for every reason: no role file is left, nothing else is removed, and the
// error says what to do.
func TestFailures(t *testing.T) {
	left := tree{minionsFile: "A=0", etcdFile: "A=0", "etc/sysconfig/other": "x", "etc/sysconfig/kubernetes-workers_old": "x"}
	config := func(files string) tree { return tree{credential: "#cloud-config\nwrite_files:\n" + files} }
	tests := []struct {
		name string
		tree tree
		imds error
		want []string
	}{
		{"no source", tree{}, nil, []string{"no source has user data", "credential: no credential hardtack.userdata in", "seed: no user-data in", "volume: no volume labelled cidata", "file: no ", "imds: not asked, since the machine shows no system vendor", "next: give the machine user data"}},
		{"not EC2", tree{"sys/class/dmi/id/sys_vendor": "QEMU\n"}, nil, []string{`imds: not asked, since the system vendor is "QEMU", not EC2; hardtack.userdata=imds`}},
		{"EC2 without user data", nitro, nil, []string{"volume: not looked for, since the system vendor is", "imds: the instance i-imds was started without user data"}},
		{"EC2 out of reach", nitro, errors.New("no route"), []string{"imds: no route: no answer within 20ms"}},
		{"unknown source", tree{"proc/cmdline": "hardtack.userdata=ismd", credential: minions}, nil, []string{`source "ismd" is not known: the sources are credential, seed, volume, file, imds`}},
		{"unknown role", config("- {path: /etc/sysconfig/kubernetes-workers_old}\n- {path: /t/other}\n"), nil, []string{`role "workers_old" is not known: the roles are masters, minions, etcd`, "nothing of it is written"}},
		{"known and unknown role", config("- {path: /etc/sysconfig/kubernetes-workers_old}\n- {path: /etc/sysconfig/kubernetes-etcd}\n"), nil, []string{`role "workers_old" is not known`}},
		{"a role that no unit has", config("- {path: /etc/sysconfig/kubernetes-ingress}\n- {path: /etc/sysconfig/kubernetes-etcd}\n"), nil,
			[]string{`role "ingress": no unit of this image has ConditionPathExists=/etc/sysconfig/kubernetes-ingress, so that nothing would start for it (launch an image`}},
		{"no role file", config("- {path: /t/other}\n"), nil, []string{"has no role file", "/etc/sysconfig/kubernetes-masters, /etc/sysconfig/kubernetes-minions, /etc/sysconfig/kubernetes-etcd"}},
		{"a script", tree{credential: "#!/bin/sh\n"}, nil, []string{"has no role file", "is a script, which Hardtack does not run"}},
		{"several problems", config("- {path: a}\n- {path: /b, permissions: 644}\n"), nil, []string{`write_files[0].path: must be absolute, not "a"`, "write_files[1].permissions: 644 would be read as decimal"}},
		{"unknown owner", config("- {path: /etc/sysconfig/kubernetes-etcd}\n- {path: /t/a, owner: 'nobody-here:x'}\n- {path: /t/b, owner: ':none'}\n"),
			nil, []string{`owner of /t/a: open`, `group of /t/b: open`}},
		{"a directory there", config("- {path: /etc/sysconfig/kubernetes-etcd}\n- {path: /etc/sysconfig}\n- {path: /proc}\n"), nil, []string{"the directory of the role files cannot be a file"}},
		{"a directory in the way", config("- {path: /etc/sysconfig/kubernetes-etcd}\n- {path: /run}\n"), nil, []string{"/run is to be a file and is a directory"}},
		{"a file in the way", config("- {path: /etc/sysconfig/kubernetes-etcd}\n- {path: /etc/sysconfig/other/x}\n"), nil, []string{"not a directory"}},
		{"a seed with broken meta-data", tree{"var/lib/cloud/seed/nocloud/user-data": minions, "var/lib/cloud/seed/nocloud/meta-data": "a: ["}, nil, []string{"seed: ", "reading meta-data"}},
		{"a link to nowhere", tree{"dev/disk/by-label/cidata": "-> cidata"}, nil, []string{"volume: ", "too many links"}},
		{"too long", tree{credential: strings.Repeat("#", 1<<20+1)}, nil, []string{"credential: ", "over the bound of 1048576 bytes"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := left.with(test.tree).make(t)
			report, err := Run(t.Context(), options(root, &service{id: "i-imds", err: test.imds}))
			if err == nil {
				t.Fatalf("no error: %+v", report)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in\n%v", want, err)
				}
			}
			if len(report.Roles) > 0 {
				t.Errorf("roles %v", report.Roles)
			}
			delete(test.tree, "dev/disk/by-label/cidata")
			_ = os.Remove(filepath.Join(root, "dev/disk/by-label/cidata")) // there in one case only
			want := tree{"etc/sysconfig/other": "x", "etc/sysconfig/kubernetes-workers_old": "x"}
			if diff := cmp.Diff(want, readTree(t, root, test.tree)); diff != "" {
				t.Errorf("left -want +got\n%s", diff)
			}
		})
	}
}

// TestNextStepOfUserData: the command that shows user data is complete.
func TestNextStepOfUserData(t *testing.T) {
	if next := nextStep(errors.New("no role")); !strings.Contains(next, "/"+minionsFile) || !strings.HasSuffix(next, ": hardtack userdata -f CLUSTER.yaml --group GROUP prints such") {
		t.Error(next)
	}
}
