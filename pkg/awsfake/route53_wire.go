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
	"GET hostedzonesbyname":    "ListHostedZonesByName",
	"GET hostedzonesbyvpc":     "ListHostedZonesByVPC",
	"GET hostedzone":           "ListHostedZones",
	"POST hostedzone":          "CreateHostedZone",
	"GET hostedzone/{}":        "GetHostedZone",
	"DELETE hostedzone/{}":     "DeleteHostedZone",
	"GET hostedzone/{}/rrset":  "ListResourceRecordSets",
	"POST hostedzone/{}/rrset": "ChangeResourceRecordSets",
	"GET change/{}":            "GetChange",
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
