package awsfake

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

const homeZone = HomeRegion + "a"

// newVolume makes a volume of 20 GiB in homeZone by its API.
func (b *bench) newVolume(t *testing.T, tags ...string) string {
	t.Helper()
	in := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(20), VolumeType: types.VolumeTypeGp3}
	if len(tags) > 0 {
		in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: tagList(tags...)}}
	}
	out, err := b.ec2.CreateVolume(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return *out.VolumeId
}

// tagList returns tags from pairs of key and value.
func tagList(pairs ...string) (tags []types.Tag) {
	for i := 0; i+1 < len(pairs); i += 2 {
		tags = append(tags, types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return tags
}

func (b *bench) attach(t *testing.T, volume, instance, device string) string {
	t.Helper()
	_, err := b.ec2.AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: &volume, InstanceId: &instance, Device: &device})
	return codeOf(err)
}

func (b *bench) detach(t *testing.T, in ec2.DetachVolumeInput) string {
	t.Helper()
	_, err := b.ec2.DetachVolume(t.Context(), &in)
	return codeOf(err)
}

// volumeNow is a volume's state and its attachment's, "gone" if there is none.
func (b *bench) volumeNow(t *testing.T, id string) string {
	t.Helper()
	out, err := b.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return codeOf(err)
	}
	v := out.Volumes[0]
	state := string(v.State)
	for _, a := range v.Attachments {
		state += " " + string(a.State)
	}
	return state
}

func (b *bench) wantVolume(t *testing.T, id, want string) {
	t.Helper()
	if got := b.volumeNow(t, id); got != want {
		t.Errorf("the volume is %q, want %q", got, want)
	}
}

// slow are volumes whose every step takes its own time.
var slow = VolumeOptions{Create: 2 * time.Second, Attach: 3 * time.Second, Detach: 4 * time.Second, Release: 5 * time.Second, Delete: 6 * time.Second, Modify: 7 * time.Second}

func TestVolumeLife(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{Volumes: slow}})
	m := b.run(t, Machine{Zone: homeZone})
	id := b.newVolume(t)
	b.wantVolume(t, id, "creating")
	if got := b.attach(t, id, m.ID, "/dev/sdf"); got != "IncorrectState" {
		t.Errorf("attaching what is being made: %s", got)
	}
	b.pass(2 * time.Second)
	b.wantVolume(t, id, "available")
	if got := b.attach(t, id, m.ID, "/dev/sdf"); got != "ok" {
		t.Fatal(got)
	}
	b.wantVolume(t, id, "in-use attaching")
	if got := b.attach(t, id, m.ID, "/dev/sdf"); got != "VolumeInUse" {
		t.Errorf("attaching again: %s", got)
	}
	b.pass(3 * time.Second)
	b.wantVolume(t, id, "in-use attached")
	out, err := b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}})
	if err != nil {
		t.Fatal(err)
	}
	disk := out.Reservations[0].Instances[0].BlockDeviceMappings[0]
	if *disk.DeviceName != "/dev/sdf" || *disk.Ebs.VolumeId != id || disk.Ebs.Status != types.AttachmentStatusAttached || *disk.Ebs.DeleteOnTermination {
		t.Errorf("the machine shows %+v", disk.Ebs)
	}
	_, err = b.ec2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id})
	wantCode(t, err, "VolumeInUse", "Volume "+id+" is currently attached to "+m.ID)
	if got := b.detach(t, ec2.DetachVolumeInput{VolumeId: &id}); got != "ok" {
		t.Fatal(got)
	}
	b.wantVolume(t, id, "in-use detaching")
	b.pass(time.Hour) // the file system is mounted
	b.wantVolume(t, id, "in-use busy")
	if got := b.detach(t, ec2.DetachVolumeInput{VolumeId: &id}); got != "IncorrectState" {
		t.Errorf("detaching again: %s", got)
	}
	if !b.account.EC2().Detached(id, m.ID) {
		t.Error("a busy volume is not given back")
	}
	b.wantVolume(t, id, "available")
	if _, err := b.ec2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
		t.Fatal(err)
	}
	b.wantVolume(t, id, "deleting")
	b.pass(6 * time.Second)
	b.wantVolume(t, id, "InvalidVolume.NotFound")
}

// A machine that ends keeps its volumes a while longer, and then nobody has to detach them.
func TestEndedMachineFreesVolumes(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{Volumes: slow}})
	m, next := b.run(t, Machine{Zone: homeZone}), b.run(t, Machine{Zone: homeZone})
	id := b.newVolume(t)
	b.pass(2 * time.Second)
	if got := b.attach(t, id, m.ID, "/dev/sdf"); got != "ok" {
		t.Fatal(got)
	}
	b.pass(3 * time.Second)
	b.account.EC2().Terminate(m.ID)
	b.wantVolume(t, id, "in-use detaching")
	if got := b.attach(t, id, next.ID, "/dev/sdf"); got != "VolumeInUse" {
		t.Errorf("attaching before the volume is free: %s", got)
	}
	b.pass(5 * time.Second)
	b.wantVolume(t, id, "available")
	if got := b.attach(t, id, next.ID, "/dev/sdf"); got != "ok" {
		t.Errorf("attaching the volume of a machine that has ended: %s", got)
	}
	b.pass(time.Hour)
	b.wantVolume(t, id, "in-use attached") // and the former machine's end does not come again
}

func TestVolumeForce(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		b := newBench(t, Options{EC2: EC2Options{Volumes: VolumeOptions{Force: allowed}}})
		m := b.run(t, Machine{Zone: homeZone})
		id := b.newVolume(t)
		b.attach(t, id, m.ID, "/dev/sdf")
		b.detach(t, ec2.DetachVolumeInput{VolumeId: &id}) // busy
		force := b.detach(t, ec2.DetachVolumeInput{VolumeId: &id, Force: aws.Bool(true)})
		if want := map[bool]string{true: "ok", false: "UnsupportedOperation"}[allowed]; force != want {
			t.Errorf("by force from a running machine, allowed %v: %s, want %s", allowed, force, want)
		}
		b.wantVolume(t, id, map[bool]string{true: "available", false: "in-use busy"}[allowed])
		b.account.EC2().Terminate(m.ID)
		b.wantVolume(t, id, "available")
	}
}

func TestVolumeRefusals(t *testing.T) {
	b := newBench(t, Options{})
	m, far, ended := b.run(t, Machine{Zone: homeZone}), b.run(t, Machine{Zone: HomeRegion + "b"}), b.run(t, Machine{Zone: homeZone})
	b.account.EC2().Terminate(ended.ID)
	id, other := b.newVolume(t), b.newVolume(t)
	none, noMachine := "vol-0123456789abcdef0", "i-0123456789abcdef0"
	for _, tt := range []struct{ volume, instance, device, want string }{
		{"vol-1", m.ID, "/dev/sdf", "InvalidVolumeID.Malformed"},
		{none, m.ID, "/dev/sdf", "InvalidVolume.NotFound"},
		{id, "m-1", "/dev/sdf", "InvalidInstanceID.Malformed"},
		{id, noMachine, "/dev/sdf", "InvalidInstanceID.NotFound"},
		{id, m.ID, "", "MissingParameter"},
		{id, m.ID, "/dev/nvme1n1", "InvalidParameterValue"},
		{id, m.ID, "/dev/sdZZ", "InvalidParameterValue"},
		{id, m.ID, "/dev/xvda", "InvalidParameterValue"}, // the root's
		{id, far.ID, "/dev/sdf", "InvalidVolume.ZoneMismatch"},
		{id, ended.ID, "/dev/sdf", "IncorrectState"},
		{other, m.ID, "xvdf", "ok"},
		{other, m.ID, "/dev/sdg", "VolumeInUse"},
		{id, m.ID, "/dev/sdf", "InvalidParameterValue"}, // other's
		{id, m.ID, "/dev/sdg", "ok"},
	} {
		if got := b.attach(t, tt.volume, tt.instance, tt.device); got != tt.want {
			t.Errorf("attaching %s to %s as %q: %s, want %s", tt.volume, tt.instance, tt.device, got, tt.want)
		}
	}
	free := b.newVolume(t)
	for _, tt := range []struct {
		in   ec2.DetachVolumeInput
		want string
	}{
		{ec2.DetachVolumeInput{VolumeId: &none}, "InvalidVolume.NotFound"},
		{ec2.DetachVolumeInput{VolumeId: &free}, "IncorrectState"},
		{ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &noMachine}, "InvalidInstanceID.NotFound"},
		{ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &far.ID}, "InvalidAttachment.NotFound"},
		{ec2.DetachVolumeInput{VolumeId: &id, Device: aws.String("/dev/sdf")}, "InvalidAttachment.NotFound"},
		{ec2.DetachVolumeInput{VolumeId: &id, DryRun: aws.Bool(true)}, "DryRunOperation"},
		{ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &m.ID, Device: aws.String("/dev/sdg")}, "ok"},
	} {
		if got := b.detach(t, tt.in); got != tt.want {
			t.Errorf("detaching %s: %s, want %s", *tt.in.VolumeId, got, tt.want)
		}
	}
}

func TestAttachmentLimit(t *testing.T) {
	b := newBench(t, Options{})
	m := b.run(t, Machine{Zone: homeZone})
	var last string
	for n := range maxVolumes + 1 {
		last = b.attach(t, b.newVolume(t), m.ID, fmt.Sprintf("/dev/xvd%c%c", 'b'+n/26, 'a'+n%26))
		if last != "ok" && n < maxVolumes {
			t.Fatalf("volume %d: %s", n, last)
		}
	}
	if last != "AttachmentLimitExceeded" {
		t.Errorf("one too many: %s", last)
	}
}

// createCode returns the outcome of making a volume of edited parameters.
func (b *bench) createCode(t *testing.T, edit func(*ec2.CreateVolumeInput)) string {
	t.Helper()
	in := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(20), VolumeType: types.VolumeTypeGp3}
	edit(in)
	_, err := b.ec2.CreateVolume(t.Context(), in)
	return codeOf(err)
}

func TestCreateVolumeRefusals(t *testing.T) {
	b := newBench(t, Options{})
	type input = ec2.CreateVolumeInput
	for _, tt := range []struct {
		name, want string
		edit       func(*input)
	}{
		{"as it is", "ok", func(*input) {}},
		{"no zone", "MissingParameter", func(in *input) { in.AvailabilityZone = nil }},
		{"a zone of another region", "InvalidZone.NotFound", func(in *input) { in.AvailabilityZone = aws.String("eu-central-1a") }},
		{"no size", "MissingParameter", func(in *input) { in.Size = nil }},
		{"too small", "InvalidParameterValue", func(in *input) { in.Size = aws.Int32(0) }},
		{"too large", "InvalidParameterValue", func(in *input) { in.Size = aws.Int32(65_537) }},
		{"too few IOPS", "InvalidParameterValue", func(in *input) { in.Iops = aws.Int32(2999) }},
		{"too many IOPS", "InvalidParameterValue", func(in *input) { in.Iops = aws.Int32(80_001) }},
		{"too many IOPS for its size", "InvalidParameterValue", func(in *input) { in.Iops = aws.Int32(10_001) }},
		{"enough IOPS for its size", "ok", func(in *input) { in.Iops = aws.Int32(10_000) }},
		{"the baseline of a small one", "ok", func(in *input) { in.Size = aws.Int32(1) }},
		{"IOPS of gp2", "InvalidParameterCombination", func(in *input) { in.VolumeType, in.Iops = types.VolumeTypeGp2, aws.Int32(3000) }},
		{"io2 without IOPS", "MissingParameter", func(in *input) { in.VolumeType = types.VolumeTypeIo2 }},
		{"throughput", "InvalidParameterValue", func(in *input) { in.Throughput = aws.Int32(800) }},
		{"no such type", "InvalidParameterValue", func(in *input) { in.VolumeType = "gp9" }},
		{"a key without encryption", "InvalidParameterDependency", func(in *input) { in.KmsKeyId = aws.String("alias/demo") }},
		{"a snapshot", "UnknownParameter", func(in *input) { in.SnapshotId = aws.String("snap-01234567") }},
		{"tags of an image", "InvalidParameterValue", func(in *input) {
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: tagList("a", "b")}}
		}},
		{"AWS's own tags", "InvalidParameterValue", func(in *input) {
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: tagList("aws:a", "b")}}
		}},
		{"nothing but a question", "DryRunOperation", func(in *input) { in.DryRun = aws.Bool(true) }},
	} {
		if got := b.createCode(t, tt.edit); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCreateVolumeOnce(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{Volumes: VolumeOptions{Create: time.Second}}})
	with := func(token string, size int32) func(*ec2.CreateVolumeInput) {
		return func(in *ec2.CreateVolumeInput) { in.ClientToken, in.Size = &token, &size }
	}
	for _, tt := range []struct {
		token string
		size  int32
		want  string
	}{{"one", 20, "ok"}, {"one", 20, "ok"}, {"one", 21, "IdempotentParameterMismatch"}, {"two", 20, "ok"}, {strings.Repeat("x", 65), 20, "InvalidParameterValue"}} {
		if got := b.createCode(t, with(tt.token, tt.size)); got != tt.want {
			t.Errorf("token %s, %d GiB: %s, want %s", tt.token, tt.size, got, tt.want)
		}
	}
	if n := len(b.account.EC2().Volumes()); n != 2 {
		t.Errorf("two tokens made %d volumes", n)
	}
	arn := b.account.SSM().AddKey("alias/demo")
	for _, tt := range []struct{ key, want string }{{"alias/demo", "available"}, {"alias/none", "InvalidVolume.NotFound"}} {
		out, err := b.ec2.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(1), Encrypted: aws.Bool(true), KmsKeyId: &tt.key})
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "available" && (!*out.Encrypted || *out.KmsKeyId != arn) {
			t.Errorf("encrypted %v with %s, want %s", *out.Encrypted, *out.KmsKeyId, arn)
		}
		b.pass(time.Second)
		b.wantVolume(t, *out.VolumeId, tt.want)
	}
}

func TestVolumeFilters(t *testing.T) {
	b := newBench(t, Options{})
	m := b.run(t, Machine{Zone: homeZone})
	held, free := b.newVolume(t, "KubernetesCluster", "demo", "EtcdMember", "a"), b.newVolume(t, "KubernetesCluster", "demo", "EtcdMember", "b")
	b.attach(t, held, m.ID, "/dev/sdf")
	for _, tt := range []struct {
		filters []types.Filter
		want    []string
	}{
		{nil, []string{held, free}},
		{[]types.Filter{where("tag:EtcdMember", "b")}, []string{free}},
		{[]types.Filter{where("tag-key", "EtcdMember"), where("status", "in-use")}, []string{held}},
		{[]types.Filter{where("attachment.instance-id", m.ID)}, []string{held}},
		{[]types.Filter{where("attachment.status", "attached"), where("attachment.device", "/dev/sd?")}, []string{held}},
		{[]types.Filter{where("attachment.delete-on-termination", "false")}, []string{held}},
		{[]types.Filter{where("availability-zone", homeZone), where("encrypted", "true")}, nil},
		{[]types.Filter{where("volume-type", "gp3"), where("size", "20")}, []string{held, free}},
	} {
		out, err := b.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: tt.filters})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range out.Volumes {
			got = append(got, *v.VolumeId)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.filters, got, tt.want)
		}
	}
	_, err := b.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: []types.Filter{where("colour", "red")}})
	wantCode(t, err, "InvalidParameterValue", "The filter 'colour' is invalid")
	tagging := &ec2.CreateTagsInput{Resources: []string{free}, Tags: tagList("EtcdMember", "c")}
	if _, err := b.ec2.CreateTags(t.Context(), tagging); err != nil {
		t.Fatal(err)
	}
	if v, _ := b.account.EC2().Volume(free); v.Tags["EtcdMember"] != "c" {
		t.Errorf("tagged anew: %v", v.Tags)
	}
}

func TestModifyVolume(t *testing.T) {
	b := newBench(t, Options{EC2: EC2Options{Volumes: VolumeOptions{Modify: time.Minute}}})
	id := b.newVolume(t)
	modify := func(size int32) string {
		_, err := b.ec2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &id, Size: &size})
		return codeOf(err)
	}
	seen := func() string {
		out, err := b.ec2.DescribeVolumesModifications(t.Context(), &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}})
		if err != nil {
			return codeOf(err)
		}
		c := out.VolumesModifications[0]
		v, _ := b.account.EC2().Volume(id)
		return fmt.Sprintf("%s %d to %d, is %d", c.ModificationState, *c.OriginalSize, *c.TargetSize, v.Size)
	}
	for _, step := range []struct {
		wait       time.Duration
		size       int32
		code, seen string
	}{
		{0, 10, "InvalidParameterValue", "InvalidVolumeModification.NotFound"},
		{0, 40, "ok", "modifying 20 to 40, is 20"},
		{0, 50, "IncorrectModificationState", "modifying 20 to 40, is 20"},
		{time.Minute, 50, "IncorrectModificationState", "optimizing 20 to 40, is 40"},
		{time.Minute, 50, "VolumeModificationRateExceeded", "completed 20 to 40, is 40"},
		{6 * time.Hour, 50, "ok", "modifying 40 to 50, is 40"},
	} {
		b.pass(step.wait)
		if got := modify(step.size); got != step.code {
			t.Errorf("to %d GiB: %s, want %s", step.size, got, step.code)
		}
		if got := seen(); got != step.seen {
			t.Errorf("to %d GiB: %s, want %s", step.size, got, step.seen)
		}
	}
	if _, err := b.ec2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &id}); codeOf(err) != "InvalidParameterValue" {
		t.Errorf("nothing to modify: %v", err)
	}
}

// The role of member a's machine may attach a's volume to a's machine alone, and do nothing else with volumes.
const memberPolicy = `{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": "ec2:AttachVolume", "Resource": ["arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*:*:instance/*"],
   "Condition": {"StringEquals": {"aws:ResourceTag/KubernetesCluster": "demo", "aws:ResourceTag/EtcdMember": "a"}}},
  {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"}%s]}`

func TestAttachVolumeNeedsBothTags(t *testing.T) {
	const keys = `, {"Effect": "Allow", "Action": ["kms:CreateGrant", "kms:Decrypt"], "Resource": "*", "Condition": {"StringEquals": {"kms:ViaService": "ec2.us-west-2.amazonaws.com"}}}`
	for name, tt := range map[string]struct{ member, machine, rest, key, want string }{
		"its own":                 {"a", "a", "", "", "ok"},
		"another member's":        {"b", "a", "", "", "UnauthorizedOperation"},
		"to another machine":      {"a", "b", "", "", "UnauthorizedOperation"},
		"a key without a grant":   {"a", "a", "", "alias/demo", "UnauthorizedOperation"},
		"a key with its grant":    {"a", "a", keys, "alias/demo", "ok"},
		"the account's own key":   {"a", "a", "", "default", "ok"},
		"a volume without member": {"", "a", "", "", "UnauthorizedOperation"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.account.SSM().AddKey("alias/demo")
			policy, err := ParsePolicy([]byte(fmt.Sprintf(memberPolicy, tt.rest)))
			if err != nil {
				t.Fatal(err)
			}
			m := b.run(t, Machine{Zone: homeZone, Tags: map[string]string{"KubernetesCluster": "demo", "EtcdMember": tt.machine}})
			in := &ec2.CreateVolumeInput{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(1)}
			if in.Encrypted = aws.Bool(tt.key != ""); tt.key != "default" && tt.key != "" {
				in.KmsKeyId = &tt.key
			}
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: tagList("KubernetesCluster", "demo", "EtcdMember", tt.member)}}
			out, err := b.ec2.CreateVolume(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			b.account.AddRole("member", policy)
			c, err := b.account.Issue("member", m.ID, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			machine := b.as(t, c)
			if got := machine.attach(t, *out.VolumeId, m.ID, "/dev/sdf"); got != tt.want {
				t.Errorf("attaching: %s, want %s", got, tt.want)
			}
			id := *out.VolumeId
			_, deleted := machine.ec2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id})
			_, tagged := machine.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagList("EtcdMember", "a")})
			_, modified := machine.ec2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(2)})
			got := []string{
				machine.detach(t, ec2.DetachVolumeInput{VolumeId: &id}), machine.createCode(t, func(*ec2.CreateVolumeInput) {}),
				codeOf(deleted), codeOf(tagged), codeOf(modified),
			}
			for _, code := range got {
				if code != "UnauthorizedOperation" {
					t.Errorf("detaching, making, deleting, tagging and growing: %q", got)
				}
			}
		})
	}
}

// as returns clients that sign with c.
func (b *bench) as(t *testing.T, c Credentials) *bench {
	t.Helper()
	server := httptest.NewServer(b.account.Handler())
	t.Cleanup(server.Close)
	return &bench{account: b.account, clock: b.clock, ec2: ec2.NewFromConfig(aws.Config{
		Region: HomeRegion, BaseEndpoint: &server.URL, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token),
	})}
}
