package awsfake

import (
	"reflect"
	"slices"
	"strings"
)

// resourceChange is a change set's change of one resource.
type resourceChange struct {
	Action      string         `xml:"ResourceChange>Action"`
	Logical     string         `xml:"ResourceChange>LogicalResourceId"`
	Physical    string         `xml:"ResourceChange>PhysicalResourceId,omitempty"`
	Kind        string         `xml:"ResourceChange>ResourceType"`
	Replacement string         `xml:"ResourceChange>Replacement,omitempty"`
	Details     []changeDetail `xml:"ResourceChange>Details>member"`
	Type        string         `xml:"Type"`
}

// changeDetail is one reason for a change.
type changeDetail struct {
	Attribute  string `xml:"Target>Attribute"`
	Name       string `xml:"Target>Name,omitempty"`
	Recreation string `xml:"Target>RequiresRecreation"`
	Evaluation string `xml:"Evaluation"`
	Source     string `xml:"ChangeSource"`
	Cause      string `xml:"CausingEntity,omitempty"`
}

// The words of changes (API reference, ResourceChange and ResourceChangeDetail).
const (
	never, always, conditionally     = "Never", "Always", "Conditionally"
	static, dynamic                  = "Static", "Dynamic"
	scopeProperties, scopeTags       = "Properties", "Tags"
	actionAdd, actionModify, actGone = "Add", "Modify", "Remove"
)

const noChanges = "The submitted information didn't contain changes. Submit different information to create a change set."

// compare finds the changes of a change set.
func (c *CloudFormation) compare(s *cfnStack, set *changeSet) {
	changes, err := c.changes(s, &set.next)
	set.changes = changes
	switch {
	case err != nil:
		set.status, set.reason = failedSet, refusal(err).Message
	case set.kind == verbUpdate && len(changes) == 0 && sameOutputs(s, &set.next) && reflect.DeepEqual(orEmpty(s.tags), orEmpty(set.next.tags)):
		set.status, set.reason = failedSet, noChanges
	default:
		set.status, set.execution = verbCreate+completed, executionAvailable
	}
}

const failedSet = "FAILED"

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// sameOutputs reports whether the templates' outputs are the same.
func sameOutputs(s *cfnStack, next *stackState) bool {
	return s.template != nil && reflect.DeepEqual(s.template.outputs, next.template.outputs)
}

// preview answers references in a change set: the values of new and replaced resources are known after execution.
type preview struct {
	stack *cfnStack
	// actions are the action of each resource so far, Add or Modify; replaced has those to be replaced.
	actions  map[string]string
	replaced map[string]bool
}

func (p *preview) ref(id string) (string, bool) {
	made, ok := p.stack.resources[id]
	if !ok || p.replaced[id] {
		return knownLater, true
	}
	return made.physical, true
}

func (p *preview) attribute(id, name string) (string, bool) {
	made, ok := p.stack.resources[id]
	if !ok || p.replaced[id] {
		return knownLater, true
	}
	return made.attributes[name], true
}

// scopeOf returns the scope of functions in a change set.
func scopeOf(s *cfnStack, next *stackState, p *preview) *scope {
	return &scope{template: next.template, stack: s, values: next.parameters.values, ref: p.ref, attribute: p.attribute, met: map[string]bool{}}
}

// changes returns the change of each resource, sorted by name.
func (c *CloudFormation) changes(s *cfnStack, next *stackState) ([]resourceChange, error) {
	p := &preview{stack: s, actions: map[string]string{}, replaced: map[string]bool{}}
	sc := scopeOf(s, next, p)
	order, err := next.order(sc)
	if err != nil {
		return nil, err
	}
	changes := []resourceChange{}
	for _, id := range order {
		change, err := c.changeOf(sc, p, next, id)
		if err != nil {
			return nil, err
		}
		if change != nil {
			p.actions[id] = change.Action
			p.replaced[id] = change.Replacement == "True"
			changes = append(changes, *change)
		}
	}
	for id, made := range s.resources {
		if !slices.Contains(order, id) {
			changes = append(changes, resourceChange{Type: "Resource", Action: actGone, Logical: id, Physical: made.physical, Kind: made.kind})
		}
	}
	slices.SortFunc(changes, func(a, b resourceChange) int { return strings.Compare(a.Logical, b.Logical) })
	return changes, nil
}

// order is that of the resources whose conditions are met.
func (n *stackState) order(sc *scope) ([]string, error) {
	for _, name := range sortedKeys(n.template.conditions) {
		if _, err := sc.condition(name); err != nil {
			return nil, err
		}
	}
	return n.template.order(sc.present, func(id string) []string { return n.template.dependencies(id, sc.branch) })
}

// changeOf returns the change of one resource; nil for none.
func (c *CloudFormation) changeOf(sc *scope, p *preview, next *stackState, id string) (*resourceChange, error) {
	declared := next.template.resources[id]
	properties, err := sc.properties(id)
	if err != nil {
		return nil, err
	}
	made, ok := p.stack.resources[id]
	if !ok {
		return &resourceChange{Type: "Resource", Action: actionAdd, Logical: id, Kind: declared.Type}, nil
	}
	change := &resourceChange{Type: "Resource", Action: actionModify, Logical: id, Physical: made.physical, Kind: declared.Type, Replacement: "False"}
	if made.kind != declared.Type {
		return nil, malformed("Update of resource type is not permitted. The new template modifies resource type of the following resources: [%s]", id)
	}
	kind := resourceKinds()[declared.Type]
	for _, name := range unionKeys(made.properties, properties) {
		change.Details = append(change.Details, detailsOf(sc, p, declared, kind, name, made.properties[name], properties[name])...)
	}
	if len(change.Details) == 0 {
		return nil, nil
	}
	for _, d := range change.Details {
		switch {
		case d.Recreation == always && d.Evaluation == static:
			change.Replacement = "True"
		case d.Recreation != never && change.Replacement == "False":
			change.Replacement = "Conditional"
		}
	}
	return change, nil
}

func unionKeys(a, b map[string]any) []string {
	keys := map[string]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	return sortedKeys(keys)
}

// detailsOf returns the reasons why one property changes, or may change.
func detailsOf(sc *scope, p *preview, declared cfnResource, kind resourceKind, name string, was, is any) []changeDetail {
	detail := changeDetail{Attribute: scopeProperties, Name: name, Recreation: never, Evaluation: static, Source: "DirectModification"}
	switch facts := kind.facts(); {
	case facts.replace[name]:
		detail.Recreation = always
	case facts.perhaps[name]:
		detail.Recreation = conditionally
	}
	if name == scopeTags {
		detail.Attribute, detail.Name = scopeTags, ""
	}
	var list []changeDetail
	differs := !reflect.DeepEqual(was, is)
	explained := false
	for _, r := range references(declared.properties()[name], sc.branch) {
		d := detail
		switch value, isParameter := p.stack.parameters.values[r.name]; {
		case isParameter && differs && !reflect.DeepEqual(value, sc.values[r.name]):
			d.Source, d.Cause = "ParameterReference", r.name
		case r.attribute == "" && p.replaced[r.name]:
			d.Source, d.Cause, d.Evaluation = "ResourceReference", r.name, dynamic
		case r.attribute != "" && p.actions[r.name] == actionModify:
			d.Source, d.Cause, d.Evaluation = "ResourceAttribute", r.name+"."+r.attribute, dynamic
		default:
			continue
		}
		explained = true
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	if differs && !explained {
		list = append(list, detail)
	}
	return list
}

// properties are a resource's, with every function evaluated.
func (s *scope) properties(id string) (map[string]any, error) {
	v, err := s.value(s.template.resources[id].properties())
	if err != nil {
		return nil, err
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return map[string]any{}, nil
	}
	return tree, nil
}
