package doctor

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// Expect resolves the template for the deployment as far as it was read: for its clusters, groups, queues and
// function. Alarms on resources that were not read are left out.
func Expect(t *shipped.Template, f Facts) (*shipped.Deployment, error) {
	settings := f.Settings.Value
	s := shipped.Stack{
		Parameters: map[string]string{shipped.ParamGroups: strings.Join(settings.AllGroups(), ",")},
		References: map[string]string{},
	}
	for _, name := range []string{shipped.ParamAPIInternal, shipped.ParamAPIZone, shipped.ParamAPISuffix} {
		if value, ok := f.Stack.Value.Parameters[name]; ok {
			s.Parameters[name] = value
		}
	}
	for name, value := range map[string]string{
		shipped.IDFunction: f.Function.Value.Name, "Queue.QueueName": f.Queue.Value.Name(), "DeadLetters.QueueName": f.Dead.Value.Name(),
	} {
		if value != "" {
			s.References[name] = value
		}
	}
	d, err := t.Deploy(s)
	if err != nil {
		return nil, err
	}
	// A function without a stack may have several clusters, each with an alarm.
	alarms := d.Alarms
	for _, c := range settings.Clusters {
		s.Parameters[shipped.ParamCluster] = c.Name
		own, err := t.Deploy(s)
		if err != nil {
			return nil, err
		}
		alarms = append(alarms, own.Alarms...)
	}
	d.Alarms = nil
	for _, a := range alarms {
		if !strings.Contains(a.Value, "${") && !slices.Contains(d.Alarms, a) {
			d.Alarms = append(d.Alarms, a)
		}
	}
	return d, nil
}

// meaning returns what an alarm means, by its logical id.
func meaning(id string) string {
	return map[string]string{
		"ErrorsAlarm":      "the function crashes or runs out of time",
		"ThrottlesAlarm":   "Lambda refuses to run the function",
		"AgeAlarm":         "nothing reads the queue, or reconciles fail again and again",
		"DeadLettersAlarm": "a cluster could not be reconciled five times over",
		"FailuresAlarm":    "reconciles fail",
		"SilenceAlarm":     "no reconcile succeeds",
		"KeptAlarm":        "names list machines that were well last, since none is well now",
	}[id]
}

// Name returns the queue's name, the last part of its ARN.
func (q Queue) Name() string { return q.ARN[strings.LastIndexByte(q.ARN, ':')+1:] }

// Groups returns the groups of a cluster.
func (s Settings) Groups(cluster string) (all []string) {
	for _, c := range s.Clusters {
		if c.Name == cluster {
			all = append(all, c.Groups...)
		}
	}
	return all
}

// AllGroups returns the groups of every cluster.
func (s Settings) AllGroups() (all []string) {
	for _, c := range s.Clusters {
		all = append(all, c.Groups...)
	}
	return all
}
