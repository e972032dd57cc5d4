package autoscaling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// numbers are the numbers of the versions of a group's template.
func (w *world) numbers(group string) (numbers []int) {
	w.t.Helper()
	all, err := w.cluster.Versions(w.t.Context(), group)
	assert.NilError(w.t, err)
	for _, v := range all {
		numbers = append(numbers, v.Number)
	}
	return numbers
}

// After many changes of the stack only those versions stay that machines, groups and a rollback need, and a few of the newest; the first
// one too, which CloudFormation leaves as the default. Machines, refreshes and rollbacks go on as before.
func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.cluster.Names = w.names
	for n := range 11 {
		w.publish([]string{imageB, imageA}[n%2])
		w.deploy("default")
	}
	prune := func() int {
		t.Helper()
		s, err := w.cluster.Read(t.Context())
		assert.NilError(t, err)
		n, err := w.cluster.Prune(t.Context(), s)
		assert.NilError(t, err)
		return n
	}
	// The machines are of version 1, which stays; 2 to 7 are nobody's.
	assert.Equal(t, prune(), 12)
	assert.DeepEqual(t, w.numbers("demo-masters"), []int{1, 8, 9, 10, 11, 12})
	assert.Equal(t, prune(), 0)
	if _, err := w.run(rollout.Options{AllowDataLoss: []string{"masters"}}); err != nil {
		t.Fatal(err)
	}
	assert.Equal(t, prune(), 2)
	assert.DeepEqual(t, w.numbers("demo-minions"), []int{8, 9, 10, 11, 12})
	w.settle()
	w.want("masters 12: b; minions 12: b b")
	w.cluster.Wanted = map[string]int{"demo-minions": 11}
	if _, err := w.run(rollout.Options{Only: []string{"minions"}}); err != nil {
		t.Fatal(err)
	}
	w.cluster.Wanted = nil
	w.settle()
	w.want("masters 12: b; minions 11: a a")
}

// More versions than a call deletes go in several; a version that AWS keeps is an error that names it, and the next time goes on. One that
// somebody else has deleted meanwhile is none.
func TestPruneMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	i := slices.IndexFunc(s.Groups, func(g rollout.Group) bool { return g.Key == "minions" })
	out, err := w.cluster.Machines.DescribeLaunchTemplateVersions(t.Context(), &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &s.Groups[i].Template})
	assert.NilError(t, err)
	for n := range 450 {
		_, err := w.cluster.Machines.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{
			LaunchTemplateId: &s.Groups[i].Template, VersionDescription: aws.String(fmt.Sprint("sha256:", n)), LaunchTemplateData: requestOf(out.LaunchTemplateVersions[0].LaunchTemplateData),
		})
		assert.NilError(t, err)
	}
	s, err = w.cluster.Read(t.Context())
	assert.NilError(t, err)
	before := w.account.Calls()["ec2:DeleteLaunchTemplateVersions"]
	script := &awsfake.Script{}
	script.Add("DeleteLaunchTemplateVersions", awsfake.Fault{}, awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "UnauthorizedOperation", Message: "no"}})
	w.account.SetFaults(script)
	n, err := w.cluster.Prune(t.Context(), s)
	assert.Assert(t, n == 200 && err != nil && strings.Contains(err.Error(), "ec2:DeleteLaunchTemplateVersions"), "%d, %v", n, err)
	n, err = w.cluster.Prune(t.Context(), s)
	assert.NilError(t, err)
	assert.Equal(t, n, 245)
	assert.Equal(t, w.account.Calls()["ec2:DeleteLaunchTemplateVersions"]-before, 4)
	assert.DeepEqual(t, w.numbers("demo-minions"), []int{1, 447, 448, 449, 450, 451})
}

// requestOf is the part of a version's data that tells machines apart.
func requestOf(d *types.ResponseLaunchTemplateData) *types.RequestLaunchTemplateData {
	return &types.RequestLaunchTemplateData{ImageId: d.ImageId, InstanceType: d.InstanceType, UserData: d.UserData}
}
