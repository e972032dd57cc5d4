package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	masters = "/etc/sysconfig/kubernetes-masters"
	minions = "/etc/sysconfig/kubernetes-minions"
	etcd    = "/etc/sysconfig/kubernetes-etcd"
	header  = "apiVersion: hardtack.dev/v1\nkind: Machine\n"
)

var (
	cloud = config.Hardware{Metadata: true, Why: `the system vendor is "Amazon EC2"`, UserData: "00ff"}
	metal = config.Hardware{Why: `the system vendor is "QEMU", not EC2`}
)

func read(t *testing.T, h config.Hardware, files map[string]string) (config.Effective, error) {
	t.Helper()
	return config.Read(imagestest.Root(t, files), h)
}

// lines are the values as one text each.
func lines(conf config.Effective) (out []string) {
	for _, v := range conf.Values {
		out = append(out, v.Field+"="+v.Value+" by "+string(v.From)+" "+v.Where)
	}
	return out
}

// TestRoleFileAlone has the seed's own user data make a default member of the cluster that it names.
func TestRoleFileAlone(t *testing.T) {
	conf, err := read(t, cloud, map[string]string{minions: "CLUSTER_NAME=cncfdemo\n"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"cluster=cncfdemo by role file " + minions,
		`store=ssm:/hardtack/cncfdemo by instance EC2: the system vendor is "Amazon EC2"`,
		"launchHook=hardtack-ready by image the agent",
		"api.port=443 by image /etc/kubernetes/kube-apiserver",
		"network.serviceCIDR=10.96.0.0/16 by image /etc/kubernetes/config",
		"network.podCIDR=10.244.0.0/14 by image /etc/kubernetes/config",
		"network.dnsAddress=10.96.0.10 by image /etc/kubernetes/kubelet.yaml",
		"network.dnsDomain=cluster.local by image /etc/kubernetes/kubelet.yaml",
	}
	if diff := cmp.Diff(want, lines(conf)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if conf.ConfigHash != "sha256:00ff" || conf.CA() != config.CAFile || conf.Roles.String() != "minions" {
		t.Errorf("%+v", conf)
	}
	info := conf.Info()
	info.Cluster = "cncfdemo"
	if err := conf.Agree(info, "the store"); err != nil {
		t.Error(err)
	}
}

// TestWhatDiffers has each of the places where a value can be said, and says which counted.
func TestWhatDiffers(t *testing.T) {
	for name, tt := range map[string]struct {
		hardware config.Hardware
		files    map[string]string
		want     []string
	}{
		"the role file's own lines": {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/srv/store\nCA_FILE=/etc/pki/ca.crt\nETCD_MEMBER=b\n", "/etc/pki/ca.crt": "x"}, []string{
			"store=dir:/srv/store by role file " + etcd, "caFile=/etc/pki/ca.crt by role file " + etcd, "etcd.member=b by role file " + etcd}},
		"first come":                {metal, map[string]string{masters: "CLUSTER_NAME=a\nSTORE=dir:/s\nFIRST_COME=no\n"}, []string{"firstCome=no by role file " + masters}},
		"a volume":                  {cloud, map[string]string{etcd: "CLUSTER_NAME=a\nETCD_STORAGE=volume\n"}, []string{"etcd.storage=volume by role file " + etcd}},
		"no word of a volume":       {cloud, map[string]string{etcd: "CLUSTER_NAME=a\n"}, []string{"etcd.storage=machine by image the agent"}},
		"a disk":                    {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_STORAGE=disk\n", machine.Path: header + "etcd: {storage: disk, disk: /dev/disk/by-id/x}\n"}, []string{"etcd.storage=disk by role file " + etcd, "etcd.disk=/dev/disk/by-id/x by document " + machine.Path}},
		"two role files that agree": {metal, map[string]string{masters: "CLUSTER_NAME=a\nSTORE=dir:/s\n", etcd: "CLUSTER_NAME=a\n"}, []string{"store=dir:/s by role file " + masters}},
		"a master's flags": {cloud, map[string]string{masters: "CLUSTER_NAME=a\nSERVICE_CIDR=--service-cluster-ip-range=10.0.0.0/16\nAPI_PORT=--secure-port=6443\nKUBE_CONTROLLER_MANAGER_ARGS=--v=2 --cluster-cidr=10.1.0.0/16\n"}, []string{
			"network.serviceCIDR=10.0.0.0/16 by role file " + masters, "api.port=6443 by role file " + masters, "network.podCIDR=10.1.0.0/16 by role file " + masters}},
		"not a minion's": {cloud, map[string]string{minions: "CLUSTER_NAME=a\nAPI_PORT=--secure-port=6443\n"}, []string{"api.port=443 by image /etc/kubernetes/kube-apiserver"}},
		"the document": {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", machine.Path: header +
			"launchHook: mine\ngroup: g\napi: {port: 6443, names: [x.example]}\nnetwork: {serviceCIDR: 10.0.0.0/16, mtu: 1400}\nnode: {maxPods: 40}\n"}, []string{
			"launchHook=mine by document " + machine.Path, "group=g by document " + machine.Path, "api.port=6443 by document " + machine.Path, "api.names=x.example by document " + machine.Path,
			"network.serviceCIDR=10.0.0.0/16 by document " + machine.Path, "network.dnsAddress=10.0.0.10 by document " + machine.Path,
			"network.podCIDR=10.244.0.0/14 by image /etc/kubernetes/config", "network.mtu=1400 by document " + machine.Path, "node.maxPods=40 by document " + machine.Path}},
		"no hook":        {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", machine.Path: header + "launchHook: none\n"}, []string{"launchHook=none by document " + machine.Path}},
		"another image":  {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/kubelet.yaml": "clusterDNS: [10.9.0.10]\nclusterDomain: k.example\n"}, []string{"network.dnsAddress=10.9.0.10 by image /etc/kubernetes/kubelet.yaml", "network.dnsDomain=k.example by image /etc/kubernetes/kubelet.yaml"}},
		"a drop-in":      {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/kubelet.conf.d/60-x.conf": "clusterDomain: k.example\n", "/etc/kubernetes/kubelet.conf.d/50-machine.conf": "clusterDomain: of.the.last.boot\n"}, []string{"network.dnsDomain=k.example by image /etc/kubernetes/kubelet.conf.d/60-x.conf"}},
		"a CA":           {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", machine.CAPath: "x"}, []string{"caFile=/etc/hardtack/ca.crt by document /etc/hardtack/ca.crt"}},
		"known members":  {cloud, map[string]string{masters: "CLUSTER_NAME=a\n", config.InfoFile: info("a", "b")}, []string{"etcd.members=a b by store " + config.InfoFile}},
		"quotes, spaces": {metal, map[string]string{minions: " CLUSTER_NAME = \"a\" \nSTORE='dir:/s'\n"}, []string{"cluster=a by role file " + minions, "store=dir:/s by role file " + minions}},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := read(t, tt.hardware, tt.files)
			if err != nil {
				t.Fatal(err)
			}
			got := lines(conf)
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// info is the object of a default cluster with these members.
func info(members ...string) string {
	data, err := machinetest.Info("a", members...).Marshal()
	if err != nil {
		panic(err) // plain values always marshal
	}
	return string(data)
}

// TestFirstCome: only a master's line, and only "no", refuses machines that come first.
func TestFirstCome(t *testing.T) {
	for text, want := range map[string]bool{"": false, "FIRST_COME=yes\n": false, "FIRST_COME=no\n": true} {
		conf, err := read(t, metal, map[string]string{masters: "CLUSTER_NAME=a\nSTORE=dir:/s\n" + text, minions: "CLUSTER_NAME=a\nFIRST_COME=no\n"})
		if err != nil || conf.NoFirstCome != want {
			t.Errorf("%q: %v, %v", text, conf.NoFirstCome, err)
		}
	}
}

// TestProblems has what cannot be derived: each names the line to write, and the file.
func TestProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		hardware config.Hardware
		files    map[string]string
		causes   []string
		next     []string
	}{
		"no store": {metal, map[string]string{minions: "CLUSTER_NAME=a\n"}, []string{`the store of the cluster's secrets is not given, and outside a cloud it does not follow from the name (the system vendor is "QEMU", not EC2)`},
			[]string{"write the line STORE=dir:/PATH", "into " + minions + " in the machine's user data"}},
		"no cluster":               {cloud, map[string]string{minions: "# nothing\n"}, []string{minions + " does not say which cluster"}, []string{"write the line CLUSTER_NAME=NAME into " + minions}},
		"no label":                 {cloud, map[string]string{minions: "CLUSTER_NAME=Demo!\n"}, []string{`"Demo!" in ` + minions + " is not a DNS label"}, []string{"CLUSTER_NAME=demo"}},
		"two clusters":             {cloud, map[string]string{masters: "CLUSTER_NAME=a\n", etcd: "CLUSTER_NAME=b\n"}, []string{`cluster is "a" in ` + masters + ` and "b" in ` + etcd}, []string{"write the same cluster into both"}},
		"another document":         {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", machine.Path: header + "cluster: b\n"}, []string{`cluster is "a" in ` + minions + ` and "b" in ` + machine.Path}, nil},
		"no such store":            {metal, map[string]string{minions: "CLUSTER_NAME=a\nSTORE=s3:/x\n"}, []string{`the store "s3:/x" is neither`}, []string{"STORE=ssm:/hardtack/NAME"}},
		"no CA there":              {cloud, map[string]string{minions: "CLUSTER_NAME=a\nCA_FILE=/nowhere\n"}, []string{"no such file"}, []string{"hardtack pki ca prints the certificate", "leave the line CA_FILE=/nowhere out"}},
		"first come":               {metal, map[string]string{masters: "CLUSTER_NAME=a\nSTORE=dir:/s\nFIRST_COME=false\n"}, []string{`FIRST_COME is "false" in ` + masters}, []string{"FIRST_COME=no"}},
		"a port":                   {cloud, map[string]string{masters: "CLUSTER_NAME=a\nAPI_PORT=--secure-port=x\n"}, []string{`"x" is no port`}, []string{"API_PORT=--secure-port=443"}},
		"a volume without a cloud": {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_STORAGE=volume\n"}, []string{`in no cloud that attaches one (the system vendor is "QEMU", not EC2)`}, []string{"ETCD_STORAGE=disk and ETCD_DISK=/dev/disk/by-id/NAME, or ETCD_STORAGE=machine"}},
		"a disk without a name":    {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_STORAGE=disk\n"}, []string{`the disk of etcd's member is ""`}, []string{"ETCD_DISK=/dev/disk/by-id/NAME"}},
		"a disk by its letter":     {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_STORAGE=disk\nETCD_DISK=/dev/sdb\n"}, []string{`the disk of etcd's member is "/dev/sdb"`}, []string{"ls /dev/disk/by-id"}},
		"a disk for nothing":       {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_DISK=/dev/disk/by-id/x\n"}, []string{`its storage is "machine"`}, []string{"leave ETCD_DISK out"}},
		"no such storage":          {metal, map[string]string{etcd: "CLUSTER_NAME=a\nSTORE=dir:/s\nETCD_STORAGE=nfs\n"}, []string{`etcd's storage is "nfs"`}, []string{"volume, disk, machine"}},
		"everything":               {metal, map[string]string{minions: "", masters: "CLUSTER_NAME=a\n"}, []string{minions + " does not say", "secrets is not given"}, []string{"CLUSTER_NAME=NAME", "STORE="}},
		"no role":                  {metal, nil, []string{"no role file"}, []string{minions}},
		"a broken document": {cloud, map[string]string{minions: "CLUSTER_NAME=a\n", machine.Path: header + "storr: x\n"}, []string{`field "storr" is not known (did you mean "store"?)`},
			[]string{"leave it out of the user data", "hardtack userdata -f"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := read(t, tt.hardware, tt.files)
			if err == nil || reason.Of(err) != reason.Config {
				t.Fatalf("%q: %v, %+v", reason.Of(err), err, conf)
			}
			f := reason.Explain("u", err)
			for _, want := range tt.causes {
				if !strings.Contains(f.Cause, want) {
					t.Errorf("cause %q, want %q", f.Cause, want)
				}
			}
			for _, want := range tt.next {
				if !strings.Contains(f.Next, want) {
					t.Errorf("next %q, want %q", f.Next, want)
				}
			}
			if strings.Contains(f.Next, "pkg/") {
				t.Errorf("next %q sends people to the sources", f.Next)
			}
		})
	}
}

// TestAgree compares machines with what their cluster has agreed on: whoever says otherwise stops, with both values.
func TestAgree(t *testing.T) {
	agreed, err := machine.ParseInfo("info", []byte(info()))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"the same":     {map[string]string{masters: "CLUSTER_NAME=a\n"}, nil},
		"another name": {map[string]string{masters: "CLUSTER_NAME=b\n"}, []string{"cluster is b in " + masters + ", and the cluster's is a"}},
		"an image with other ranges": {map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/config": "SERVICE_CIDR=--service-cluster-ip-range=10.0.0.0/16\nCLUSTER_CIDR=--cluster-cidr=10.1.0.0/16\n"}, []string{
			"network.serviceCIDR is 10.0.0.0/16 in /etc/kubernetes/config, and the cluster's is 10.96.0.0/16", "network.podCIDR is 10.1.0.0/16 in /etc/kubernetes/config, and the cluster's is 10.244.0.0/14"}},
		"a document": {map[string]string{minions: "CLUSTER_NAME=a\n", machine.Path: header + "network: {podCIDR: 10.1.0.0/16}\n"}, []string{"network.podCIDR is 10.1.0.0/16 in " + machine.Path}},
		"a flag beside the document": {map[string]string{masters: "CLUSTER_NAME=a\nSERVICE_CIDR=--service-cluster-ip-range=10.0.0.0/16\n", machine.Path: header + "network: {serviceCIDR: 10.96.0.0/16}\n"},
			[]string{"network.serviceCIDR is 10.0.0.0/16 in " + masters}},
		"the last arguments":  {map[string]string{masters: "CLUSTER_NAME=a\nKUBE_APISERVER_ARGS=--secure-port=6443\n"}, []string{"api.port is 6443 in " + masters + ", and the cluster's is 443"}},
		"kube-proxy's file":   {map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/kube-proxy.yaml": "clusterCIDR: 10.1.0.0/16\n"}, []string{"network.podCIDR is 10.1.0.0/16 in /etc/kubernetes/kube-proxy.yaml"}},
		"flannel's file":      {map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/flannel.json": `{"Network": "10.1.0.0/16"}`}, []string{"network.podCIDR is 10.1.0.0/16 in /etc/kubernetes/flannel.json"}},
		"a master has no use": {map[string]string{masters: "CLUSTER_NAME=a\n", "/etc/kubernetes/flannel.json": `{"Network": "10.1.0.0/16"}`}, nil},
		"the kubelet's DNS":   {map[string]string{minions: "CLUSTER_NAME=a\n", "/etc/kubernetes/kubelet.yaml": "clusterDNS: [10.96.0.11]\nclusterDomain: cluster.local\n"}, []string{"network.dnsAddress is 10.96.0.11 in /etc/kubernetes/kubelet.yaml"}},
		"members":             {map[string]string{etcd: "CLUSTER_NAME=a\n", machine.Path: header + "etcd: {members: [x, y]}\n"}, []string{"etcd.members is x y in " + machine.Path + ", and the cluster's is none (one beside its API server)"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := read(t, cloud, tt.files)
			if err != nil {
				t.Fatal(err)
			}
			err = conf.Agree(agreed, "public/cluster-info.yaml of ssm:/hardtack/a")
			if (err == nil) != (tt.want == nil) {
				t.Fatal(err)
			}
			if err != nil && reason.Of(err) != reason.Drift {
				t.Errorf("reason %q", reason.Of(err))
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %s", err, want)
				}
			}
		})
	}
}

// TestMember decides which member of etcd a machine is.
func TestMember(t *testing.T) {
	for name, tt := range map[string]struct {
		members         []string
		line, tag, want string
		reason          reason.Reason
		says            string
	}{
		"alone":               {nil, "", "", "a", "", ""},
		"alone, with a tag":   {nil, "", "a", "a", "", ""},
		"alone, with a line":  {nil, "a", "", "a", "", ""},
		"by its tag":          {[]string{"a", "b"}, "", "b", "b", "", ""},
		"by its line":         {[]string{"a", "b"}, "a", "", "a", "", ""},
		"nobody says":         {[]string{"a", "b"}, "", "", "", reason.Config, "write the line ETCD_MEMBER=NAME, with one of a, b, into " + etcd},
		"no such member":      {[]string{"a", "b"}, "", "c", "", reason.Drift, "ETCD_MEMBER="},
		"a line for nothing":  {nil, "b", "", "", reason.Drift, "leave ETCD_MEMBER out"},
		"a line that is none": {[]string{"a", "b"}, "c", "", "", reason.Drift, "with one of a, b"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := config.Effective{Roles: role.NewSet(role.Etcd)}
			conf.Etcd = machine.Etcd{Members: tt.members, Member: tt.line}
			err := conf.Member(tt.tag, "its metadata show no tags")
			if reason.Of(err) != tt.reason && (err != nil || tt.reason != "") {
				t.Fatalf("%q: %v", reason.Of(err), err)
			}
			if err != nil {
				if f := reason.Explain("u", err); !strings.Contains(f.Next, tt.says) {
					t.Errorf("next %q", f.Next)
				}
				return
			}
			if conf.Etcd.Member != tt.want {
				t.Errorf("member %q", conf.Etcd.Member)
			}
		})
	}
}
