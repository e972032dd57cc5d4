package awsfake

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
)

const route53Namespace = "https://route53.amazonaws.com/doc/2013-04-01/"

// restXML is Route 53's: method and path name the action, and the documents are XML.
type restXML struct{ namespace string }

// route53Routes are the actions by method and path below the version; {} is an identifier.
var route53Routes = map[string]string{
	"GET hostedzone":           "ListHostedZones",
	"GET hostedzonesbyname":    "ListHostedZonesByName",
	"GET hostedzonesbyvpc":     "ListHostedZonesByVPC",
	"GET accountlimit/{}":      "GetAccountLimit",
	"POST hostedzone":          "CreateHostedZone",
	"GET hostedzone/{}":        "GetHostedZone",
	"GET hostedzone/{}/rrset":  "ListResourceRecordSets",
	"POST hostedzone/{}/rrset": "ChangeResourceRecordSets",
}

func (restXML) read(_ *http.Request, _ []byte, c *call) error {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	if len(parts) < 2 || parts[0] != "2013-04-01" {
		return &Error{Status: 404, Code: "UnknownOperationException", Message: "no such path: " + c.Path}
	}
	route := parts[1:]
	if len(route) > 1 {
		route[1] = "{}"
	}
	c.Action = route53Routes[c.Method+" "+strings.Join(route, "/")]
	if c.Action == "" {
		return &Error{Status: 404, Code: "UnknownOperationException", Message: fmt.Sprintf("awsfake does not model %s %s", c.Method, c.Path)}
	}
	return nil
}

func (p restXML) write(w http.ResponseWriter, c *call, answer any) {
	status := http.StatusOK
	if created, ok := answer.(interface{ location() string }); ok {
		w.Header().Set("Location", created.location())
		status = http.StatusCreated
	}
	writeXML(w, status, fmt.Sprintf(`<%[1]sResponse xmlns="%[2]s">%[3]s</%[1]sResponse>`, c.Action, p.namespace, innerXML(answer)))
}

func (p restXML) refuse(w http.ResponseWriter, c *call, e *Error) {
	writeXML(w, e.Status, errorResponse(p.namespace, c.ID, e))
}

// pathID is the identifier in the path of a call: Z1 in /2013-04-01/hostedzone/Z1/rrset.
func (c *call) pathID() string {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// readXML reads the call's document.
func (c *call) readXML(v any) error {
	if err := xml.Unmarshal(c.Body, v); err != nil {
		return refuse("InvalidInput", "Invalid XML ; %v", err)
	}
	return nil
}

// wireSet is a ResourceRecordSet on the wire. It has the fields that are not modelled too, so that they are refused.
type wireSet struct {
	Name             string
	Type             string
	SetIdentifier    *string     `xml:",omitempty"`
	Weight           *int64      `xml:",omitempty"`
	Region           *string     `xml:",omitempty"`
	GeoLocation      *struct{}   `xml:",omitempty"`
	Failover         *string     `xml:",omitempty"`
	MultiValueAnswer *bool       `xml:",omitempty"`
	TTL              *int64      `xml:",omitempty"`
	ResourceRecords  []wireValue `xml:"ResourceRecords>ResourceRecord"`
	AliasTarget      *struct{}   `xml:",omitempty"`
	HealthCheckID    *string     `xml:"HealthCheckId,omitempty"`
}

type wireValue struct{ Value string }

type wireChange struct {
	Action            string
	ResourceRecordSet wireSet
}

func (c wireChange) change() (Change, error) {
	s := c.ResourceRecordSet
	switch {
	case s.AliasTarget != nil, s.SetIdentifier != nil, s.Weight != nil, s.Region != nil, s.GeoLocation != nil, s.Failover != nil, s.MultiValueAnswer != nil, s.HealthCheckID != nil:
		return Change{}, refuse("InvalidInput", "awsfake models simple record sets only: %s %s", s.Type, s.Name)
	case s.TTL == nil || len(s.ResourceRecords) == 0:
		return Change{}, refuse("InvalidInput", "Invalid request: Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords], or TrafficPolicyInstanceId], but found none in Change with [Action=%s, Name=%s, Type=%s, SetIdentifier=null]",
			c.Action, s.Name, s.Type)
	}
	set := RecordSet{Name: s.Name, Type: s.Type, TTL: *s.TTL}
	for _, v := range s.ResourceRecords {
		set.Values = append(set.Values, v.Value)
	}
	return Change{Action: c.Action, Set: set}, nil
}

func toWireSet(s RecordSet) wireSet {
	w := wireSet{Name: s.Name, Type: s.Type, TTL: &s.TTL}
	for _, v := range s.Values {
		w.ResourceRecords = append(w.ResourceRecords, wireValue{v})
	}
	return w
}

type wireChangeInfo struct {
	ID          string `xml:"Id"`
	Status      string
	SubmittedAt string
}

func toWireChangeInfo(c ChangeInfo) wireChangeInfo {
	return wireChangeInfo{"/change/" + c.ID, "PENDING", c.SubmittedAt.UTC().Format("2006-01-02T15:04:05.000Z")}
}

type wireZone struct {
	ID                     string `xml:"Id"`
	Name                   string
	CallerReference        string
	Config                 wireZoneConfig
	ResourceRecordSetCount int
}

type wireZoneConfig struct {
	Comment     string `xml:",omitempty"`
	PrivateZone bool
}

func toWireZone(z HostedZone) wireZone {
	return wireZone{"/hostedzone/" + z.ID, z.Name, z.CallerReference, wireZoneConfig{z.Comment, z.Private()}, z.Sets}
}

type wireVPC struct {
	VPCRegion string
	VPCID     string `xml:"VPCId"`
}

type wireVPCs struct {
	VPC []wireVPC
}

func toWireVPCs(vpcs []VPC) *wireVPCs {
	if len(vpcs) == 0 {
		return nil
	}
	w := &wireVPCs{}
	for _, v := range vpcs {
		w.VPC = append(w.VPC, wireVPC{v.Region, v.ID})
	}
	return w
}

// wireDelegation names a public zone's servers; private zones have none.
type wireDelegation struct {
	NameServers []string `xml:"NameServers>NameServer"`
}

func toWireDelegation(z HostedZone) *wireDelegation {
	if z.Private() {
		return nil
	}
	return &wireDelegation{nameServers()}
}
