// Package shipped reads the SAM template of the DNS function (lambda/template.yaml) into typed values.
//
// Its rule: the template is the only place with the function's figures, rules, alarms and policy. Code that needs them,
// such as the doctor and the lab, reads them here.
package shipped

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The template's parameters.
const (
	ParamCluster      = "ClusterName"
	ParamGroups       = "GroupNames"
	ParamZone         = "ZoneId"
	ParamSuffix       = "ZoneName"
	ParamHook         = "HookName"
	ParamAPIInternal  = "ApiInternal"
	ParamAPIZone      = "ApiZoneId"
	ParamAPISuffix    = "ApiZoneName"
	ParamArchitecture = "Architecture"
	ParamRetention    = "LogRetentionDays"
)

// Logical ids of the template's resources, as SAM generates them. A reference to one is its physical id.
const (
	IDFunction    = "Function"
	IDMapping     = "FunctionPokes"
	IDQueue       = "Queue"
	IDDeadLetters = "DeadLetters"
	IDScaling     = "ScalingRule"
	IDCalls       = "CallsRule"
	IDInstances   = "InstancesRule"
	IDSweep       = "SweepRule"
	IDRole        = "Role"
	IDLogs        = "Logs"
	idAgeAlarm    = "AgeAlarm"
)

// Stack has the values of the template's references in a deployment. A reference without a value stays
// "${Queue.Arn}". The zero value has the parameters' defaults.
type Stack struct {
	// Parameters are the stack's parameters, lists with commas. Others have the template's defaults.
	Parameters map[string]string
	// References has physical ids by logical id, attributes by "Queue.Arn", and pseudo parameters by "AWS::Region".
	References map[string]string
}

// Deployment has the resources of a stack of the template.
type Deployment struct {
	Function    Function
	Mapping     Mapping
	Queue       Queue
	DeadLetters Queue
	Rules       map[string]Rule // by logical id
	Statements  []Statement     // the policy of the function's role
	Alarms      []Alarm         // sorted by logical id
	// MaxAge is the age of the queue's oldest message that raises the alarm.
	MaxAge time.Duration
	// LogRetention is how long the log is kept, in days.
	LogRetention string
	Types        map[string]string // of CloudFormation's resources, by logical id
}

// Function is the function's configuration.
type Function struct {
	Runtime, Handler string
	Memory           int // MB
	Timeout          time.Duration
	// Reserved is the function's reserved concurrency; nil means none.
	Reserved    *int
	Environment map[string]string
}

// Mapping is the event source mapping from the queue to the function.
type Mapping struct {
	Batch, Concurrency int
	Window             time.Duration
}

// Queue is an SQS queue's configuration. Zero values are SQS's defaults.
type Queue struct {
	Visibility, Retention time.Duration
	// DeadLetterARN is the queue for messages that were received MaxReceive times; empty means none.
	DeadLetterARN string
	MaxReceive    int
}

// Rule is an EventBridge rule, with either a Pattern or a Schedule.
type Rule struct {
	Pattern  string // JSON
	Schedule string // "rate(1 minute)"
	// Every is the schedule's interval; 0 if there is no schedule.
	Every time.Duration
}

// Statement is one of a policy's.
type Statement struct {
	Sid, Effect      string
	Action, Resource Texts
	Condition        map[string]map[string]Texts `json:",omitempty"`
}

// Alarm is a CloudWatch alarm on a metric with one dimension.
type Alarm struct {
	ID                string // logical
	Namespace, Metric string
	Dimension, Value  string
}

// PolicyDocument returns the policy of the function's role as JSON.
func (d *Deployment) PolicyDocument() ([]byte, error) {
	return json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": d.Statements})
}

// Statement returns the statement with the Sid; ok is false if there is none.
func (d *Deployment) Statement(sid string) (s Statement, ok bool) {
	i := slices.IndexFunc(d.Statements, func(s Statement) bool { return s.Sid == sid })
	if i < 0 {
		return s, false
	}
	return d.Statements[i], true
}

// Texts is a list of strings, which a policy may also write as one string.
type Texts []string

// UnmarshalJSON decodes a string or a list of strings.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// seconds is a duration in CloudFormation.
type seconds int

func (s seconds) duration() time.Duration { return time.Duration(s) * time.Second }

// properties are the properties of all resources that are read, by CloudFormation's names.
type properties struct {
	Runtime, Handler             string
	MemorySize                   int
	Timeout                      seconds
	ReservedConcurrentExecutions *int
	Environment                  struct{ Variables map[string]string }
	Events                       map[string]struct {
		Properties struct {
			BatchSize                      int
			MaximumBatchingWindowInSeconds seconds
			ScalingConfig                  struct{ MaximumConcurrency int }
		}
	}

	VisibilityTimeout, MessageRetentionPeriod seconds
	RedrivePolicy                             struct {
		DeadLetterTargetArn string `json:"deadLetterTargetArn"`
		MaxReceiveCount     int    `json:"maxReceiveCount"`
	}

	EventPattern       json.RawMessage
	ScheduleExpression string

	Policies []struct {
		PolicyDocument struct{ Statement []Statement }
	}
	PolicyDocument struct{ Statement []Statement }

	Namespace, MetricName string
	Dimensions            []struct{ Name, Value string }
	RetentionInDays       string
	Threshold             seconds
}

// resource is a resource of the template, with its references resolved.
type resource struct {
	Type string
	// Condition names the condition of the resource; a resource whose condition does not hold is not in the deployment.
	Condition  string
	Properties properties
}

// read returns the deployment of the resolved resources.
func read(all map[string]resource) (*Deployment, error) {
	d := &Deployment{Rules: map[string]Rule{}, Types: map[string]string{}}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		p := all[id].Properties
		d.Types[id] = all[id].Type
		switch all[id].Type {
		case typeSAMFunction:
			if err := d.function(id, p); err != nil {
				return nil, err
			}
		case "AWS::SQS::Queue":
			q := Queue{p.VisibilityTimeout.duration(), p.MessageRetentionPeriod.duration(), p.RedrivePolicy.DeadLetterTargetArn, p.RedrivePolicy.MaxReceiveCount}
			if id == IDDeadLetters {
				d.DeadLetters = q
			} else {
				d.Queue = q
			}
		case "AWS::Events::Rule":
			every, err := rate(p.ScheduleExpression)
			if err != nil {
				return nil, fmt.Errorf("reading rule %s: %w", id, err)
			}
			d.Rules[id] = Rule{string(p.EventPattern), p.ScheduleExpression, every}
		case "AWS::IAM::Role":
			for _, policy := range p.Policies {
				d.Statements = append(d.Statements, policy.PolicyDocument.Statement...)
			}
		case "AWS::IAM::Policy":
			d.Statements = append(d.Statements, p.PolicyDocument.Statement...)
		case "AWS::Logs::LogGroup":
			d.LogRetention = p.RetentionInDays
		case "AWS::CloudWatch::Alarm":
			if len(p.Dimensions) != 1 {
				return nil, fmt.Errorf("reading alarm %s: it has %d dimensions, and one is understood", id, len(p.Dimensions))
			}
			d.Alarms = append(d.Alarms, Alarm{id, p.Namespace, p.MetricName, p.Dimensions[0].Name, p.Dimensions[0].Value})
			if id == idAgeAlarm {
				d.MaxAge = p.Threshold.duration()
			}
		}
	}
	return d, nil
}

// typeSAMFunction is a SAM type, which becomes a function and an event source mapping for each of its events.
const typeSAMFunction = "AWS::Serverless::Function"

func (d *Deployment) function(id string, p properties) error {
	if len(p.Events) != 1 {
		return fmt.Errorf("reading %s: it has %d events, and one is understood", id, len(p.Events))
	}
	d.Function = Function{p.Runtime, p.Handler, p.MemorySize, p.Timeout.duration(), p.ReservedConcurrentExecutions, p.Environment.Variables}
	d.Types[id] = "AWS::Lambda::Function"
	for name, e := range p.Events {
		d.Types[id+name] = "AWS::Lambda::EventSourceMapping"
		d.Mapping = Mapping{e.Properties.BatchSize, e.Properties.ScalingConfig.MaximumConcurrency, e.Properties.MaximumBatchingWindowInSeconds.duration()}
	}
	return nil
}

// rate returns the interval of a schedule; 0 if it is empty.
func rate(schedule string) (time.Duration, error) {
	if schedule == "" {
		return 0, nil
	}
	units := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}
	inner, isRate := strings.CutPrefix(strings.TrimSuffix(schedule, ")"), "rate(")
	number, unit, _ := strings.Cut(inner, " ")
	n, err := strconv.Atoi(number)
	each := units[strings.TrimSuffix(unit, "s")]
	if !isRate || err != nil || each == 0 {
		return 0, fmt.Errorf("reading schedule %q: only rate(1 minute) and the like are understood", schedule)
	}
	return time.Duration(n) * each, nil
}
