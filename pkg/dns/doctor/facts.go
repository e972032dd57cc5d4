package doctor

import (
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// Facts are the facts about a deployment.
type Facts struct {
	// Stack has no name if the function belongs to no stack.
	Stack    Known[Stack]
	Function Known[Function]
	Settings Known[Settings]
	Mappings Known[[]Mapping]
	Queue    Known[Queue]
	Dead     Known[Queue]
	Rules    Known[[]Rule]
	Role     Known[[]Decision]
	Logs     Logs
	Alarms   Known[[]Alarm]
	Groups   Known[[]Group]
	// Records are the DNS records of each cluster, by the cluster's name.
	Records map[string]Known[Records]
}

// Stack is the CloudFormation stack.
type Stack struct {
	Name, Status, Reason string
	Parameters           map[string]string
	Resources            map[string]Resource // by logical id
}

// Resource is a resource of the stack. Drift is CloudFormation's status (IN_SYNC, MODIFIED, DELETED, NOT_CHECKED), or
// empty.
type Resource struct{ Type, ID, Status, Reason, Drift string }

// Function is the Lambda function.
type Function struct {
	shipped.Function
	Name, ARN, Role string
	Status          Status
	Architecture    string // arm64 or x86_64
	LogGroup        string
	CodeSHA256      string // of the zip, in base64
}

// Status is the function's status; in good order State is Active and Update is Successful.
type Status struct{ State, StateReason, Update, UpdateReason string }

// Settings are the settings in the function's environment.
type Settings struct {
	Clusters                  []Cluster
	Zone, Suffix, Hook, Queue string
}

// Cluster is a cluster of the function, with its allowed groups.
type Cluster struct {
	Name   string
	Groups []string
}

// Mapping is the event source mapping from the queue to the function. Concurrency 0 means no limit.
type Mapping struct {
	shipped.Mapping
	ID, Source, State, Reason string
	LastResult                string
	ReportsFailures           bool
}

// Queue is an SQS queue. Oldest is the age of the oldest message; nil if CloudWatch has no recent data point, or could
// not be asked, for which OldestErr has the reason.
type Queue struct {
	shipped.Queue
	ARN                    string
	Visible, Flying, Later int
	Encrypted              bool
	Policy                 string // JSON; empty for none
	Oldest                 Known[*time.Duration]
}

// Rule is an EventBridge rule. A rule of the stack that does not exist has only its name and LogicalID.
type Rule struct {
	LogicalID, Name, ARN     string
	State, Pattern, Schedule string
	Targets                  []Target
	Missing                  bool
}

// Target is a target of a rule. Transformed: the rule changes the event's content.
type Target struct {
	ARN         string
	Transformed bool
}

// Logs are the function's log group and what was read from it.
type Logs struct {
	Group Known[LogGroup]
	// Runs are the newest reconcile of each cluster in the last day.
	Runs Known[[]Run]
}

// LogGroup is a log group. Retention 0 means forever.
type LogGroup struct {
	Name      string
	Retention int // days
}

// Run is a reconcile, from the function's log.
type Run struct {
	Cluster string
	At      time.Time
	// Changed is when the function last saw the records change; zero if never.
	Changed  time.Time
	Err      string // empty: it succeeded
	Problems []string
}

// Alarm is a CloudWatch alarm on a metric that the template has an alarm on.
type Alarm struct {
	Metric, Name, State, Reason string
	Actions                     int // of the state ALARM
	Enabled                     bool
}

// Group is an AutoScaling group of the allow-list.
type Group struct {
	Name    string
	Missing bool
	Tags    map[string]string
	Hooks   []Hook
}

// Hook is a lifecycle hook. Transition is AutoScaling's name, Default is CONTINUE or ABANDON.
type Hook struct {
	Name, Transition, Default string
	Heartbeat                 time.Duration
}

// Records are the DNS records of a cluster.
type Records struct {
	Sets, Differ int
	// Written is when they last changed; zero if there is no control record.
	Written  time.Time
	Problems []string
}

// Wanted is the desired state.
type Wanted struct {
	Now time.Time
	// Shipped is the deployment that the template describes, from Expect.
	Shipped *shipped.Deployment
	// Zip is the package that should be deployed; nil means not compared.
	Zip *Zip
	// Drain is how long resolvers may cache an address that has left the records: a termination hook must hold a machine
	// for longer.
	Drain time.Duration
	// TagCluster and TagRole are the keys of the groups' tags.
	TagCluster, TagRole string
}

// Zip is a function's package.
type Zip struct{ File, SHA256, Architecture string }
