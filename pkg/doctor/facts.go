package doctor

import "time"

// Facts is what is deployed.
type Facts struct {
	// Stack without a name: the function is of no stack.
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
	// Records are the clusters' in DNS, by the cluster's name.
	Records map[string]Known[Records]
}

// Stack is the CloudFormation stack.
type Stack struct {
	Name, Status, Reason string
	Parameters           map[string]string
	Resources            map[string]Resource // by logical id
}

// Resource is one of a stack's. Drift is CloudFormation's word (IN_SYNC, MODIFIED, DELETED, NOT_CHECKED), empty for none.
type Resource struct{ Type, ID, Status, Reason, Drift string }

// Function is the Lambda function.
type Function struct {
	Name, ARN, Role  string
	Status           Status
	Runtime, Handler string
	Architecture     string // arm64 or x86_64
	Size             Size
	LogGroup         string
	CodeSHA256       string // of the zip, in base64
	Environment      map[string]string
}

// Status is how a function is: State Active and Update Successful when all is well.
type Status struct{ State, StateReason, Update, UpdateReason string }

// Size is what a function may use. Reserved nil: no concurrency is reserved.
type Size struct {
	Memory   int // MB
	Timeout  time.Duration
	Reserved *int
}

// Settings is what the function's environment says.
type Settings struct {
	Clusters                  []Cluster
	Zone, Suffix, Hook, Queue string
}

// Cluster is one of the function's, with the groups that it may have.
type Cluster struct {
	Name   string
	Groups []string
}

// Mapping is what reads the queue and invokes the function. Concurrency 0: not limited.
type Mapping struct {
	ID, Source, State, Reason string
	LastResult                string
	Batch, Concurrency        int
	Window                    time.Duration
	ReportsFailures           bool
}

// Queue is an SQS queue. Oldest nil: CloudWatch has no figure of the last minutes; OldestErr is why it could not be asked.
type Queue struct {
	ARN                    string
	Visibility, Retention  time.Duration
	Redrive                Redrive
	Visible, Flying, Later int
	Encrypted              bool
	Policy                 string // JSON; empty for none
	Oldest                 Known[*time.Duration]
}

// Redrive is where messages go that were tried too often. Target is an ARN, empty for nowhere.
type Redrive struct {
	Target string `json:"deadLetterTargetArn"`
	Max    int    `json:"maxReceiveCount"`
}

// Rule is an EventBridge rule; one that the stack names and that does not exist has nothing but its name and LogicalID.
type Rule struct {
	LogicalID, Name, ARN     string
	State, Pattern, Schedule string
	Targets                  []Target
	Missing                  bool
}

// Target is where a rule sends. Transformed: the event is not sent as it is.
type Target struct {
	ARN         string
	Transformed bool
}

// Logs is the function's log group and what it says.
type Logs struct {
	Group Known[LogGroup]
	// Runs are the newest reconcile of each cluster, in the last day.
	Runs Known[[]Run]
}

// LogGroup is a log group. Retention 0: for ever.
type LogGroup struct {
	Name      string
	Retention int // days
}

// Run is a reconcile as the function's log tells it.
type Run struct {
	Cluster string
	At      time.Time
	// Changed is when the records last changed as far as it knew; zero when they never did.
	Changed  time.Time
	Err      string // empty: it was done
	Problems []string
}

// Alarm is a CloudWatch alarm on one of the metrics that Watched lists.
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

// Hook is a lifecycle hook. Transition is AutoScaling's word, Default CONTINUE or ABANDON.
type Hook struct {
	Name, Transition, Default string
	Heartbeat                 time.Duration
}

// Records are a cluster's in DNS.
type Records struct {
	Sets, Differ int
	// Written is when they last changed; zero where no generation record tells.
	Written  time.Time
	Problems []string
}

// Wanted is what the caller compares with.
type Wanted struct {
	Now time.Time
	// Zip is what should be deployed; nil: not compared.
	Zip *Zip
	// Drain is how long after an address left the records it may still be answered: a termination hook has to
	// hold a machine for longer.
	Drain time.Duration
	// TagCluster and TagRole are the tags of groups.
	TagCluster, TagRole string
}

// Zip is a function's package.
type Zip struct{ File, SHA256, Architecture string }
