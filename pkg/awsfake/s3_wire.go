package awsfake

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// s3Protocol is S3's: method and path name the action (path-style: /bucket/key), documents are XML without a wrapper, and objects are bodies.
type s3Protocol struct{}

// s3Headers are the headers of Amazon's that are modelled.
var s3Headers = map[string]bool{
	"X-Amz-Content-Sha256": true, "X-Amz-Date": true, "X-Amz-Security-Token": true, "X-Amz-Checksum-Sha256": true, "X-Amz-Checksum-Mode": true, "X-Amz-Sdk-Checksum-Algorithm": true,
}

func (s3Protocol) read(r *http.Request, _ []byte, c *call) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	unknown := &Error{Status: http.StatusNotImplemented, Code: "NotImplemented", Message: fmt.Sprintf("awsfake does not model %s %s with these parameters and headers", r.Method, r.URL)}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") && !s3Headers[name] {
			return unknown
		}
	}
	switch query := r.URL.Query(); {
	case bucket == "":
		return unknown
	case key != "" && len(query) <= 1:
		c.Action = map[string]string{http.MethodPut: "PutObject", http.MethodGet: "GetObject", http.MethodHead: "HeadObject"}[r.Method]
		if len(query) == 1 && query.Get("x-id") != c.Action { // the SDK names the action, and S3 looks at the method
			c.Action = ""
		}
	case key == "" && r.Method == http.MethodGet && query.Get("list-type") == "2" && lists(query):
		c.Action = "ListObjectsV2"
	}
	if c.Action == "" {
		return unknown
	}
	if r.Method == http.MethodPut && r.ContentLength < 0 {
		return &Error{Status: http.StatusLengthRequired, Code: "MissingContentLength", Message: "You must provide the Content-Length HTTP header."}
	}
	return nil
}

// lists reports whether all parameters are those of ListObjectsV2 that are modelled.
func lists(query url.Values) bool {
	for name := range query {
		if name != "list-type" && name != "prefix" && name != "continuation-token" {
			return false
		}
	}
	return true
}

// s3Reply is an answer: a document, or data.
type s3Reply struct {
	header   map[string]string
	document any
	data     []byte
}

func (s3Protocol) write(w http.ResponseWriter, c *call, answer any) {
	reply := answer.(s3Reply)
	for name, value := range reply.header {
		w.Header().Set(name, value)
	}
	if reply.document != nil {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = w.Write([]byte(xml.Header + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + innerXML(reply.document) + `</ListBucketResult>`))
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(reply.data)))
	w.WriteHeader(http.StatusOK)
	if c.Method != http.MethodHead {
		_, _ = w.Write(reply.data)
	}
}

func (s3Protocol) refuse(w http.ResponseWriter, c *call, e *Error) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.Status)
	if c.Method != http.MethodHead {
		_, _ = fmt.Fprintf(w, xml.Header+`<Error><Code>%s</Code><Message>%s</Message><RequestId>%s</RequestId></Error>`, escape(e.Code), escape(e.Message), c.ID)
	}
}
