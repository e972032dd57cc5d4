package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

const document = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

func complete(t *testing.T, more ...string) *spec.Complete {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	assert.NilError(t, err)
	doc, problems := spec.Parse("cluster.yaml", []byte(document+strings.Join(more, "")))
	assert.NilError(t, problems.Err())
	out, problems := doc.Complete(image)
	assert.NilError(t, problems.Err())
	return out
}

// newCluster is a cluster in an account with a subnet, and nothing else. It counts CloudFormation's events.
func newCluster(t *testing.T) (c *cluster.Cluster, account *awsfake.Account, conf aws.Config, events *int) {
	t.Helper()
	account = awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0, "ssm": 0, "ssm:PutParameter": 0}})
	account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000a", VPC: "vpc-00000000000000001", Zone: "us-west-2a"})
	for _, id := range []string{"ami-0000000000000000a", "ami-0000000000000000b"} {
		account.Images().Add(awsfake.Image{ID: id, Root: "/dev/xvda", Firmware: awsfake.Firmware{Architecture: "x86_64", ENA: true}})
	}
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	conf = aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	events = new(int)
	c = cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond, OnEvent: func(cloudformation.Event) { *events++ }})
	return c, account, conf, events
}

func createAuthorities(t *testing.T, conf aws.Config, of ...*spec.Complete) {
	t.Helper()
	doc := append(of, complete(t))[0]
	at, err := store.ParseLocation(doc.Cluster.Store)
	assert.NilError(t, err)
	secrets, err := store.Open(t.Context(), at, func(context.Context) (aws.Config, error) { return conf, nil })
	assert.NilError(t, err)
	_, err = authority.Create(t.Context(), secrets, doc.Info(), time.Now())
	assert.NilError(t, err)
}

// TestCluster runs a stack from its creation to its deletion through the package's API: missing resources are typed
// errors, a dry run changes nothing, and Delete removes everything.
func TestCluster(t *testing.T) {
	c, account, conf, events := newCluster(t)
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
	apply := func(o cluster.ApplyOptions) (*cluster.Applied, error) { return c.Apply(t.Context(), o) }

	_, err := apply(cluster.ApplyOptions{Deployment: deploy})
	assert.ErrorIs(t, err, pki.ErrNotFound)
	createAuthorities(t, conf)
	_, err = apply(cluster.ApplyOptions{})
	wrong := typed[*template.ParameterError](t, err)
	assert.Assert(t, slices.ContainsFunc(wrong.Wrong, func(w template.WrongParameter) bool { return w.Name == template.ParameterVPC }), "%v", wrong)
	_, err = apply(cluster.ApplyOptions{Deployment: deploy})
	assert.Equal(t, typed[*cluster.NoImageError](t, err).Channel, "stable")
	_, err = account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	_, err = apply(cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterMachines: template.MachinesYes}}})
	assert.Equal(t, typed[*cluster.TooEarlyError](t, err).Stack, "hardtack-demo")
	_, err = c.Status(t.Context())
	assert.ErrorIs(t, err, cloudformation.ErrNoStack)
	_, err = c.Refresh(t.Context(), cluster.RefreshOptions{})
	assert.ErrorIs(t, err, cloudformation.ErrNoStack)

	dry, err := apply(cluster.ApplyOptions{Deployment: deploy, DryRun: true})
	assert.NilError(t, err)
	assert.Assert(t, dry.Changed && len(dry.Changes) > 0 && dry.Zone == nil && *events == 0)
	deleted, err := c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.NilError(t, err)
	assert.Assert(t, !deleted.Found, "a dry run made a stack")

	shown := 0
	applied, err := apply(cluster.ApplyOptions{Deployment: deploy, Protect: new(true), OnDiff: func(d *cluster.Diff) { shown = len(d.Changes) }})
	assert.NilError(t, err)
	assert.Assert(t, applied.Changed && applied.Empty && applied.Zone.Lowered && applied.ZoneID != "" && *events > 0)
	assert.Equal(t, shown, len(applied.Changes))
	same, err := c.Diff(t.Context(), cluster.Deployment{})
	assert.NilError(t, err)
	assert.Assert(t, same.Empty())
	status, err := c.Status(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(status.Groups), len(c.Groups()))

	_, err = c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.Equal(t, typed[*cloudformation.ProtectedError](t, err).Stack, "hardtack-demo")
	_, err = apply(cluster.ApplyOptions{Protect: new(false)})
	assert.NilError(t, err)
	deleted, err = c.Delete(t.Context(), cluster.DeleteOptions{DryRun: true})
	assert.NilError(t, err)
	assert.Assert(t, deleted.Found && !deleted.Done && deleted.Zone != "" && len(deleted.Records) > 0)
	deleted, err = c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.NilError(t, err)
	assert.Assert(t, deleted.Found && deleted.Done)
	assert.Assert(t, slices.ContainsFunc(deleted.Stays, func(l cluster.Left) bool { return l.Kind == cluster.LeftSecrets && l.Count > 0 }), "%v", deleted.Stays)
}

// TestVolumes: a member's volume is made as the document says, in the zone of its subnet, and outlives the stack; what it could
// not become, and a second volume of a member, are refused before anything changes.
func TestVolumes(t *testing.T) {
	c, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	for _, zone := range []string{"b", "c"} {
		account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000" + zone, VPC: "vpc-00000000000000001", Zone: "us-west-2" + zone})
	}
	apply := func(parameters ...string) error {
		deploy := cluster.Deployment{Parameters: map[string]string{}}
		for i := 0; i < len(parameters); i += 2 {
			deploy.Parameters[parameters[i]] = parameters[i+1]
		}
		_, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy})
		return err
	}
	refused := func(want string, parameters ...string) {
		t.Helper()
		err := apply(parameters...)
		assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), want)
	}
	const b = "subnet-0000000000000000b"
	assert.NilError(t, apply(template.ParameterVPC, "vpc-00000000000000001", template.ParameterSubnets, b+",subnet-0000000000000000a"))
	volumes := account.EC2().Volumes()
	assert.Equal(t, len(volumes), 1)
	v := volumes[0]
	assert.DeepEqual(t, v.Tags, map[string]string{"KubernetesCluster": "demo", "EtcdMember": "a", "Name": "demo-etcd-a"})
	assert.Equal(t, fmt.Sprint(v.Zone, v.VolumeSettings, v.Key != ""), "us-west-2b{gp3 20 3000 125} true")
	group, ok := account.AutoScaling().Group("demo-masters")
	assert.Assert(t, ok)
	assert.Equal(t, group.Subnet, b)

	// The first of other subnets is of another zone: the member stays where it is.
	assert.NilError(t, apply(template.ParameterSubnets, "subnet-0000000000000000a,"+b))
	assert.NilError(t, apply())
	refused("is in us-west-2b, and its subnet subnet-0000000000000000c in us-west-2c: a volume stays in its zone", template.ParameterMembers, "subnet-0000000000000000c")
	refused("there are 2 subnets for 1 members", template.ParameterMembers, b+","+b)
	assert.ErrorContains(t, apply(template.ParameterMembers, "subnet-0000000000000000d"), "reading the availability zones of etcd's subnets subnet-0000000000000000d")
	small := cluster.New(cluster.Config{Document: complete(t, "etcd: {size: 14}\n"), AWS: conf, Poll: time.Millisecond})
	_, err = small.Apply(t.Context(), cluster.ApplyOptions{})
	assert.ErrorContains(t, err, "has 20 GiB, and etcd.size is 14: a volume does not shrink")
	other := cluster.New(cluster.Config{Document: complete(t, "etcd: {key: arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab}\n"), AWS: conf, Poll: time.Millisecond})
	_, err = other.Apply(t.Context(), cluster.ApplyOptions{})
	assert.ErrorContains(t, err, "a volume keeps its key")
	large := cluster.New(cluster.Config{Document: complete(t, "etcd: {size: 30, iops: 4000}\n"), AWS: conf, Poll: time.Millisecond})
	_, err = large.Apply(t.Context(), cluster.ApplyOptions{})
	assert.NilError(t, err)
	assert.DeepEqual(t, account.EC2().Volumes()[0].VolumeSettings, awsfake.VolumeSettings{Type: "gp3", Size: 30, IOPS: 4000, Throughput: 125})

	// hardtack etcd replace has made another: what changes nothing of it is applied, and what does is refused before it fails.
	tags := v.Tags
	made := account.EC2().CreateVolume("us-west-2b", 30, tags)
	assert.NilError(t, account.EC2().DeleteVolume(v.ID))
	_, err = large.Apply(t.Context(), cluster.ApplyOptions{})
	assert.NilError(t, err)
	larger := cluster.New(cluster.Config{Document: complete(t, "etcd: {size: 40, iops: 4000}\n"), AWS: conf, Poll: time.Millisecond})
	_, err = larger.Apply(t.Context(), cluster.ApplyOptions{})
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), "the stack's volume "+v.ID+" is gone, and "+made.ID+" was made in its place")
	v = made

	deleted, err := c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.NilError(t, err)
	i := slices.IndexFunc(deleted.Stays, func(l cluster.Left) bool { return l.Kind == cluster.LeftMember })
	assert.Assert(t, i >= 0, "%v", deleted.Stays)
	assert.Equal(t, fmt.Sprintf("%+v", deleted.Stays[i]), "{Kind:member Name:"+v.ID+" Count:1 Member:a Facts:30 GiB in us-west-2b, made 0 minutes ago}")
	refused("volume "+v.ID+" has its tags (30 GiB in us-west-2b, made 0 minutes ago) and is not the stack's", template.ParameterVPC, "vpc-00000000000000001", template.ParameterSubnets, b)
	assert.NilError(t, account.EC2().DeleteVolume(v.ID))
	// The bucket of the backups stays too: the next stack has to be told to use it.
	const bucket = "hardtack-123456789012-us-west-2-demo"
	i = slices.IndexFunc(deleted.Stays, func(l cluster.Left) bool { return l.Kind == cluster.LeftBackups })
	assert.Assert(t, i >= 0, "%v", deleted.Stays)
	assert.DeepEqual(t, deleted.Stays[i], cluster.Left{Kind: cluster.LeftBackups, Name: bucket, Count: 1, Facts: "it has no backup of the cluster"})
	var there *cluster.BucketError
	assert.Assert(t, errors.As(apply(template.ParameterVPC, "vpc-00000000000000001", template.ParameterSubnets, b), &there))
	assert.DeepEqual(t, there, &cluster.BucketError{Cluster: "demo", Bucket: bucket, Facts: "it has no backup of the cluster"})
	script := &awsfake.Script{}
	script.Add("ListObjectsV2", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "no"}})
	account.SetFaults(script)
	left, err := c.Left(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, slices.ContainsFunc(left, func(l cluster.Left) bool {
		return l.Kind == cluster.LeftBackups && l.Name == bucket && strings.Contains(l.Facts, "may not see")
	}), "%v", left)
	next := cluster.New(cluster.Config{Document: complete(t, "etcd: {backup: {to: s3://hardtack-123456789012-us-west-2-demo/}}\n"), AWS: conf, Poll: time.Millisecond})
	_, err = next.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{
		template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: b}}})
	assert.NilError(t, err)
}

// TestVolumesForARunningCluster: a cluster from before volumes gets them where its machines are, and no machine ends. A first
// subnet of another zone would have ended its only master, with all objects on its disk.
func TestVolumesForARunningCluster(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000b", VPC: "vpc-00000000000000001", Zone: "us-west-2b"})
	with := func(more string, parameters map[string]string) *cluster.Applied {
		t.Helper()
		c := cluster.New(cluster.Config{Document: complete(t, more), AWS: conf, Poll: time.Millisecond})
		out, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: parameters}})
		assert.NilError(t, err)
		return out
	}
	const before = "etcd: {storage: machine}\n"
	with(before, map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000b"})
	with(before, map[string]string{template.ParameterMachines: template.MachinesYes})
	account.Tick()
	with(before, map[string]string{template.ParameterSubnets: "subnet-0000000000000000a,subnet-0000000000000000b"})
	machines := account.AutoScaling().Instances("demo-masters")
	assert.Equal(t, len(machines), 1)
	assert.Equal(t, len(account.EC2().Volumes()), 0)

	after := with("", nil)
	assert.DeepEqual(t, after.Unmoved, []string{"a"})
	assert.Equal(t, account.EC2().Volumes()[0].Zone, "us-west-2b")
	group, _ := account.AutoScaling().Group("demo-masters")
	assert.Equal(t, group.Subnet, "subnet-0000000000000000b")
	account.Tick()
	assert.DeepEqual(t, account.AutoScaling().Instances("demo-masters")[0].ID, machines[0].ID)
	assert.Equal(t, account.Calls()["autoscaling:TerminateInstanceInAutoScalingGroup"], 0)
	assert.Equal(t, len(with("", nil).Unmoved), 0)

	// There is no way back by the document: it would leave the data.
	back := cluster.New(cluster.Config{Document: complete(t, before), AWS: conf, Poll: time.Millisecond})
	_, err = back.Apply(t.Context(), cluster.ApplyOptions{})
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), "member a: its data are on volume "+account.EC2().Volumes()[0].ID+", and with etcd.storage: machine its next machine would not have them")

	// Its zone is not given up by a parameter either.
	c := cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond})
	_, err = c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterMembers: "subnet-0000000000000000a"}}})
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), "member a: its machine "+machines[0].ID+" is in us-west-2b, and its subnet subnet-0000000000000000a in us-west-2a: AutoScaling would end it")
}

// typed returns the error as the wanted type. The text of the error must not name our commands or flags.
func typed[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%v is no %T", err, e)
	}
	if text := err.Error(); strings.Contains(text, "hardtack stack") || strings.Contains(text, " --") {
		t.Errorf("words a command: %s", text)
	}
	return e
}

// TestVoters: a group whose member votes stays until the member was removed; one that never reported goes.
func TestVoters(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	named := func(members string) *spec.Complete {
		return complete(t, "groups:\n- {name: masters, roles: [masters]}\n- {name: etcd, roles: [etcd], members: ["+members+"]}\n")
	}
	createAuthorities(t, conf, named("a, b, c"))
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	apply := func(members string, more ...string) error {
		c := cluster.New(cluster.Config{Document: named(members), AWS: conf, Poll: time.Millisecond})
		subnet := "subnet-0000000000000000a"
		parameters := map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: subnet, template.ParameterMembers: subnet + strings.Repeat(","+subnet, strings.Count(members, ","))}
		_, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: parameters}, AllowReplacement: more})
		return err
	}
	put := func(object string, content []byte) {
		t.Helper()
		secrets := store.NewSSM("/hardtack/demo", func(context.Context) (aws.Config, error) { return conf, nil })
		assert.NilError(t, secrets.Put(t.Context(), object, content))
	}
	agreed := func() string {
		p, ok := account.SSM().Parameter("/hardtack/demo/" + pki.PublicInfo)
		assert.Assert(t, ok)
		info, err := machine.ParseInfo(pki.PublicInfo, []byte(p.Value))
		assert.NilError(t, err)
		return machine.JoinMembers(info.Etcd.Members)
	}
	assert.NilError(t, apply("a, b, c"))
	assert.NilError(t, apply("a, b, c, d, e"))
	assert.Equal(t, agreed(), "a b c d e")
	put(etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: "t", Members: []etcd.Peer{{Name: "a", URL: "https://a:2380"}}}))
	put(etcd.StatusObject("d"), etcd.Encode(etcd.Status{At: time.Now(), Instance: "i-1", Volume: "vol-d", Epoch: 1, MemberID: 4, Row: etcd.SRuns}))

	groups := []string{"GroupEtcdD", "GroupEtcdE", template.VolumeID("d"), template.VolumeID("e")}
	assert.DeepEqual(t, typed[*cluster.VotersError](t, apply("a, b, c", groups...)).Members, []string{"d"})
	assert.Equal(t, agreed(), "a b c d e")
	put(etcd.RemovedObject("vol-d"), etcd.Encode(etcd.Removed{Member: "d", Epoch: 1, Order: 1}))
	assert.NilError(t, apply("a, b, c", groups...))
	assert.Equal(t, agreed(), "a b c")
}

// TestSize: a group has exactly its size, also one that was larger and may be during a refresh; with a max, its size is the least.
func TestSize(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
	for i, step := range []struct {
		minions string
		want    int
	}{
		{"size: 2", 0}, {"size: 2", 2}, {"size: 1", 1}, {"size: 3", 3},
		{"size: 2, aws: {max: 5}", 3}, {"size: 4, aws: {max: 5}", 4}, {"size: 1, aws: {max: 5}", 4}, {"size: 1", 1},
	} {
		document := complete(t, "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions], "+step.minions+"}\n")
		if i == 1 {
			deploy.Parameters = map[string]string{template.ParameterMachines: template.MachinesYes}
		}
		_, err := cluster.New(cluster.Config{Document: document, AWS: conf, Poll: time.Millisecond}).Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy})
		assert.NilError(t, err)
		group, _ := account.AutoScaling().Group("demo-minions")
		assert.Equal(t, group.Desired, step.want, "step %d: %s", i, step.minions)
	}
}

// applied is an account in which documents of one cluster, with a load balancer, are applied one after the other.
func applied(t *testing.T) (*awsfake.Account, func(document string) error) {
	t.Helper()
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	const subnet = "subnet-0000000000000000a"
	at := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: subnet, template.ParameterBalancer: subnet}}
	return account, func(document string) error {
		_, err := cluster.New(cluster.Config{Document: complete(t, document), AWS: conf, Poll: time.Millisecond}).Apply(t.Context(), cluster.ApplyOptions{Deployment: at})
		return err
	}
}

// TestOtherScheme changes the load balancer of a stack that is there: AWS makes another before it deletes the old one.
func TestOtherScheme(t *testing.T) {
	_, apply := applied(t)
	for _, scheme := range []string{"internal", "internet-facing", "internal"} {
		assert.NilError(t, apply("aws: {loadBalancer: "+scheme+"}\n"), scheme)
	}
}
