package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

var (
	credentialScope = regexp.MustCompile(`Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request`)
	functionPath    = regexp.MustCompile(`^/2015-03-31/functions/([^/]+)$`)
)

// ServeHTTP sends a call to the fake of its service.
func (d *deployedFunction) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope := credentialScope.FindStringSubmatch(r.Header.Get("Authorization"))
	body, err := io.ReadAll(r.Body)
	if err != nil || scope == nil {
		http.Error(w, "the call is not signed", http.StatusForbidden)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	service, operation := scope[1], operationOf(r, body)
	action := strings.Replace(service, "monitoring", "cloudwatch", 1) + ":" + operation
	d.mu.Lock()
	d.calls[action]++
	denied := d.denied == action
	d.mu.Unlock()
	switch {
	case d.stalls(action):
		<-r.Context().Done()
	case denied:
		deny(w, service, action)
	case service == "route53" || service == "autoscaling" || service == "ec2":
		d.account.Handler().ServeHTTP(w, r)
	case service == "monitoring":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.alarms.serve(w, operation, body)
	case action == "iam:SimulatePrincipalPolicy":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.simulate(w, r, form)
	case action == "cloudformation:DescribeStackResources":
		d.stackResources(w)
	default:
		d.moto.ServeHTTP(w, r)
		if service == "iam" {
			d.mu.Lock()
			d.policies = nil
			d.mu.Unlock()
		}
	}
}

func (d *deployedFunction) stalls(action string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalled == action
}

// operationOf is the operation of a call, in each of the protocols that are spoken here.
func operationOf(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	if _, name, ok := strings.Cut(r.URL.Path, "/operation/"); ok {
		return name
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Has("Action") {
		return form.Get("Action")
	}
	switch path := r.URL.Path; {
	case functionPath.MatchString(path) && r.Method == http.MethodGet:
		return "GetFunction"
	case strings.HasPrefix(path, "/2015-03-31/event-source-mappings") && r.Method == http.MethodGet:
		return "ListEventSourceMappings"
	case strings.HasSuffix(path, "/rrset") && r.Method == http.MethodGet:
		return "ListResourceRecordSets"
	}
	return r.Method + " " + r.URL.Path
}

// mend corrects moto's answers: a stack's parameter that is a list is Python's text, and a stack's function has no
// tags and no LoggingConfig.
func (d *deployedFunction) mend(r *http.Response) error {
	if r.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte("<ParameterValue>['demo-masters', 'demo-minions']<"), []byte("<ParameterValue>demo-masters,demo-minions<"))
	if functionPath.MatchString(r.Request.URL.Path) && r.Request.Method == http.MethodGet {
		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		got["Configuration"].(map[string]any)["LoggingConfig"] = map[string]any{"LogFormat": "Text", "LogGroup": d.ids["Logs"]}
		d.mu.Lock()
		untagged := d.untagged
		d.mu.Unlock()
		if !untagged {
			got["Tags"] = map[string]string{"aws:cloudformation:stack-name": deployedStack}
		}
		if body, err = json.Marshal(got); err != nil {
			return err
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil
}

// stackResources replaces moto's, which lists resources that it cannot make without a name.
func (d *deployedFunction) stackResources(w http.ResponseWriter) {
	type member struct{ LogicalResourceId, PhysicalResourceId, ResourceType, ResourceStatus, Timestamp string }
	var list []member
	for id, physical := range d.ids {
		kind := map[bool]string{true: "AWS::CloudWatch::Alarm", false: "AWS::Events::Rule"}[strings.HasSuffix(id, "Alarm")]
		if fixed, ok := map[string]string{"Function": "AWS::Lambda::Function", "FunctionPokes": "AWS::Lambda::EventSourceMapping", "Queue": "AWS::SQS::Queue", "DeadLetters": "AWS::SQS::Queue",
			"QueuePolicy": "AWS::SQS::QueuePolicy", "DeadLettersPolicy": "AWS::SQS::QueuePolicy", "Role": "AWS::IAM::Role", "Logs": "AWS::Logs::LogGroup"}[id]; ok {
			kind = fixed
		}
		list = append(list, member{id, physical, kind, "CREATE_COMPLETE", "2026-03-01T12:00:00Z"})
	}
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"DescribeStackResourcesResponse"`
		Members []member `xml:"DescribeStackResourcesResult>StackResources>member"`
	}{Members: list})
}
