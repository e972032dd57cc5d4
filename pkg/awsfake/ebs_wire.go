package awsfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// restJSON is the protocol of the EBS direct APIs: method and path name the action, documents are JSON, blocks are
// raw bodies, and a block's metadata is in headers.
type restJSON struct{}

// directRoutes are the actions by method and path; {} is an identifier or a number.
var directRoutes = map[string]string{
	"POST snapshots":               "StartSnapshot",
	"PUT snapshots/{}/blocks/{}":   "PutSnapshotBlock",
	"POST snapshots/completion/{}": "CompleteSnapshot",
	"GET snapshots/{}/blocks":      "ListSnapshotBlocks",
	"GET snapshots/{}/blocks/{}":   "GetSnapshotBlock",
}

func (restJSON) read(_ *http.Request, _ []byte, c *call) error {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	for i := range parts {
		if word := parts[i]; i > 0 && word != "blocks" && word != "completion" {
			parts[i] = "{}"
		}
	}
	c.Action = directRoutes[c.Method+" "+strings.Join(parts, "/")]
	if c.Action == "" {
		return &Error{Status: http.StatusNotFound, Code: "UnknownOperationException", Message: fmt.Sprintf("awsfake does not model %s %s", c.Method, c.Path)}
	}
	return nil
}

// restReply is an answer of the protocol: a document, or data.
type restReply struct {
	status   int
	header   map[string]string
	document any
	data     []byte
}

func (restJSON) write(w http.ResponseWriter, _ *call, answer any) {
	reply := answer.(restReply)
	body := reply.data
	w.Header().Set("Content-Type", "application/octet-stream")
	if body == nil {
		document := reply.document
		if document == nil {
			document = none{}
		}
		var err error
		if body, err = json.Marshal(document); err != nil {
			http.Error(w, fmt.Sprintf("encoding %T: %v", document, err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
	}
	for name, value := range reply.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(reply.status)
	_, _ = w.Write(body)
}

func (restJSON) refuse(w http.ResponseWriter, _ *call, e *Error) {
	status := e.Status
	if e.Code == "AccessDeniedException" && e.Reason == "" {
		e = &Error{Code: e.Code, Message: e.Message, Reason: "UNAUTHORIZED_ACCOUNT"}
	}
	switch e.Code {
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException":
		status = http.StatusForbidden
	case "InternalFailure":
		e = &Error{Code: "InternalServerException", Message: e.Message}
	}
	document := map[string]string{"Message": e.Message}
	if e.Reason != "" {
		document["Reason"] = e.Reason
	}
	body, err := json.Marshal(document)
	if err != nil {
		http.Error(w, fmt.Sprintf("encoding a refusal: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", e.Code)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// pathPart is a part of a REST call's path, counted from 0.
func (c *call) pathPart(n int) string {
	if parts := strings.Split(strings.Trim(c.Path, "/"), "/"); n < len(parts) {
		return parts[n]
	}
	return ""
}

// header is one of the request's headers.
func (c *call) header(name string) string { return c.Signature.request.Header.Get(name) }
