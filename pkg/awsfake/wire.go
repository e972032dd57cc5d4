package awsfake

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// queryProtocol is AutoScaling's: a form with Action, and an XML answer <ActionResponse><ActionResult>.
type queryProtocol struct{ namespace string }

// read takes the parameters from the body, or from the URL of a GET, which may be presigned.
func (queryProtocol) read(r *http.Request, body []byte, c *call) error {
	if r.Method == http.MethodGet {
		return readForm([]byte(r.URL.RawQuery), c)
	}
	return readForm(body, c)
}

func (p queryProtocol) write(w http.ResponseWriter, c *call, answer any) {
	inner := innerXML(answer)
	writeXML(w, http.StatusOK, fmt.Sprintf(`<%[1]sResponse xmlns="%[2]s"><%[1]sResult>%[3]s</%[1]sResult><ResponseMetadata><RequestId>%[4]s</RequestId></ResponseMetadata></%[1]sResponse>`,
		c.Action, p.namespace, inner, c.ID))
}

func (p queryProtocol) refuse(w http.ResponseWriter, c *call, e *Error) {
	writeXML(w, e.Status, errorResponse(p.namespace, c.ID, e))
}

// ec2Protocol is EC2's: a form with Action, and an XML answer without a Result element.
type ec2Protocol struct{ namespace string }

func (ec2Protocol) read(_ *http.Request, body []byte, c *call) error { return readForm(body, c) }

func (p ec2Protocol) write(w http.ResponseWriter, c *call, answer any) {
	writeXML(w, http.StatusOK, fmt.Sprintf(`<%[1]sResponse xmlns="%[2]s"><requestId>%[4]s</requestId>%[3]s</%[1]sResponse>`,
		c.Action, p.namespace, innerXML(answer), c.ID))
}

func (ec2Protocol) refuse(w http.ResponseWriter, c *call, e *Error) {
	writeXML(w, e.Status, fmt.Sprintf(`<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>%s</RequestID></Response>`,
		escape(e.Code), escape(e.Message), c.ID))
}

// jsonProtocol is that of SQS and Systems Manager: X-Amz-Target names the action, and the documents are JSON.
type jsonProtocol struct {
	version string // "1.0"
	shapes  string // the prefix of error names: "com.amazonaws.sqs#"
}

func (jsonProtocol) read(r *http.Request, _ []byte, c *call) error {
	_, action, ok := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !ok {
		return refuse("UnknownOperationException", "X-Amz-Target names no action")
	}
	c.Action = action
	return nil
}

func (p jsonProtocol) write(w http.ResponseWriter, _ *call, answer any) {
	p.document(w, http.StatusOK, answer)
}

func (p jsonProtocol) refuse(w http.ResponseWriter, _ *call, e *Error) {
	p.document(w, e.Status, map[string]string{"__type": p.shapes + e.Code, "message": e.Message})
}

func (p jsonProtocol) document(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprintf("encoding %T: %v", v, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-"+p.version)
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// readForm reads the parameters of the Query and EC2 protocols.
func readForm(body []byte, c *call) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return refuse("MalformedQueryString", "reading the form: %v", err)
	}
	c.Form, c.Action = form, form.Get("Action")
	if c.Action == "" {
		return refuse("MissingAction", "Could not find operation to perform.")
	}
	return nil
}

// errorResponse is a refusal in the Query and REST-XML protocols.
func errorResponse(namespace, id string, e *Error) string {
	kind := "Sender"
	if e.Status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	return fmt.Sprintf(`<ErrorResponse xmlns="%s"><Error><Type>%s</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>%s</RequestId></ErrorResponse>`,
		namespace, kind, escape(e.Code), escape(e.Message), id)
}

// innerXML encodes v without its own element; nil is empty. It panics if v cannot be encoded: answers are types of
// this package, so that is a bug.
func innerXML(v any) string {
	if v == nil {
		return ""
	}
	var buffer bytes.Buffer
	encoder := xml.NewEncoder(&buffer)
	if err := encoder.EncodeElement(v, xml.StartElement{Name: xml.Name{Local: "x"}}); err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return strings.TrimSuffix(strings.TrimPrefix(buffer.String(), "<x>"), "</x>")
}

func escape(s string) string {
	var buffer bytes.Buffer
	_ = xml.EscapeText(&buffer, []byte(s)) // a buffer takes everything
	return buffer.String()
}

func writeXML(w http.ResponseWriter, status int, document string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(xml.Header + document))
}
