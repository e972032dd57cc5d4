package awsfake

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// CloudFormationOptions set how long stacks take. With the zero value every resource is made at once.
type CloudFormationOptions struct {
	// Step is how long each resource, and each change set, takes.
	Step time.Duration
}

// CloudFormation is the account's stacks. Their resources are made in the account's own services, by the rules of
// those services' APIs. A caller's policies are evaluated for CloudFormation's calls only, not for the calls that it
// makes on the caller's behalf.
//
// Modelled are the templates of pkg/cluster/template and their change sets: parameters and their constraints,
// functions, the resource types in order, progress by the clock, rollback of a failed creation and update, replacement
// and its cleanup, deletion policies, termination protection, and the limits of a template's size. A group is complete
// once AutoScaling has accepted it, whether or not its machines start, and deleted once its machines have ended,
// through their hooks. Everything else is refused.
type CloudFormation struct {
	account *Account
	options CloudFormationOptions
	// stacks are all stacks, deleted ones included.
	stacks  []*cfnStack
	objects map[string]string
	serial  int
	balancers
}

func newCloudFormation(a *Account, o CloudFormationOptions) *CloudFormation {
	return &CloudFormation{account: a, options: o, objects: map[string]string{}, balancers: newBalancers()}
}

// CloudFormation returns the account's stacks.
func (a *Account) CloudFormation() *CloudFormation { return a.regional.cloudformation }

// AddObject puts a template into S3, which calls can refer to by its URL.
func (c *CloudFormation) AddObject(url, body string) {
	c.account.locked(func() { c.objects[url] = body })
}

func (c *CloudFormation) now() time.Time { return c.account.regional.agenda.now }

// The states of stacks and resources are a verb and how far it has come.
const (
	verbCreate, verbUpdate, verbDelete                      = "CREATE", "UPDATE", "DELETE"
	stateReview                                             = "REVIEW_IN_PROGRESS"
	begun, completed, failed                                = "_IN_PROGRESS", "_COMPLETE", "_FAILED"
	stateRollback, stateUpdateRollback                      = "ROLLBACK", "UPDATE_ROLLBACK"
	stateCleanup                                            = "_COMPLETE_CLEANUP_IN_PROGRESS"
	retain, retainExceptOnCreate, kindStack                 = "Retain", "RetainExceptOnCreate", "AWS::CloudFormation::Stack"
	takeSnapshot, kindVolume                                = "Snapshot", "AWS::EC2::Volume"
	capabilityIAM, capabilityNamed                          = "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"
	executionUnavailable, executionAvailable, executionDone = "UNAVAILABLE", "AVAILABLE", "EXECUTE_COMPLETE"
)

// cfnStack is one stack.
type cfnStack struct {
	account *Account
	id      string
	name    string
	status  string
	reason  string
	times   struct{ created, updated, deleted time.Time }
	stackState
	sets   []*changeSet
	events []cfnEvent
	// job is the stack's operation in progress; nil for none.
	job       *job
	protected bool
}

// stackState is a stack's template with its values and resources.
type stackState struct {
	template     *cfnTemplate
	parameters   stackValues
	tags         map[string]string
	capabilities []string
	resources    map[string]*cfnMade
	outputs      []stackOutput
}

// cfnMade is a resource that a stack has made.
type cfnMade struct {
	logical, physical, kind string
	status, reason          string
	// properties are those of the last creation or update, attributes those of Fn::GetAtt.
	properties map[string]any
	attributes map[string]string
	needs      []string
	deletion   string
	updated    time.Time
	// tries counts the deletions that were refused because another resource depends on it.
	tries int
}

type stackOutput struct{ Key, Value, Description string }

type cfnEvent struct {
	id, logical, physical, kind, status, reason string
	at                                          time.Time
}

var stackName = regexp.MustCompile(`^[a-zA-Z][-a-zA-Z0-9]{0,127}$`)

// find finds a stack by its name, if it is not deleted, or by its ARN.
func (c *CloudFormation) find(name string) (*cfnStack, error) {
	for _, s := range slices.Backward(c.stacks) {
		if s.id == name || s.name == name && s.status != verbDelete+completed {
			return s, nil
		}
	}
	return nil, malformed("Stack with id %s does not exist", name)
}

func (s *cfnStack) busy() bool {
	return strings.HasSuffix(s.status, begun) && s.status != stateReview
}

// set changes a stack's own state.
func (s *cfnStack) set(c *CloudFormation, status, reason string) {
	s.status, s.reason = status, reason
	c.note(s, cfnEvent{logical: s.name, physical: s.id, kind: kindStack, status: status, reason: reason})
}

func (c *CloudFormation) note(s *cfnStack, e cfnEvent) {
	c.serial++
	e.id, e.at = uuidOf("stack event", c.serial), c.now()
	s.events = append(s.events, e)
}

// arn is a stack's or a change set's.
func (c *CloudFormation) arn(kind, name string) string {
	c.serial++
	return fmt.Sprintf("arn:aws:cloudformation:%s:%s:%s/%s/%s", HomeRegion, owner, kind, name, uuidOf(kind, c.serial))
}

// changeSet is one change set.
type changeSet struct {
	id, name, kind, description string
	status, reason, execution   string
	created                     time.Time
	next                        stackState
	changes                     []resourceChange
}

// changeSetRequest is a request for a change set.
type changeSetRequest struct {
	stack, name, kind, description string
	body, url                      string
	previous                       bool
	parameters                     []givenParameter
	capabilities                   []string
	tags                           map[string]string
}

func alreadyExists(format string, args ...any) error {
	return refuse("AlreadyExistsException", format, args...)
}

// createChangeSet checks the request. Whether anything changes is found later, by compare.
func (c *CloudFormation) createChangeSet(w changeSetRequest) (*cfnStack, *changeSet, error) {
	for _, name := range []string{w.stack, w.name} {
		if !stackName.MatchString(name) && !strings.HasPrefix(name, "arn:aws:cloudformation:") {
			return nil, nil, malformed("1 validation error detected: Value '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*", name)
		}
	}
	s, err := c.find(w.stack)
	switch {
	case w.kind != "CREATE" && w.kind != "UPDATE":
		return nil, nil, malformed("awsfake does not model change sets of the type %s", w.kind)
	case w.kind == "UPDATE" && err != nil:
		return nil, nil, malformed("Stack [%s] does not exist", w.stack)
	case w.kind == "CREATE" && err == nil && s.status != stateReview:
		return nil, nil, malformed("Stack [%s] already exists and cannot be created again with the changeSet [%s].", w.stack, w.name)
	case w.kind == "UPDATE" && !s.updatable():
		return nil, nil, malformed("Stack:%s is in %s state and can not be updated.", s.id, s.status)
	case err == nil && slices.ContainsFunc(s.sets, func(other *changeSet) bool { return other.name == w.name }):
		return nil, nil, alreadyExists("ChangeSet %s already exists", w.name)
	}
	var was stackState
	if err == nil {
		was = s.stackState
	}
	next, err := c.plan(w, was)
	if err != nil {
		return nil, nil, err
	}
	if s == nil {
		s = &cfnStack{account: c.account, id: c.arn("stack", w.stack), name: w.stack}
		s.times.created = c.now()
		c.stacks = append(c.stacks, s)
		s.set(c, stateReview, "User Initiated")
	}
	set := &changeSet{
		id: c.arn("changeSet", w.name), name: w.name, kind: w.kind, description: w.description, created: c.now(),
		status: verbCreate + begun, execution: executionUnavailable, next: next,
	}
	s.sets = append(s.sets, set)
	c.account.regional.agenda.after(c.options.Step, func() { c.compare(s, set) })
	return s, set, nil
}

// updatable reports whether an update may begin ("Stack status codes").
func (s *cfnStack) updatable() bool {
	return slices.Contains([]string{verbCreate + completed, verbUpdate + completed, stateUpdateRollback + completed}, s.status)
}

// plan reads the template that a call names, with its parameters and capabilities.
func (c *CloudFormation) plan(w changeSetRequest, was stackState) (stackState, error) {
	body, err := c.body(w)
	if err != nil {
		return stackState{}, err
	}
	t := was.template
	if !w.previous {
		t, err = parseTemplate(body)
	} else if t == nil {
		err = malformed("There is no previous template to use")
	}
	if err != nil {
		return stackState{}, err
	}
	values, err := c.parameters(t, w.parameters, was.parameters)
	if err != nil {
		return stackState{}, err
	}
	for _, capability := range t.capabilities() {
		has := slices.Contains(w.capabilities, capability) || capability == capabilityIAM && slices.Contains(w.capabilities, capabilityNamed)
		if !has {
			return stackState{}, refuse("InsufficientCapabilitiesException", "Requires capabilities : [%s]", capability)
		}
	}
	return stackState{template: t, parameters: values, tags: maps.Clone(w.tags), capabilities: w.capabilities}, nil
}

// objectOf is the object that an https address of S3 in the account's home region means, with the bucket in its host or its path.
func objectOf(url string) (bucket, key string, ok bool) {
	host := "s3." + HomeRegion + ".amazonaws.com/"
	rest, ok := strings.CutPrefix(url, "https://")
	if !ok {
		return "", "", false
	}
	if path, ok := strings.CutPrefix(rest, host); ok {
		return strings.Cut(path, "/")
	}
	return strings.Cut(rest, "."+host)
}

func (c *CloudFormation) body(w changeSetRequest) (string, error) {
	sources := 0
	for _, isSet := range []bool{w.body != "", w.url != "", w.previous} {
		if isSet {
			sources++
		}
	}
	if sources != 1 {
		return "", malformed("Either Template URL or Template Body must be specified.")
	}
	if len(w.body) > maxTemplateBody {
		return "", malformed("1 validation error detected: Value '...' at 'templateBody' failed to satisfy constraint: Member must have length less than or equal to %d", maxTemplateBody)
	}
	if w.url != "" {
		body, ok := c.objects[w.url]
		if bucket, key, isS3 := objectOf(w.url); !ok && isS3 {
			if b := c.account.regional.s3.buckets[bucket]; b != nil {
				var o s3Object
				o, ok = b.objects[key]
				body = string(o.data)
			}
		}
		switch {
		case !ok:
			return "", malformed("S3 error: The specified key does not exist.")
		case len(body) > maxTemplateObject:
			return "", malformed("Template may not exceed %d bytes in size.", maxTemplateObject)
		}
		return body, nil
	}
	return w.body, nil
}

// capabilities returns the capabilities that the caller must acknowledge.
func (t *cfnTemplate) capabilities() (need []string) {
	for _, id := range sortedKeys(t.resources) {
		r := t.resources[id]
		if !strings.HasPrefix(r.Type, "AWS::IAM::") {
			continue
		}
		if name := resourceKinds()[r.Type].facts().name; name != "" && r.properties()[name] != nil {
			return []string{capabilityNamed}
		}
		need = []string{capabilityIAM}
	}
	return need
}

// changeSetNotFound is refused with 404.
func changeSetNotFound(name string) error {
	return &Error{Status: http.StatusNotFound, Code: "ChangeSetNotFound", Message: "ChangeSet [" + name + "] does not exist"}
}

// findSet finds a change set by its ARN, or by its name and its stack's.
func (c *CloudFormation) findSet(stack, name string) (*cfnStack, *changeSet, error) {
	for _, s := range c.stacks {
		for _, set := range s.sets {
			if set.id == name || set.name == name && (s.id == stack || s.name == stack && s.status != verbDelete+completed) {
				return s, set, nil
			}
		}
	}
	if _, err := c.find(stack); stack != "" && err != nil {
		return nil, nil, malformed("Stack [%s] does not exist", stack)
	}
	return nil, nil, changeSetNotFound(name)
}

// executeChangeSet starts to execute a change set.
func (c *CloudFormation) executeChangeSet(stack, name string) error {
	s, set, err := c.findSet(stack, name)
	if err != nil {
		return err
	}
	if set.execution != executionAvailable {
		return refuse("InvalidChangeSetStatus", "ChangeSet [%s] cannot be executed in its current execution status of [%s]", set.id, set.execution)
	}
	if s.busy() {
		return malformed("Stack:%s is in %s state and can not be updated.", s.id, s.status)
	}
	set.execution = executionDone
	// The others were compared with the former state.
	for _, other := range s.sets {
		if other != set && other.execution == executionAvailable {
			other.execution = "OBSOLETE"
		}
	}
	c.execute(s, set)
	return nil
}

func (c *CloudFormation) deleteChangeSet(stack, name string) error {
	s, set, err := c.findSet(stack, name)
	if err != nil {
		return err
	}
	if strings.HasSuffix(set.status, begun) {
		return refuse("InvalidChangeSetStatus", "The [%s] changeset is in %s state and can not be deleted.", set.id, set.status)
	}
	s.sets = slices.DeleteFunc(s.sets, func(other *changeSet) bool { return other == set })
	return nil
}

// deleteStack starts the deletion of a stack.
func (c *CloudFormation) deleteStack(name string) error {
	s, err := c.find(name)
	switch {
	case err != nil || s.status == verbDelete+completed || s.status == verbDelete+begun:
		return nil // deleting a missing stack is no error
	case s.protected:
		return malformed("Stack [%s] cannot be deleted while TerminationProtection is enabled", s.id)
	case strings.HasPrefix(s.status, verbUpdate) && s.busy():
		return malformed("Stack [%s] cannot be deleted while in status %s", s.id, s.status)
	}
	c.startDeletion(s)
	return nil
}
