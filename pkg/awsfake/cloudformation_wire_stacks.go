package awsfake

import "slices"

type xmlStack struct {
	ID           string     `xml:"StackId"`
	Name         string     `xml:"StackName"`
	Description  string     `xml:"Description,omitempty"`
	Parameters   []xmlGiven `xml:"Parameters>member"`
	Created      string     `xml:"CreationTime"`
	Updated      string     `xml:"LastUpdatedTime,omitempty"`
	Deleted      string     `xml:"DeletionTime,omitempty"`
	Status       string     `xml:"StackStatus"`
	Reason       string     `xml:"StackStatusReason,omitempty"`
	Protected    bool       `xml:"EnableTerminationProtection"`
	Capabilities []string   `xml:"Capabilities>member"`
	xmlStackRest
}

type xmlStackRest struct {
	Outputs []xmlOutput `xml:"Outputs>member"`
	Tags    []xmlPair   `xml:"Tags>member"`
}

type xmlOutput struct {
	Key         string `xml:"OutputKey"`
	Value       string `xml:"OutputValue"`
	Description string `xml:"Description,omitempty"`
}

func (s *cfnStack) xml() xmlStack {
	x := xmlStack{
		ID: s.id, Name: s.name, Created: stamp(s.times.created), Status: s.status, Reason: s.reason, Protected: s.protected,
		Capabilities: s.capabilities, xmlStackRest: xmlStackRest{Tags: pairsXML(s.tags)},
	}
	if s.template != nil {
		x.Description, x.Parameters = s.template.description, s.givenXML()
	}
	if !s.times.updated.IsZero() {
		x.Updated = stamp(s.times.updated)
	}
	if !s.times.deleted.IsZero() {
		x.Deleted = stamp(s.times.deleted)
	}
	for _, o := range s.outputs {
		x.Outputs = append(x.Outputs, xmlOutput(o))
	}
	return x
}

func (c *CloudFormation) describeStacks(p params) (any, error) {
	if err := onlyFields(p, "StackName"); err != nil {
		return nil, err
	}
	var list []xmlStack
	if name := p.get("StackName"); name != "" {
		s, err := c.find(name)
		if err != nil {
			return nil, err
		}
		list = append(list, s.xml())
	} else {
		for _, s := range c.stacks {
			if s.status != verbDelete+completed {
				list = append(list, s.xml())
			}
		}
	}
	list, token, err := page(list, stackPage, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Stacks    []xmlStack `xml:"Stacks>member"`
		NextToken string     `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

type xmlStackEvent struct {
	StackID   string `xml:"StackId"`
	ID        string `xml:"EventId"`
	StackName string `xml:"StackName"`
	Logical   string `xml:"LogicalResourceId"`
	Physical  string `xml:"PhysicalResourceId"`
	Kind      string `xml:"ResourceType"`
	At        string `xml:"Timestamp"`
	Status    string `xml:"ResourceStatus"`
	Reason    string `xml:"ResourceStatusReason,omitempty"`
}

// describeEvents lists a stack's events, the newest first.
func (c *CloudFormation) describeEvents(p params) (any, error) {
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, malformed("Stack [%s] does not exist", p.get("StackName"))
	}
	var list []xmlStackEvent
	for _, e := range slices.Backward(s.events) {
		list = append(list, xmlStackEvent{s.id, e.id, s.name, e.logical, e.physical, e.kind, stamp(e.at), e.status, e.reason})
	}
	list, token, err := page(list, stackPage, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Events    []xmlStackEvent `xml:"StackEvents>member"`
		NextToken string          `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

type xmlStackResource struct {
	StackID   string `xml:"StackId"`
	StackName string `xml:"StackName"`
	Logical   string `xml:"LogicalResourceId"`
	Physical  string `xml:"PhysicalResourceId,omitempty"`
	Kind      string `xml:"ResourceType"`
	At        string `xml:"Timestamp"`
	Updated   string `xml:"LastUpdatedTimestamp"`
	Status    string `xml:"ResourceStatus"`
	Reason    string `xml:"ResourceStatusReason,omitempty"`
}

func (s *cfnStack) resourcesXML() []xmlStackResource {
	var list []xmlStackResource
	for _, id := range sortedKeys(s.resources) {
		r := s.resources[id]
		list = append(list, xmlStackResource{s.id, s.name, id, r.physical, r.kind, stamp(r.updated), stamp(r.updated), r.status, r.reason})
	}
	return list
}

func (c *CloudFormation) listResources(p params) (any, error) {
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, err
	}
	list, token, err := page(s.resourcesXML(), stackPage, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Resources []xmlStackResource `xml:"StackResourceSummaries>member"`
		NextToken string             `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

// describeResources lists up to a hundred resources; there are no pages.
func (c *CloudFormation) describeResources(p params) (any, error) {
	if err := onlyFields(p, "StackName", "LogicalResourceId"); err != nil {
		return nil, err
	}
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, err
	}
	var list []xmlStackResource
	for _, r := range s.resourcesXML() {
		if id := p.get("LogicalResourceId"); (id == "" || id == r.Logical) && len(list) < stackPage {
			list = append(list, r)
		}
	}
	return struct {
		Resources []xmlStackResource `xml:"StackResources>member"`
	}{list}, nil
}

func (c *CloudFormation) protect(p params) (any, error) {
	if err := onlyFields(p, "StackName", "EnableTerminationProtection"); err != nil {
		return nil, err
	}
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, err
	}
	if s.protected, err = p.flag("EnableTerminationProtection", false); err != nil {
		return nil, err
	}
	return struct{ StackId string }{s.id}, nil
}
