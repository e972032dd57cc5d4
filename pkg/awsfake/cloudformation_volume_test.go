package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

const volumeTemplate = `Resources:
  Volume:
    Type: AWS::EC2::Volume
    DeletionPolicy: RetainExceptOnCreate
    UpdateReplacePolicy: Retain
    Properties:
      AvailabilityZone: us-west-2a
      Size: 20
      VolumeType: gp3
      Iops: 3000
      Encrypted: true
      Tags: [{Key: EtcdMember, Value: a}]
  Group: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: a, VpcId: vpc-00000000000000001}}
Outputs:
  Id: {Value: !Ref Volume}
  Same: {Value: !GetAtt Volume.VolumeId}
`

// edited is volumeTemplate with texts replaced: old and new in turn. A text that is not there is an error of the test.
func edited(t *testing.T, pairs ...string) string {
	t.Helper()
	body := strings.Replace(volumeTemplate, "", "", 1)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(body, pairs[i]) {
			t.Fatalf("the template has no %q", pairs[i])
		}
		body = strings.Replace(body, pairs[i], pairs[i+1], 1)
	}
	return body
}

// volumeStack is a stack of a volume, which no machine has.
func volumeStack(t *testing.T, body string) (*bench, string) {
	t.Helper()
	b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}})
	b.account.SSM().AddKey("alias/demo")
	s := b.deploy(t, types.ChangeSetTypeCreate, body, nil)
	wantStatus(t, b, s, types.StackStatusCreateComplete)
	if len(s.Outputs) != 2 || *s.Outputs[0].OutputValue != *s.Outputs[1].OutputValue {
		t.Errorf("the outputs are %+v", s.Outputs)
	}
	return b, *s.Outputs[0].OutputValue
}

func (b *bench) removeStack(t *testing.T) types.Stack {
	t.Helper()
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	return b.end(t)
}

func TestVolumeOfStack(t *testing.T) {
	b, id := volumeStack(t, edited(t))
	v, ok := b.account.EC2().Volume(id)
	if !ok {
		t.Fatal("the stack made no volume")
	}
	want := VolumeSettings{Type: "gp3", Size: 20, IOPS: 3000, Throughput: 125}
	if diff := cmp.Diff(want, v.VolumeSettings); diff != "" || v.Key != b.account.Images().defaultKey() || v.Zone != "us-west-2a" {
		t.Errorf("the volume is %+v:\n%s", v, diff)
	}
	if diff := cmp.Diff(map[string]string{"EtcdMember": "a"}, v.Tags); diff != "" {
		t.Errorf("its tags (-want +got):\n%s", diff)
	}
	set := b.propose(t, types.ChangeSetTypeUpdate, edited(t, "Size: 20", "Size: 40", "us-west-2a", "us-west-2b"), nil)
	if diff := cmp.Diff([]string{"Modify Volume False [Static AvailabilityZone Never DirectModification] [Static Size Never DirectModification]"}, proposed(set)); diff != "" {
		t.Errorf("the changes (-want +got):\n%s", diff)
	}
}

// What becomes of the volume when the stack, or the resource, or the attempt at the resource ends.
func TestVolumePolicies(t *testing.T) {
	for _, tt := range []struct {
		policy           string
		left, snapshots  int
		leftOfAnAttempt  int
		snapshotsOfThese int
	}{
		{"Delete", 0, 0, 0, 0}, {"Retain", 1, 0, 1, 0}, {"RetainExceptOnCreate", 1, 0, 0, 0}, {"Snapshot", 0, 1, 0, 1},
	} {
		t.Run(tt.policy, func(t *testing.T) {
			body := edited(t, "RetainExceptOnCreate", tt.policy)
			count := func(b *bench) [2]int {
				snapshots := b.account.Images().Snapshots()
				for _, s := range snapshots {
					if s.State != SnapshotCompleted || s.Size != 20 || s.Tags["EtcdMember"] != "a" || s.Volume == "" {
						t.Errorf("the snapshot is %+v", s)
					}
				}
				return [2]int{len(b.account.EC2().Volumes()), len(snapshots)}
			}
			b, _ := volumeStack(t, body)
			wantStatus(t, b, b.removeStack(t), types.StackStatusDeleteComplete)
			if got, want := count(b), [2]int{tt.left, tt.snapshots}; got != want {
				t.Errorf("after the stack there are %d volumes and snapshots, want %d", got, want)
			}
			b, _ = volumeStack(t, body)
			gone := "Resources:\n" + emptyGroup
			wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, gone, nil), types.StackStatusUpdateComplete)
			if got, want := count(b), [2]int{tt.left, tt.snapshots}; got != want {
				t.Errorf("after the resource there are %d volumes and snapshots, want %d", got, want)
			}
			b = stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}})
			broken := strings.Replace(body, "VpcId: vpc-00000000000000001", "VpcId: !Ref Volume", 1)
			wantStatus(t, b, b.deploy(t, types.ChangeSetTypeCreate, broken, nil), types.StackStatusRollbackComplete)
			if got, want := count(b), [2]int{tt.leftOfAnAttempt, tt.snapshotsOfThese}; got != want {
				t.Errorf("after an attempt there are %d volumes and snapshots, want %d", got, want)
			}
		})
	}
}

func TestVolumeUpdates(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		change       []string
		event        string
	}{
		{"another zone", "UPDATE_ROLLBACK_COMPLETE", []string{"us-west-2a", "us-west-2b"}, "Volume UPDATE_FAILED Update of AWS::EC2::Volume is not supported for the property AvailabilityZone"},
		{"another key", "UPDATE_ROLLBACK_COMPLETE", []string{"Encrypted: true", "Encrypted: true, KmsKeyId: alias/demo"}, ""},
		{"smaller", "UPDATE_ROLLBACK_COMPLETE", []string{"Size: 20", "Size: 10"}, "Volume UPDATE_FAILED New size cannot be smaller than existing size"},
		{"larger", "UPDATE_COMPLETE", []string{"Size: 20", "Size: 40"}, "Volume UPDATE_COMPLETE"},
		{"faster", "UPDATE_COMPLETE", []string{"Iops: 3000", "Iops: 6000"}, "Volume UPDATE_COMPLETE"},
		{"tagged", "UPDATE_COMPLETE", []string{"Value: a", "Value: b"}, "Volume UPDATE_COMPLETE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, id := volumeStack(t, edited(t))
			change := slices.Clone(tt.change)
			change[1] = strings.Replace(change[1], ", KmsKeyId", "\n      KmsKeyId", 1)
			wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, edited(t, change...), nil), types.StackStatus(tt.status))
			if tt.event != "" && !slices.Contains(strings.Split(b.stackStory(), "\n"), tt.event) {
				t.Errorf("no event says %q:\n%s", tt.event, b.stackStory())
			}
			if v, ok := b.account.EC2().Volume(id); !ok || len(b.account.EC2().Volumes()) != 1 {
				t.Errorf("the volume is %+v", v)
			}
		})
	}
}

// A volume that has just been modified keeps the next update, and the way back, waiting for hours.
func TestVolumeUpdateWaits(t *testing.T) {
	b, id := volumeStack(t, edited(t))
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, edited(t, "Size: 20", "Size: 30"), nil), types.StackStatusUpdateComplete)
	set := b.propose(t, types.ChangeSetTypeUpdate, edited(t, "Size: 20", "Size: 40"), nil)
	if _, err := b.stacks.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{StackName: aws.String("demo"), ChangeSetName: set.ChangeSetId}); err != nil {
		t.Fatal(err)
	}
	b.pass(5 * time.Hour)
	wantStatus(t, b, b.stackNow(t), types.StackStatusUpdateInProgress)
	b.pass(time.Hour)
	wantStatus(t, b, b.end(t), types.StackStatusUpdateComplete)
	// Larger with a resource that fails: the size stays, and the way back does not wait for it.
	broken := edited(t, "Size: 20", "Size: 50", "VpcId: vpc-00000000000000001", "VpcId: !Ref Volume", "GroupDescription: a", "GroupDescription: b")
	b.pass(6 * time.Hour)
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, broken, nil), types.StackStatusUpdateRollbackComplete)
	if v, _ := b.account.EC2().Volume(id); v.Size != 50 {
		t.Errorf("after the rollback the volume has %d GiB, want the larger size", v.Size)
	}
}

func TestVolumeInUseStays(t *testing.T) {
	b, id := volumeStack(t, edited(t, "RetainExceptOnCreate", "Snapshot"))
	m := b.run(t, Machine{Zone: homeZone})
	if got := b.attach(t, id, m.ID, "/dev/sdf"); got != "ok" {
		t.Fatal(got)
	}
	wantStatus(t, b, b.removeStack(t), types.StackStatusDeleteFailed)
	if want := fmt.Sprintf("Volume DELETE_FAILED Volume %s is currently attached to %s", id, m.ID); !strings.Contains(b.stackStory(), want) {
		t.Errorf("no event says %q:\n%s", want, b.stackStory())
	}
	if len(b.account.Images().Snapshots()) != 0 {
		t.Error("a volume that stays was copied")
	}
}
