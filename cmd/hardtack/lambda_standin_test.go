package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/fxamacker/cbor/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// metricAlarm is an alarm of the stand-in for CloudWatch, with the members of its API.
type metricAlarm struct {
	AlarmName      string
	Namespace      string
	MetricName     string
	Dimensions     []dimension
	StateValue     string
	StateReason    string
	AlarmActions   []string
	ActionsEnabled bool
}

type dimension struct{ Name, Value string }

// cloudWatch replaces moto's, which does not know the SDK's protocol (Smithy RPC v2 CBOR), and whose CloudFormation
// makes no alarms. It answers two calls and refuses all others.
type cloudWatch struct {
	alarms []metricAlarm
	// age of the oldest message of every queue, in seconds; below 0 is no figure.
	age float64
}

func (c *cloudWatch) alarm(id string) *metricAlarm {
	i := slices.IndexFunc(c.alarms, func(a metricAlarm) bool { return strings.Contains(a.AlarmName, id) })
	return &c.alarms[i]
}

func (c *cloudWatch) serve(w http.ResponseWriter, operation string, body []byte) {
	answer, err := c.answer(operation, body)
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("Content-Type", "application/cbor")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]any{"__type": "com.amazonaws.cloudwatch#ValidationError", "message": err.Error()}
	}
	data, err := cbor.Marshal(answer)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(data)
}

func (c *cloudWatch) answer(operation string, body []byte) (any, error) {
	mode, err := cbor.DecOptions{ExtraReturnErrors: cbor.ExtraDecErrorUnknownField}.DecMode()
	if err != nil {
		return nil, err
	}
	switch operation {
	case "DescribeAlarmsForMetric":
		var in struct {
			Namespace, MetricName string
			Dimensions            []dimension
		}
		if err := mode.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		if in.Namespace == "" || in.MetricName == "" {
			return nil, fmt.Errorf("%+v: Namespace and MetricName are required", in)
		}
		out := []metricAlarm{}
		for _, a := range c.alarms {
			if a.Namespace == in.Namespace && a.MetricName == in.MetricName && slices.Equal(a.Dimensions, in.Dimensions) {
				out = append(out, a)
			}
		}
		return map[string]any{"MetricAlarms": out}, nil
	case "GetMetricStatistics":
		var in struct {
			Namespace, MetricName string
			Dimensions            []dimension
			StartTime, EndTime    time.Time
			Period                int
			Statistics            []string
		}
		if err := mode.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		if in.Namespace != "AWS/SQS" || in.MetricName == "" || !in.StartTime.Before(in.EndTime) || in.Period%60 != 0 || in.Period == 0 || !slices.Equal(in.Statistics, []string{"Maximum"}) {
			return nil, fmt.Errorf("%+v is not as it has to be", in)
		}
		points := []any{}
		if c.age >= 0 { // in no order, says CloudWatch's reference
			points = append(points, point(in.EndTime.Add(-time.Minute), c.age), point(in.EndTime.Add(-3*time.Minute), c.age+1000))
		}
		return map[string]any{"Label": in.MetricName, "Datapoints": points}, nil
	}
	return nil, fmt.Errorf("%s is not modelled", operation)
}

func point(at time.Time, value float64) any {
	return map[string]any{"Timestamp": cbor.Tag{Number: 1, Content: float64(at.Unix())}, "Maximum": value, "Unit": "Seconds"}
}

// newCloudWatch has the alarms of the translated template.
func newCloudWatch(t *testing.T, resources map[string]map[string]any, resolve func(any) any) *cloudWatch {
	t.Helper()
	c := &cloudWatch{age: -1}
	for id, p := range resources {
		if p["\x00type"] != "AWS::CloudWatch::Alarm" {
			continue
		}
		a := metricAlarm{AlarmName: "hardtack-dns-" + id + "-X", Namespace: p["Namespace"].(string), MetricName: p["MetricName"].(string), StateValue: "OK", ActionsEnabled: true}
		for _, d := range p["Dimensions"].([]any) {
			d := d.(map[string]any)
			a.Dimensions = append(a.Dimensions, dimension{d["Name"].(string), resolve(d["Value"]).(string)})
		}
		c.alarms = append(c.alarms, a)
	}
	if len(c.alarms) != 7 {
		t.Fatalf("alarms of the template: %v", c.alarms)
	}
	return c
}

// simulated is an answer of SimulatePrincipalPolicy.
type simulated struct {
	XMLName xml.Name `xml:"SimulatePrincipalPolicyResponse"`
	Xmlns   string   `xml:"xmlns,attr"`
	Result  struct {
		IsTruncated bool
		Results     []evaluation `xml:"EvaluationResults>member"`
	} `xml:"SimulatePrincipalPolicyResult"`
}

type evaluation struct {
	EvalActionName, EvalResourceName, EvalDecision string
}

// simulate replaces moto's IAM, which has no simulator: it evaluates the role's inline policies, as moto keeps them,
// and refuses the same actions as IAM.
func (d *deployedFunction) simulate(w http.ResponseWriter, r *http.Request, form url.Values) {
	refuse := func(format string, args ...any) {
		xmlError(w, http.StatusBadRequest, "InvalidInput", fmt.Sprintf(format, args...))
	}
	_, role, ok := strings.Cut(form.Get("PolicySourceArn"), ":role/")
	actions, resources := members(form, "ActionNames"), members(form, "ResourceArns")
	if !ok || len(actions) == 0 || len(resources) != 1 {
		refuse("the source %q, actions %v, resources %v", form.Get("PolicySourceArn"), actions, resources)
		return
	}
	context := map[string][]string{}
	for i := 1; form.Has(fmt.Sprintf("ContextEntries.member.%d.ContextKeyName", i)); i++ {
		prefix := fmt.Sprintf("ContextEntries.member.%d.", i)
		key, kind, values := form.Get(prefix+"ContextKeyName"), form.Get(prefix+"ContextKeyType"), members(form, prefix+"ContextKeyValues")
		if len(values) == 0 || kind != "stringList" && (kind != "string" || len(values) > 1) || strings.HasPrefix(key, "route53:") != (kind == "stringList") {
			refuse("context key %s is a %s of %v", key, kind, values)
			return
		}
		context[key] = values
	}
	policies, err := d.policiesOf(r, role)
	if err != nil {
		refuse("%v", err)
		return
	}
	out := simulated{Xmlns: "https://iam.amazonaws.com/doc/2010-05-08/"}
	for _, a := range actions {
		out.Result.Results = append(out.Result.Results, evaluation{a, resources[0], awsfake.Decision(policies, a, resources[0], context)})
	}
	writeXML(w, http.StatusOK, out)
}

func (d *deployedFunction) policiesOf(r *http.Request, role string) (list []awsfake.Policy, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.policies != nil {
		return d.policies, nil
	}
	names, err := d.inside.ListRolePolicies(r.Context(), &iam.ListRolePoliciesInput{RoleName: &role})
	if err != nil {
		return nil, err
	}
	for _, name := range names.PolicyNames {
		out, err := d.inside.GetRolePolicy(r.Context(), &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
		if err != nil {
			return nil, err
		}
		text, err := url.QueryUnescape(*out.PolicyDocument)
		if err != nil {
			return nil, err
		}
		p, err := awsfake.ParsePolicy([]byte(text))
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	d.policies = list
	return list, nil
}

// members is a list of the query protocol.
func members(form url.Values, name string) (list []string) {
	for i := 1; form.Has(name + ".member." + strconv.Itoa(i)); i++ {
		list = append(list, form.Get(name+".member."+strconv.Itoa(i)))
	}
	return list
}

func writeXML(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	data, err := xml.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(data)
}

// xmlError is an error of the query and of Route 53's protocol.
func xmlError(w http.ResponseWriter, status int, code, message string) {
	type body struct{ Type, Code, Message string }
	writeXML(w, status, struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Error     body
		RequestID string `xml:"RequestId"`
	}{Error: body{"Sender", code, message}, RequestID: "0"})
}

// deny refuses a call as its service does.
func deny(w http.ResponseWriter, service, action string) {
	message := "User: arn:aws:iam::123456789012:user/nobody is not authorized to perform: " + action
	switch service {
	case "cloudformation", "iam", "autoscaling", "route53":
		xmlError(w, http.StatusForbidden, "AccessDenied", message)
	case "ec2":
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>"+message+"</Message></Error></Errors><RequestID>0</RequestID></Response>")
	case "monitoring":
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		w.Header().Set("Content-Type", "application/cbor")
		w.WriteHeader(http.StatusBadRequest)
		data, err := cbor.Marshal(map[string]string{"__type": "AccessDenied", "message": message})
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(data)
	default:
		w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
		w.WriteHeader(http.StatusForbidden)
		data, err := json.Marshal(map[string]string{"__type": "AccessDeniedException", "message": message})
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(data)
	}
}
