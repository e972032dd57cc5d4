package awsfake

import (
	"slices"
	"strings"
)

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
	if err := only(p, "StackName"); err != nil {
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

func (c *CloudFormation) listStacks(p params) (any, error) {
	wanted := p.list("StackStatusFilter.member")
	var list []xmlStack
	for _, s := range slices.Backward(c.stacks) {
		if len(wanted) == 0 || slices.Contains(wanted, s.status) {
			x := s.xml()
			x.Parameters, x.Outputs, x.Tags, x.Capabilities = nil, nil, nil, nil
			list = append(list, x)
		}
	}
	list, token, err := page(list, stackPage, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Stacks    []xmlStack `xml:"StackSummaries>member"`
		NextToken string     `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

type xmlStackEvent struct {
	StackID    string `xml:"StackId"`
	ID         string `xml:"EventId"`
	StackName  string `xml:"StackName"`
	Logical    string `xml:"LogicalResourceId"`
	Physical   string `xml:"PhysicalResourceId"`
	Kind       string `xml:"ResourceType"`
	At         string `xml:"Timestamp"`
	Status     string `xml:"ResourceStatus"`
	Reason     string `xml:"ResourceStatusReason,omitempty"`
	Properties string `xml:"ResourceProperties,omitempty"`
}

// describeEvents lists a stack's events, the newest first.
func (c *CloudFormation) describeEvents(p params) (any, error) {
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, malformed("Stack [%s] does not exist", p.get("StackName"))
	}
	var list []xmlStackEvent
	for _, e := range slices.Backward(s.events) {
		list = append(list, xmlStackEvent{s.id, e.id, s.name, e.logical, e.physical, e.kind, stamp(e.at), e.status, e.reason, e.properties})
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
	if err := only(p, "StackName", "LogicalResourceId"); err != nil {
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

func (c *CloudFormation) describeResource(p params) (any, error) {
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, err
	}
	for _, r := range s.resourcesXML() {
		if r.Logical == p.get("LogicalResourceId") {
			return struct {
				Resource xmlStackResource `xml:"StackResourceDetail"`
			}{r}, nil
		}
	}
	return nil, malformed("Resource %s does not exist for stack %s", p.get("LogicalResourceId"), s.name)
}

func (c *CloudFormation) getTemplate(p params) (any, error) {
	if err := only(p, "StackName", "ChangeSetName", "TemplateStage"); err != nil {
		return nil, err
	}
	var t *cfnTemplate
	if name := p.get("ChangeSetName"); name != "" {
		_, set, err := c.findSet(p.get("StackName"), name)
		if err != nil {
			return nil, err
		}
		t = set.next.template
	} else {
		s, err := c.find(p.get("StackName"))
		if err != nil {
			return nil, err
		}
		t = s.template
	}
	if t == nil {
		return nil, malformed("Stack with id %s has no template yet: no change set has been executed", p.get("StackName"))
	}
	return struct {
		Body   string   `xml:"TemplateBody"`
		Stages []string `xml:"StagesAvailable>member"`
	}{t.body, []string{"Original", "Processed"}}, nil
}

type xmlDeclared struct {
	Key         string  `xml:"ParameterKey"`
	Default     *string `xml:"DefaultValue"`
	NoEcho      bool    `xml:"NoEcho"`
	Description string  `xml:"Description,omitempty"`
}

func (c *CloudFormation) validateTemplate(p params) (any, error) {
	if err := only(p, "TemplateBody", "TemplateURL"); err != nil {
		return nil, err
	}
	body, err := c.body(wanted{body: p.get("TemplateBody"), url: p.get("TemplateURL")})
	if err != nil {
		return nil, err
	}
	t, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}
	out := struct {
		Parameters   []xmlDeclared `xml:"Parameters>member"`
		Description  string        `xml:"Description,omitempty"`
		Capabilities []string      `xml:"Capabilities>member"`
		Reason       string        `xml:"CapabilitiesReason,omitempty"`
	}{Description: t.description}
	for _, name := range sortedKeys(t.parameters) {
		d := t.parameters[name]
		out.Parameters = append(out.Parameters, xmlDeclared{name, d.Default, d.NoEcho, d.Description})
	}
	need, why := t.capabilities()
	if out.Capabilities = need; len(need) > 0 {
		out.Reason = "The following resource(s) require capabilities: [" + strings.Join(why, ", ") + "]"
	}
	return out, nil
}

func (c *CloudFormation) protect(p params) (any, error) {
	if err := only(p, "StackName", "EnableTerminationProtection"); err != nil {
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
