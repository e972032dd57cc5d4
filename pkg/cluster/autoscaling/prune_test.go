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
	assert.Equal(t, w.standard("demo-masters"), 1)
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

// standard is the number of the default version of a group's template.
func (w *world) standard(group string) int {
	w.t.Helper()
	s, err := w.cluster.Read(w.t.Context())
	assert.NilError(w.t, err)
	i := slices.IndexFunc(s.Groups, func(g rollout.Group) bool { return g.Name == group })
	out, err := w.cluster.Machines.DescribeLaunchTemplateVersions(w.t.Context(), &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &s.Groups[i].Template, Versions: []string{"$Default"}})
	assert.NilError(w.t, err)
	return int(*out.LaunchTemplateVersions[0].VersionNumber)
}

// many gives the minions' template so many versions that some of them are nobody's.
func (w *world) many() {
	w.t.Helper()
	template := w.read("minions").Template
	for n := range 12 {
		w.version(template, fmt.Sprint("sha256:", n), &types.RequestLaunchTemplateData{ImageId: aws.String(imageA)})
	}
}

// Versions that have come since the reading stay, as many as they are: somebody may want one of them by now.
func TestPruneLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.many()
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	w.many()
	_, err = w.cluster.Prune(t.Context(), s)
	assert.NilError(t, err)
	var left []int
	for n := 13; n <= 25; n++ {
		left = append(left, n)
	}
	assert.DeepEqual(t, w.numbers("demo-minions"), append([]int{1, 12}, left...))
}

// What AWS refuses ends it with an error that says what to allow, or which version AWS has kept, and before anything else is deleted; a
// version that is gone already is none.
func TestPruneFails(t *testing.T) {
	t.Parallel()
	kept := func(e *types.ResponseError) types.DeleteLaunchTemplateVersionsResponseErrorItem {
		return types.DeleteLaunchTemplateVersionsResponseErrorItem{VersionNumber: aws.Int64(5), ResponseError: e}
	}
	for name, tt := range map[string]struct {
		action string
		fault  awsfake.Fault
		kept   []types.DeleteLaunchTemplateVersionsResponseErrorItem
		want   string
		left   int
	}{
		"reading":     {"DescribeLaunchTemplateVersions", denied, nil, "ec2:DescribeLaunchTemplateVersions", 13},
		"the default": {"ModifyLaunchTemplate", denied, nil, "ec2:ModifyLaunchTemplate", 13},
		"deleting":    {"DeleteLaunchTemplateVersions", denied, nil, "ec2:DeleteLaunchTemplateVersions", 13},
		"one is kept": {"", awsfake.Fault{}, []types.DeleteLaunchTemplateVersionsResponseErrorItem{kept(&types.ResponseError{Code: "unexpectedError"}), kept(nil)}, "version 5", 5},
		"one is gone": {"", awsfake.Fault{}, []types.DeleteLaunchTemplateVersionsResponseErrorItem{kept(&types.ResponseError{Code: "launchTemplateVersionDoesNotExist"})}, "", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "default")
			w.many()
			s, err := w.cluster.Read(t.Context())
			assert.NilError(t, err)
			for i := range s.Groups { // as if the machines were of a later one, so that the default, the first, is nobody's
				for k := range s.Groups[i].Machines {
					s.Groups[i].Machines[k].From.Number = 13
				}
				s.Groups[i].Launches.Number = s.Groups[i].Wanted.Number
			}
			if tt.action != "" {
				w.faults(tt.action, 1, tt.fault)
			}
			w.answers(func(out any) {
				if out, ok := out.(*ec2.DeleteLaunchTemplateVersionsOutput); ok {
					out.UnsuccessfullyDeletedLaunchTemplateVersions = tt.kept
				}
			})
			_, err = w.cluster.Prune(t.Context(), s)
			if tt.want == "" {
				assert.NilError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
			assert.Equal(t, len(w.numbers("demo-minions")), tt.left)
		})
	}
}

// requestOf is the part of a version's data that tells machines apart.
func requestOf(d *types.ResponseLaunchTemplateData) *types.RequestLaunchTemplateData {
	return &types.RequestLaunchTemplateData{ImageId: d.ImageId, InstanceType: d.InstanceType, UserData: d.UserData}
}
