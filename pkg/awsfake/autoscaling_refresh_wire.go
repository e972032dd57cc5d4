package awsfake

import "slices"

type xmlRefresh struct {
	ID          string             `xml:"InstanceRefreshId"`
	Group       string             `xml:"AutoScalingGroupName"`
	Status      string             `xml:"Status"`
	Reason      string             `xml:"StatusReason,omitempty"`
	Started     string             `xml:"StartTime"`
	Ended       string             `xml:"EndTime,omitempty"`
	Percent     int                `xml:"PercentageComplete"`
	ToUpdate    int                `xml:"InstancesToUpdate"`
	Preferences refreshPreferences `xml:"Preferences"`
	Desired     *xmlLaunchRef      `xml:"DesiredConfiguration>LaunchTemplate"`
	Mixed       *mixedShape        `xml:"DesiredConfiguration>MixedInstancesPolicy"`
	Rollback    *rollback          `xml:"RollbackDetails"`
}

func (s *AutoScaling) refreshXML(g *group, r *refresh) xmlRefresh {
	x := xmlRefresh{
		ID: r.id, Group: g.Name, Status: r.status, Reason: r.reason, Started: stamp(r.started), Preferences: r.refreshPreferences,
		Percent: r.percent, ToUpdate: r.toUpdate, Rollback: r.rollback,
	}
	if r.desired != nil {
		x.Desired, x.Mixed = r.desired.xml(), r.mixed.xml(*r.desired)
		if x.Mixed != nil {
			x.Desired = nil
		}
	}
	if r.active() {
		x.Percent, x.ToUpdate = s.percent(g, r), s.toUpdate(g, r)
	} else {
		x.Ended = stamp(r.ended)
	}
	return x
}

func (s *AutoScaling) describeRefreshes(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	size, err := p.records(maxRecords)
	if err != nil {
		return nil, err
	}
	ids := p.list("InstanceRefreshIds.member")
	var list []xmlRefresh
	for _, r := range slices.Backward(g.refreshes) {
		if len(ids) == 0 || slices.Contains(ids, r.id) {
			list = append(list, s.refreshXML(g, r))
		}
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Refreshes []xmlRefresh `xml:"InstanceRefreshes>member"`
		NextToken string       `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

type xmlRefreshID struct {
	ID string `xml:"InstanceRefreshId"`
}

func (s *AutoScaling) startRefreshCall(p params) (any, error) {
	if strategy := p.get("Strategy"); strategy != "" && strategy != "Rolling" {
		return nil, malformed("awsfake does not model the refresh strategy %s", strategy)
	}
	var wants refreshPreferences
	if err := queryShape(p, "Preferences", &wants); err != nil {
		return nil, err
	}
	var desired struct {
		Template *struct {
			ID      string `cfn:"LaunchTemplateId"`
			Name    string `cfn:"LaunchTemplateName"`
			Version string `cfn:"Version"`
		} `cfn:"LaunchTemplate"`
		Mixed *mixedShape `cfn:"MixedInstancesPolicy"`
	}
	if err := queryShape(p, "DesiredConfiguration", &desired); err != nil {
		return nil, err
	}
	var ref *LaunchRef
	var mixed *mixedPolicy
	switch t := desired.Template; {
	case t != nil && desired.Mixed != nil:
		return nil, malformed("You must specify either a LaunchTemplate or a MixedInstancesPolicy in the desired configuration.")
	case t != nil:
		ref = &LaunchRef{t.ID, t.Name, t.Version}
	case desired.Mixed != nil:
		policy, of, err := desired.Mixed.policy()
		if err != nil {
			return nil, err
		}
		ref, mixed = &of, policy
	}
	return refreshAnswer(s.startRefreshTo(p.get("AutoScalingGroupName"), wants, ref, mixed))
}

// queryShape reads a structure of a Query call strictly.
func queryShape(p params, prefix string, into any) error {
	switch problem, wrong := first(decodeShape(p.formTree(prefix), into, "query")); {
	case !wrong:
		return nil
	case problem.Unknown:
		return malformed("awsfake does not model %s.%s", prefix, problem.Path)
	case problem.Missing:
		return malformed("%s.%s is required", prefix, problem.Path)
	default:
		return malformed("%s.%s must be of type %s", prefix, problem.Path, problem.Want)
	}
}

func refreshAnswer(id string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return xmlRefreshID{id}, nil
}

func (s *AutoScaling) cancelRefreshCall(p params) (any, error) {
	return refreshAnswer(s.cancelRefresh(p.get("AutoScalingGroupName")))
}

func (s *AutoScaling) rollbackRefreshCall(p params) (any, error) {
	return refreshAnswer(s.rollbackRefresh(p.get("AutoScalingGroupName")))
}
