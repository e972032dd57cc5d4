package preflight

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// endpointPolicy is a policy of an endpoint, which everything that goes through it has to pass beside the caller's own. IAM simulates
// policies of callers and of resources, and this is neither (API reference, SimulateCustomPolicy): so it is read here.
type endpointPolicy struct {
	Statement oneOrMore[endpointStatement]
}

type endpointStatement struct {
	Effect string
	// Principal is "*", or lists by kind: {"AWS": "*"}.
	Principal, NotPrincipal                  json.RawMessage
	Action, NotAction, Resource, NotResource oneOrMore[string]
	Condition                                map[string]map[string]json.RawMessage
}

// oneOrMore is a list, which a policy may write as its only element.
type oneOrMore[T any] []T

// UnmarshalJSON reads either form.
func (l *oneOrMore[T]) UnmarshalJSON(data []byte) error {
	var more []T
	if err := json.Unmarshal(data, &more); err == nil {
		*l = more
		return nil
	}
	var one T
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*l = []T{one}
	return nil
}

// passes is what a policy says of an action: refused is whether nothing gets through, and narrow what it depends on where that is not
// known here; both empty where everything does.
func (p endpointPolicy) passes(action string) (refused bool, narrow []string) {
	allowed, perhaps := false, false
	for _, s := range p.Statement {
		if !s.matches(action) {
			continue
		}
		by := s.narrowed()
		switch {
		case len(by) > 0: // it holds for some calls
			perhaps = perhaps || s.Effect == "Allow"
			narrow = append(narrow, by...)
		case s.Effect == "Deny":
			return true, nil
		default:
			allowed = true
		}
	}
	if !allowed && !perhaps {
		return true, nil
	}
	if allowed && !p.denies(action) {
		return false, nil
	}
	slices.Sort(narrow)
	return false, slices.Compact(narrow)
}

// denies is whether any denial is about an action.
func (p endpointPolicy) denies(action string) bool {
	return slices.ContainsFunc(p.Statement, func(s endpointStatement) bool { return s.Effect == "Deny" && s.matches(action) })
}

// matches is whether a statement is about an action, in which "*" is any text and "?" any character.
func (s endpointStatement) matches(action string) bool {
	like := func(pattern string) bool {
		ok, _ := path.Match(strings.ToLower(pattern), strings.ToLower(action)) // a pattern that is not one matches nothing
		return ok
	}
	if len(s.NotAction) > 0 {
		return !slices.ContainsFunc(s.NotAction, like)
	}
	return slices.ContainsFunc(s.Action, like)
}

// narrowed is what keeps a statement from holding for every caller and resource.
func (s endpointStatement) narrowed() (by []string) {
	if len(s.NotResource) > 0 || !slices.Contains(s.Resource, "*") {
		by = append(by, "the resource")
	}
	who := strings.Join(strings.Fields(string(s.Principal)), "")
	if len(s.NotPrincipal) > 0 || !slices.Contains([]string{`"*"`, `["*"]`, `{"AWS":"*"}`, `{"AWS":["*"]}`}, who) {
		by = append(by, "the caller")
	}
	for _, keys := range s.Condition {
		by = append(by, slices.Collect(maps.Keys(keys))...)
	}
	return by
}

// services are those that calls are made to, by the names of their endpoints. KMS is called by other services in the caller's name.
func services(calls []string) (out []string) {
	for _, call := range calls {
		service, _, _ := strings.Cut(call, ":")
		if service != "kms" && !slices.Contains(out, service) {
			out = append(out, service)
		}
	}
	slices.Sort(out)
	return out
}

// takes is whether calls from any of the subnets go through an endpoint, also where there is another way out: an interface by the service's
// own name, a gateway by its routes.
func (e Endpoint) takes(subnets map[string]Subnet) bool {
	if !e.Available || !e.Gateway {
		return e.Available && e.PrivateNames
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(subnets)), func(s Subnet) bool { return slices.Contains(e.RouteTables, s.RouteTable) })
}

// policies checks that the policies of the endpoints let through what the machines call.
func (l *list) policies(n Network, w Wanted) {
	if n.Endpoints.Err != nil || n.Subnets.Err != nil {
		return // the check of the ways says so where it matters
	}
	for _, e := range n.Endpoints.Value {
		var calls []string
		for _, call := range w.Calls {
			if strings.HasPrefix(call, e.Service+":") {
				calls = append(calls, call)
			}
		}
		if len(calls) > 0 && e.takes(n.Subnets.Value) {
			l.lets(e, calls)
		}
	}
}

// lets checks one endpoint and the calls that go through it.
func (l *list) lets(e Endpoint, calls []string) {
	name := "network.endpoint." + e.ID
	var policy endpointPolicy
	if err := json.Unmarshal([]byte(e.Policy), &policy); err != nil && e.Policy != "" {
		l.add(name, doctor.Warning, "look at it: aws ec2 describe-vpc-endpoints --vpc-endpoint-ids "+e.ID, "its policy is not understood here: %v", err)
		return
	}
	var refused, depends, on []string
	for _, call := range calls {
		no, narrow := policy.passes(call)
		switch {
		case e.Policy == "":
		case no:
			refused = append(refused, call)
		case len(narrow) > 0:
			depends, on = append(depends, call), append(on, narrow...)
		}
	}
	slices.Sort(on)
	const all = "allow it in the endpoint's policy, or aws ec2 modify-vpc-endpoint --reset-policy --vpc-endpoint-id "
	if len(refused) > 0 {
		l.add(name, doctor.Error, all+e.ID, "its policy lets no call of %s through: machines would never come up", names(refused))
	}
	if len(depends) > 0 {
		l.add(name, doctor.Warning, "compare it with the roles of hardtack stack render; "+all+e.ID, "whether its policy lets %s through depends on %s", names(depends), strings.Join(slices.Compact(on), ", "))
	}
	if len(refused)+len(depends) == 0 {
		l.ok(name, "its policy lets through what machines call of %s", e.Service)
	}
}
