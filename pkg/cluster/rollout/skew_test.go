package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// running is a cluster whose machines have these versions of Kubernetes: two masters, and two minions.
func running(m1, m2, w1, w2 string) rollout.State {
	s := three(v1)
	for id, version := range map[string]string{"i-m1": m1, "i-m2": m2, "i-w1": w1, "i-w2": w2} {
		s = at(s, id, func(m *rollout.Machine) { m.Kubernetes = version })
	}
	return s
}

// Kubernetes' rules of which versions may meet, by the examples of its own page and their neighbours.
func TestSkews(t *testing.T) {
	const (
		v132                         = "v1.32.9"
		v133, v134, v135, v136, v137 = "v1.33.9", "v1.34.6", "v1.35.4", "v1.36.3", "v1.37.0"
		m, w                         = "demo-masters", "demo-minions"
	)
	for _, tt := range []struct {
		name  string
		state rollout.State
		to    map[string]string
		want  string // parts of the skews, by semicolons; empty is none
	}{
		{"nothing changes", running(v135, v135, v135, v135), nil, ""},
		{"a patch", running("v1.36.1", "v1.36.1", "v1.36.1", "v1.36.1"), map[string]string{m: v136, w: v136}, ""},
		{"a patch back", running(v136, v136, v136, v136), map[string]string{m: "v1.36.1", w: "v1.36.1"}, ""},
		{"the next minor", running(v135, v135, v135, v135), map[string]string{m: v136, w: v136}, ""},
		{"in the middle of it", running(v136, v135, v135, v135), map[string]string{m: v136, w: v136}, ""},
		{"masters alone", running(v135, v135, v134, v133), map[string]string{m: v136}, ""},
		{"a minor is skipped", running(v134, v134, v134, v134), map[string]string{m: v136, w: v136}, "masters: there are API servers of v1.34.6, and the next would be of v1.36.3"},
		{"by one of two", running(v136, v134, v134, v134), map[string]string{m: v136}, "skips no minor"},
		{"a major", running(v136, v136, v136, v136), map[string]string{m: "v2.0.0"}, "skips no minor;minions: there would be kubelets of v1.36.3 and API servers of v2.0.0"},
		{"masters go back", running(v136, v136, v135, v135), map[string]string{m: v135}, "masters: there are API servers of v1.36.3, and the next would be of v1.35.4: an API server does not go back"},
		{"masters go back by two", running(v136, v136, v134, v134), map[string]string{m: v134}, "does not go back"},
		{"all go back", running(v136, v136, v136, v136), map[string]string{m: v135, w: v135}, "does not go back"},
		{"a master that never came up is taken back", at(running(v136, v135, v135, v135), "i-m1", state("Pending:Wait")), map[string]string{m: v135}, ""},
		{"one that leaves does not count", at(running(v134, v135, v135, v135), "i-m1", state("Terminating:Wait")), map[string]string{m: v136}, ""},
		{"nor does a minion that leaves", at(running(v136, v136, v132, v136), "i-w1", state("Terminating:Wait")), map[string]string{m: v136, w: v136}, ""},
		{"etcd has no kubelet", at(running(v136, v136, v136, v136), "i-a", func(m *rollout.Machine) { m.Kubernetes = v132 }), map[string]string{m: v136, w: v136}, ""},
		{"minions before masters", running(v135, v135, v135, v135), map[string]string{w: v136}, "minions: there would be kubelets of v1.36.3 and API servers of v1.35.4: a kubelet is never newer"},
		{"minions before the last master", running(v136, v135, v135, v135), map[string]string{w: v136}, "kubelets of v1.36.3 and API servers of v1.35.4"},
		{"minions after masters", running(v136, v136, v135, v134), map[string]string{w: v136}, ""},
		{"minions go back", running(v136, v136, v136, v136), map[string]string{w: v135}, ""},
		{"too far", running(v137, v137, v136, v136), map[string]string{w: v133}, "kubelets of v1.33.9 and API servers of v1.37.0: a kubelet is at most 3 minor versions older"},
		{"masters leave old minions behind", running(v136, v136, v136, v133), map[string]string{m: v137}, "minions: there would be kubelets of v1.33.9 and API servers of v1.37.0"},
		{"also if these come next: masters are first", running(v136, v136, v133, v133), map[string]string{m: v137, w: v137}, "kubelets of v1.33.9 and API servers of v1.37.0"},
		{"as far as it goes", running(v136, v136, v133, v133), map[string]string{m: v136, w: v136}, ""},
		{"what is there already is not ours", running(v137, v137, v133, v133), nil, ""},
		{"unknown masters", running("", "", v135, v135), map[string]string{m: v136, w: v136}, ""},
		{"unknown minions", running(v135, v135, "", ""), map[string]string{m: v136, w: v136}, ""},
		{"an unknown image", running(v134, v134, v134, v134), map[string]string{m: "", w: ""}, ""},
		{"a known one among unknown", running("", v134, "", v134), map[string]string{m: v136}, "API servers of v1.34.6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			skews := tt.state.Skews(tt.to)
			var want []string
			if tt.want != "" {
				want = strings.Split(tt.want, ";")
			}
			assert.Equal(t, len(skews), len(want), "%v", skews)
			for i, part := range want {
				assert.Assert(t, strings.Contains(skews[i].String(), part), "%s", skews[i])
			}
		})
	}
}

// Two groups of masters are at most a minor version apart, in both directions.
func TestSkewOfGroups(t *testing.T) {
	s := running("v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3")
	s.Groups = append(s.Groups, group("others", masters))
	assert.Equal(t, len(s.Skews(map[string]string{"demo-others": "v1.35.4"})), 0)
	skews := s.Skews(map[string]string{"demo-others": "v1.34.6"})
	assert.Equal(t, len(skews), 1, "%v", skews)
	assert.Equal(t, skews[0].Rule, rollout.SkipsMinor)
	assert.Equal(t, skews[0].Between(), "")
}

// What is said of a skipped version can be followed.
func TestSkewBetween(t *testing.T) {
	skews := running("v1.34.6", "v1.34.6", "v1.34.6", "v1.34.6").Skews(map[string]string{"demo-masters": "v1.37.0"})
	assert.Equal(t, skews[0].Between(), "1.35")
	skews = running("v1.34.6", "v1.34.6", "v1.34.6", "v1.34.6").Skews(map[string]string{"demo-masters": "v1.36.3"})
	assert.Equal(t, skews[0].Between(), "1.35")
	assert.ErrorContains(t, &rollout.SkewError{Skews: skews}, skews[0].String())
	assert.Equal(t, running("v1.35.4", "v1.34.6", "", "").OldestAPI(), "v1.34.6")
	assert.Equal(t, running("v1.34.6", "v1.35.4", "", "").OldestAPI(), "v1.34.6")
	assert.Equal(t, running("v1.34.6", "", "", "").OldestAPI(), "v1.34.6")
	assert.Equal(t, at(running("v1.35.4", "v1.34.6", "", ""), "i-m2", state("Terminating:Wait")).OldestAPI(), "v1.35.4")
	assert.Equal(t, running("", "", "v1.35.4", "").OldestAPI(), "")
}

func TestKnown(t *testing.T) {
	for text, want := range map[string]bool{"v1.36.3": true, "1.36.3": false, "": false, "new": false} {
		assert.Equal(t, rollout.Known(text), want, text)
	}
}

// The way to another version goes over every minor between, after what is left of the one before.
func TestWay(t *testing.T) {
	const v132, v133, v134, v135, v136 = "v1.32.9", "v1.33.9", "v1.34.6", "v1.35.4", "v1.36.3"
	for _, tt := range []struct {
		name  string
		state rollout.State
		to    string
		want  string // the hops, with the groups that are refreshed before each; or a part of the error
	}{
		{"nothing to do", running(v136, v136, v136, v136), "1.36", ""},
		{"the next", running(v135, v135, v135, v135), "1.36", "1.36"},
		{"over the one between", running(v134, v134, v134, v134), "1.36", "1.35 1.36"},
		{"a master is left", running(v136, v135, v135, v135), "1.36", "1.36"},
		{"a master is left, and minions are not known", running(v136, v135, "", ""), "1.36", "1.36"},
		{"minions are left", running(v136, v136, v136, v135), "1.36", "1.36"},
		{"what is left comes first", running(v135, v135, v134, v134), "1.36", "1.35 1.36"},
		{"kubelets that are too old for it", running(v136, v135, v132, v132), "1.36", "1.36(minions)"},
		{"kubelets that the hop before brings along", running(v135, v135, v132, v132), "1.36", "1.35 1.36"},
		{"minions ahead of masters", running(v134, v134, v135, v135), "1.34", ""},
		{"etcd has no kubelet", at(running(v136, v136, v136, v136), "i-a", func(m *rollout.Machine) { m.Kubernetes = v132 }), "1.36", ""},
		{"nor has it one on the way", at(running(v135, v135, v135, v135), "i-a", func(m *rollout.Machine) { m.Kubernetes = v132 }), "1.36", "1.36"},
		{"as old as they may be", running(v136, v136, v133, v133), "1.36", "1.36"},
		{"back", running(v136, v136, v136, v136), "1.35", "masters: there are API servers of v1.36.3, and the next would be of v1.35"},
		{"back, and masters are not the first group", func() rollout.State {
			s := running(v136, v136, v136, v136)
			slices.Reverse(s.Groups)
			return s
		}(), "1.35", "masters: there are API servers of v1.36.3"},
		{"from nowhere", running("", "", v135, v135), "1.36", "the masters' version of Kubernetes is not known"},
		{"no version", running(v135, v135, v135, v135), "new", `"new" is not a minor version`},
		{"another major", running(v135, v135, v135, v135), "2.0", "there is none between major versions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hops, err := tt.state.Way(tt.to)
			if err != nil {
				assert.Assert(t, tt.want != "")
				assert.ErrorContains(t, err, tt.want)
				return
			}
			var got []string
			for _, h := range hops {
				text := h.Minor
				if len(h.First) > 0 {
					text += "(" + strings.Join(h.First, " ") + ")"
				}
				got = append(got, text)
			}
			assert.Equal(t, strings.Join(got, " "), tt.want)
		})
	}
}
