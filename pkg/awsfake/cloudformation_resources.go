package awsfake

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
)

// resourceKind makes the resources of one type. Its methods are called with the account locked.
type resourceKind interface {
	facts() kindFacts
	// create makes p's resource of its properties, and sets its physical id and its attributes.
	create(p *provision) error
	// update changes a resource in place from p.before; its attributes may change.
	update(p *provision) error
	// remove deletes the resource; deleting a missing one is no error. If done is false, the deletion is in progress
	// and remove has to be called again.
	remove(p *provision) (done bool, err error)
}

// kindFacts describe a type to templates and change sets.
type kindFacts struct {
	// attributes are those of Fn::GetAtt, name is the property that names the resource, if it has one.
	attributes []string
	name       string
	// replace are the properties whose change replaces the resource ("Update requires: Replacement").
	replace map[string]bool
	// perhaps are the properties whose change replaces it perhaps ("Update requires: Some interruptions"): change sets say
	// Conditionally of them. Here they change in place, as those of a group do that has no UpdatePolicy.
	perhaps map[string]bool
}

// provision is one resource that is made, changed or deleted.
type provision struct {
	cf    *CloudFormation
	stack *cfnStack
	*cfnMade
	before *cfnMade
}

// resourceKinds are the types that are modelled.
var resourceKinds = sync.OnceValue(func() map[string]resourceKind {
	kinds := map[string]resourceKind{}
	for _, some := range []map[string]resourceKind{dnsKinds(), networkKinds(), scalingKinds(), identityKinds(), balancerKinds(), volumeKinds(), keyKinds(), bucketKinds()} {
		maps.Copy(kinds, some)
	}
	return kinds
})

// kind is a type whose properties are the shape P.
type kind[P any] struct {
	attributes []string
	name       string
	make       func(p *provision, want *P) error
	change     func(p *provision, want, was *P) error
	drop       func(p *provision, was *P) (bool, error)
}

func (k kind[P]) facts() kindFacts {
	f := kindFacts{attributes: k.attributes, name: k.name, replace: map[string]bool{}, perhaps: map[string]bool{}}
	for name, field := range shapeFields(reflect.TypeFor[P](), "cfn") {
		f.replace[name] = field.update == "replace" || k.change == nil
		f.perhaps[name] = field.update == "perhaps"
	}
	return f
}

func (k kind[P]) decode(properties map[string]any) (*P, error) {
	var want P
	switch problem, wrong := first(decodeShape(properties, &want, "cfn")); {
	case !wrong:
		return &want, nil
	case problem.Unknown:
		return nil, malformed("Encountered unsupported property %s", problem.name())
	case problem.Missing:
		return nil, malformed("Property %s cannot be empty.", problem.name())
	default:
		return nil, malformed("Value of property %s must be of type %s", problem.name(), problem.Want)
	}
}

func (k kind[P]) create(p *provision) error {
	want, err := k.decode(p.properties)
	if err != nil {
		return err
	}
	return k.make(p, want)
}

func (k kind[P]) update(p *provision) error {
	want, err := k.decode(p.properties)
	if err != nil {
		return err
	}
	was, err := k.decode(p.before.properties)
	if err != nil {
		return err
	}
	return k.change(p, want, was)
}

func (k kind[P]) remove(p *provision) (bool, error) {
	was, err := k.decode(p.properties)
	if err != nil {
		return true, err
	}
	done, err := k.drop(p, was)
	if err != nil {
		if code := refusal(err).Code; strings.Contains(code, "NotFound") || strings.HasPrefix(code, "NoSuch") {
			return true, nil
		}
		return true, err
	}
	return done, nil
}

// nameOr returns the name in the template, or a generated one if it is empty.
func (p *provision) nameOr(name string) string {
	if name != "" {
		return name
	}
	p.cf.serial++
	return fmt.Sprintf("%s-%s-%s", p.stack.name, p.logical, strings.ToUpper(hexID("name "+p.stack.id, p.cf.serial, 12)))
}

// tagged returns a resource's tags: the stack's, the resource's, and CloudFormation's.
func (p *provision) tagged(own []LaunchTag) map[string]string {
	tags := map[string]string{
		"aws:cloudformation:stack-name": p.stack.name, "aws:cloudformation:stack-id": p.stack.id, "aws:cloudformation:logical-id": p.logical,
	}
	maps.Copy(tags, p.stack.tags)
	for _, tag := range own {
		tags[tag.Key] = tag.Value
	}
	return tags
}

// setID sets the resource's physical ID, and its attributes from pairs of name and value.
func (p *provision) setID(physical string, pairs ...string) {
	p.physical = physical
	p.attributes = map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		p.attributes[pairs[i]] = pairs[i+1]
	}
}
