package doctor

import (
	"encoding/json"
	"time"
)

// What lambda/template.yaml says; a test holds the two together.
const (
	runtime       = "provided.al2023"
	handler       = "bootstrap"
	memory        = 256 // MB
	timeout       = 30 * time.Second
	batch         = 1000
	window        = 2 * time.Second
	concurrency   = 2
	visibility    = 192 * time.Second
	retention     = time.Hour
	deadRetention = 14 * 24 * time.Hour
	maxReceive    = 5
	sweepEvery    = "rate(1 minute)"
)

// The template's parameters that are compared with what is deployed.
const (
	paramCluster      = "ClusterName"
	paramGroups       = "GroupNames"
	paramZone         = "ZoneId"
	paramSuffix       = "ZoneName"
	paramHook         = "HookName"
	paramArchitecture = "Architecture"
	paramRetention    = "LogRetentionDays"
)

// Logical ids of the template, as SAM translates it.
const (
	IDFunction = "Function"
	IDQueue    = "Queue"
	IDScaling  = "ScalingRule"
	IDCalls    = "CallsRule"
	IDSweep    = "SweepRule"
	IDLogs     = "Logs"
)

// resources is every logical id with its type.
func resources() []Resource {
	return []Resource{
		{ID: IDFunction, Type: "AWS::Lambda::Function"}, {ID: "FunctionPokes", Type: "AWS::Lambda::EventSourceMapping"},
		{ID: IDQueue, Type: "AWS::SQS::Queue"}, {ID: "DeadLetters", Type: "AWS::SQS::Queue"}, {ID: "QueuePolicy", Type: "AWS::SQS::QueuePolicy"},
		{ID: IDScaling, Type: typeRule}, {ID: IDCalls, Type: typeRule}, {ID: IDSweep, Type: typeRule},
		{ID: "Role", Type: "AWS::IAM::Role"}, {ID: IDLogs, Type: "AWS::Logs::LogGroup"},
		{ID: "DeadLettersAlarm", Type: typeAlarm}, {ID: "ErrorsAlarm", Type: typeAlarm}, {ID: "FailuresAlarm", Type: typeAlarm},
		{ID: "ThrottlesAlarm", Type: typeAlarm}, {ID: "AgeAlarm", Type: typeAlarm},
	}
}

const (
	typeRule  = "AWS::Events::Rule"
	typeAlarm = "AWS::CloudWatch::Alarm"
)

// Metric is what an alarm of the template watches.
type Metric struct {
	Namespace, Name, Dimension, Value string
	// Means is what its alarm says.
	Means string
}

// Watched are the metrics that the template has alarms for, of this function, its queues and its clusters.
func Watched(function, queue, dead string, clusters []Cluster) []Metric {
	list := []Metric{
		{"AWS/Lambda", "Errors", "FunctionName", function, "the function crashes or runs out of time"},
		{"AWS/Lambda", "Throttles", "FunctionName", function, "Lambda refuses to run the function"},
	}
	if queue != "" {
		list = append(list, Metric{"AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", queue, "nothing reads the queue"})
	}
	if dead != "" {
		list = append(list, Metric{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", dead, "a cluster could not be reconciled five times over"})
	}
	for _, c := range clusters {
		list = append(list, Metric{"Hardtack/DNS", "Failures", "Cluster", c.Name, "reconciles fail"})
	}
	return list
}

// patterns are what the rules match, by logical id.
func patterns(groups []string) map[string]string {
	encode := func(v any) string {
		text, _ := json.Marshal(v) // maps of strings always encode
		return string(text)
	}
	type object = map[string]any
	return map[string]string{
		IDScaling: encode(object{"source": []string{"aws.autoscaling"}, "detail": object{"AutoScalingGroupName": groups}}),
		IDCalls: encode(object{"source": []string{"aws.autoscaling"}, "detail-type": []string{"AWS API Call via CloudTrail"}, "detail": object{
			"eventName":         []string{"AttachInstances", "DetachInstances", "EnterStandby", "ExitStandby"},
			"requestParameters": object{"autoScalingGroupName": groups},
		}}),
	}
}

// AllGroups are the groups of every cluster.
func (s Settings) AllGroups() (all []string) {
	for _, c := range s.Clusters {
		all = append(all, c.Groups...)
	}
	return all
}
