package awsfake

import "slices"

type xmlStatus struct {
	InstanceID string   `xml:"instanceId"`
	Zone       string   `xml:"availabilityZone"`
	State      xmlState `xml:"instanceState"`
	Instance   string   `xml:"instanceStatus>status"`
	System     string   `xml:"systemStatus>status"`
}

// statusXML is a machine's status checks; the system's are always passed here.
func statusXML(m Machine) xmlStatus {
	x := xmlStatus{InstanceID: m.ID, Zone: m.Zone, State: stateXML(m.State), Instance: statusOK, System: statusOK}
	switch {
	case m.State == MachinePending:
		x.Instance, x.System = statusInitializing, statusInitializing
	case m.State != MachineRunning:
		x.Instance, x.System = statusNone, statusNone
	case m.Impaired:
		x.Instance = statusImpaired
	}
	return x
}

// describeStatus lists running machines, or with IncludeAllInstances all of them.
func (e *EC2) describeStatus(p params) (any, error) {
	all, err := p.flag("IncludeAllInstances", false)
	if err != nil {
		return nil, err
	}
	size, err := p.integer("MaxResults", 1000)
	if err != nil {
		return nil, err
	}
	list, err := chosen(e.visible(), p.list("InstanceId"))
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(m Machine) bool { return !all && m.State != MachineRunning })
	var kept []xmlStatus
	for _, m := range list {
		x := statusXML(m)
		keep := true
		for _, f := range filtersOf(p.structs("Filter"), "Value", true) {
			fields := map[string][]string{
				"availability-zone": {m.Zone}, "instance-state-name": {m.State},
				"instance-status.status": {x.Instance}, "system-status.status": {x.System},
			}
			ok, err := passes(f, fields, nil)
			if err != nil {
				return nil, err
			}
			keep = keep && ok
		}
		if keep {
			kept = append(kept, x)
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Statuses  []xmlStatus `xml:"instanceStatusSet>item"`
		NextToken string      `xml:"nextToken,omitempty"`
	}{kept, token}, nil
}
