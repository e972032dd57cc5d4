package awsfake

import (
	"maps"
	"slices"
	"strings"
)

// stackPage is the size of all pages. CloudFormation's own are limited to 1 MB.
const stackPage = 100

// actions are the calls of CloudFormation's Query protocol (version 2010-05-15) that are understood.
func (c *CloudFormation) actions() actions {
	return actions{
		"CreateChangeSet": c.createChangeSetCall, "DescribeChangeSet": c.describeChangeSet, "ExecuteChangeSet": c.executeChangeSetCall,
		"DeleteChangeSet": c.deleteChangeSetCall, "ListChangeSets": c.listChangeSets,
		"DescribeStacks": c.describeStacks, "DescribeStackEvents": c.describeEvents, "DeleteStack": c.deleteStackCall,
		"ListStackResources": c.listResources, "DescribeStackResources": c.describeResources, "UpdateTerminationProtection": c.protect,
	}
}

func (c *CloudFormation) serve(call *call) (any, error) { return c.actions().serve(call) }

// needs of CloudFormation: the stack that a call names.
func (c *CloudFormation) needs(call *call) []need {
	action, name := "cloudformation:"+call.Action, call.Form.Get("StackName")
	p := params(call.Form)
	switch {
	case name == "" && call.Action == "DescribeStacks":
		// "If the stack doesn't exist ... requires ListStacks": to see all takes that permission too.
		return []need{{action: action, arn: "*"}, {action: "cloudformation:ListStacks", arn: "*"}}
	case name == "":
		return []need{{action: action, arn: "*"}}
	}
	n := need{action: action, arn: name, context: map[string][]string{}}
	if !strings.HasPrefix(name, "arn:") {
		n.arn = "arn:aws:cloudformation:" + HomeRegion + ":" + owner + ":stack/" + name + "/*"
	}
	if s, err := c.find(name); err == nil {
		n.arn, n.context = s.id, tagContext("cloudformation", s.tags)
	}
	if set := p.get("ChangeSetName"); set != "" {
		n.context["cloudformation:ChangeSetName"] = []string{set}
	}
	if url := p.get("TemplateURL"); url != "" {
		n.context["cloudformation:TemplateUrl"] = []string{url}
	}
	maps.Copy(n.context, requestContext(p.structs("Tags.member")))
	needs := []need{n}
	if bucket, key, ok := objectOf(p.get("TemplateURL")); ok {
		// CloudFormation reads the template as its caller.
		needs = append(needs, need{action: "s3:GetObject", arn: "arn:aws:s3:::" + bucket + "/" + key, context: map[string][]string{"s3:ResourceAccount": {owner}}})
	}
	return needs
}

// onlyFields refuses a call that has fields beyond those that are modelled.
func onlyFields(p params, names ...string) error {
	for key := range p {
		name, _, _ := strings.Cut(key, ".")
		if !slices.Contains(append(names, "Action", "Version", "ClientRequestToken", "ClientToken", "NextToken"), name) {
			return malformed("awsfake does not model the field %s of this call", name)
		}
	}
	return nil
}

type xmlPair struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

func pairsXML(m map[string]string) []xmlPair {
	var list []xmlPair
	for _, key := range sortedKeys(m) {
		list = append(list, xmlPair{key, m[key]})
	}
	return list
}

type xmlGiven struct {
	Key      string `xml:"ParameterKey"`
	Value    string `xml:"ParameterValue"`
	Resolved string `xml:"ResolvedValue,omitempty"`
}

func (n *stackState) givenXML() []xmlGiven {
	var list []xmlGiven
	for _, key := range sortedKeys(n.parameters.given) {
		list = append(list, xmlGiven{Key: key, Value: n.parameters.given[key], Resolved: n.parameters.resolved[key]})
	}
	return list
}

func (c *CloudFormation) createChangeSetCall(p params) (any, error) {
	err := onlyFields(p, "StackName", "ChangeSetName", "ChangeSetType", "Description", "TemplateBody", "TemplateURL", "UsePreviousTemplate", "Parameters", "Capabilities", "Tags")
	if err != nil {
		return nil, err
	}
	w := changeSetRequest{
		stack: p.get("StackName"), name: p.get("ChangeSetName"), kind: p.get("ChangeSetType"), description: p.get("Description"),
		body: p.get("TemplateBody"), url: p.get("TemplateURL"), capabilities: p.list("Capabilities.member"), tags: map[string]string{},
	}
	if w.kind == "" {
		w.kind = verbUpdate
	}
	if w.previous, err = p.flag("UsePreviousTemplate", false); err != nil {
		return nil, err
	}
	for _, tag := range p.structs("Tags.member") {
		if strings.HasPrefix(tag.get("Key"), "aws:") {
			return nil, malformed("aws: prefixed tag key names are not allowed for external use.")
		}
		w.tags[tag.get("Key")] = tag.get("Value")
	}
	if w.parameters, err = givenParameters(p); err != nil {
		return nil, err
	}
	s, set, err := c.createChangeSet(w)
	if err != nil {
		return nil, err
	}
	return struct{ Id, StackId string }{set.id, s.id}, nil
}

func givenParameters(p params) ([]givenParameter, error) {
	var list []givenParameter
	for _, parameter := range p.structs("Parameters.member") {
		previous, err := parameter.flag("UsePreviousValue", false)
		if err != nil {
			return nil, err
		}
		if previous && parameter.has("ParameterValue") {
			return nil, malformed("Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key with a value", parameter.get("ParameterKey"))
		}
		list = append(list, givenParameter{parameter.get("ParameterKey"), parameter.get("ParameterValue"), previous})
	}
	return list, nil
}

type xmlChangeSet struct {
	ID           string     `xml:"ChangeSetId"`
	Name         string     `xml:"ChangeSetName"`
	StackID      string     `xml:"StackId"`
	StackName    string     `xml:"StackName"`
	Description  string     `xml:"Description,omitempty"`
	Created      string     `xml:"CreationTime"`
	Status       string     `xml:"Status"`
	Reason       string     `xml:"StatusReason,omitempty"`
	Execution    string     `xml:"ExecutionStatus"`
	Parameters   []xmlGiven `xml:"Parameters>member"`
	Capabilities []string   `xml:"Capabilities>member"`
	xmlChangeSetRest
}

type xmlChangeSetRest struct {
	Tags      []xmlPair        `xml:"Tags>member"`
	Changes   []resourceChange `xml:"Changes>member"`
	NextToken string           `xml:"NextToken,omitempty"`
}

func (c *CloudFormation) describeChangeSet(p params) (any, error) {
	if err := onlyFields(p, "StackName", "ChangeSetName"); err != nil {
		return nil, err
	}
	s, set, err := c.findSet(p.get("StackName"), p.get("ChangeSetName"))
	if err != nil {
		return nil, err
	}
	changes, token, err := page(set.changes, stackPage, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	x := set.xml(s)
	x.Changes = changes
	x.NextToken = token
	return x, nil
}

func (set *changeSet) xml(s *cfnStack) xmlChangeSet {
	return xmlChangeSet{
		ID: set.id, Name: set.name, StackID: s.id, StackName: s.name, Description: set.description, Created: stamp(set.created),
		Status: set.status, Reason: set.reason, Execution: set.execution, Parameters: set.next.givenXML(), Capabilities: set.next.capabilities,
		xmlChangeSetRest: xmlChangeSetRest{Tags: pairsXML(set.next.tags)},
	}
}

func (c *CloudFormation) listChangeSets(p params) (any, error) {
	s, err := c.find(p.get("StackName"))
	if err != nil {
		return nil, err
	}
	out := struct {
		Sets []xmlChangeSet `xml:"Summaries>member"`
	}{}
	for _, set := range s.sets {
		x := set.xml(s)
		x.Parameters, x.Capabilities, x.Tags = nil, nil, nil
		out.Sets = append(out.Sets, x)
	}
	return out, nil
}

func (c *CloudFormation) executeChangeSetCall(p params) (any, error) {
	if err := onlyFields(p, "StackName", "ChangeSetName"); err != nil {
		return nil, err
	}
	return nil, c.executeChangeSet(p.get("StackName"), p.get("ChangeSetName"))
}

func (c *CloudFormation) deleteChangeSetCall(p params) (any, error) {
	if err := onlyFields(p, "StackName", "ChangeSetName"); err != nil {
		return nil, err
	}
	return nil, c.deleteChangeSet(p.get("StackName"), p.get("ChangeSetName"))
}

func (c *CloudFormation) deleteStackCall(p params) (any, error) {
	if err := onlyFields(p, "StackName"); err != nil {
		return nil, err
	}
	return nil, c.deleteStack(p.get("StackName"))
}
