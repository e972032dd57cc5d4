// Package imdstest is a metadata service for tests, as strict as EC2's version 2 and as faulty as asked.
//
// Its rule: a client that is wrong about the protocol gets the refusal that EC2 would give, also where
// being lenient would be simpler.
package imdstest

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is what goes wrong with one request.
type Fault struct {
	// Status, when not 0, is answered instead; 401 also makes every token invalid, as a service that
	// was restarted does.
	Status int
	// Delay comes before the answer.
	Delay time.Duration
	// Half promises the whole body, sends half of it and hangs up.
	Half bool
	// Cut hangs up without any answer.
	Cut bool
}

// Service is the service of one instance. Fill it in before it serves; it is safe for concurrent use.
type Service struct {
	// UserData is what the instance was started with; nil is none.
	UserData   []byte
	InstanceID string
	// LaunchIndex is the instance's number among those that were launched with it.
	LaunchIndex int
	// Tokens, when not 0, is the answer to every request for a token: 403 where the service is turned off.
	Tokens int
	// Faults, by path ("/latest/user-data"), are met one by one before the path answers well.
	Faults map[string][]Fault

	mu     sync.Mutex
	valid  map[string]time.Time // tokens and their ends
	served []string
}

// Served lists the requests that there were: method, path and status.
func (s *Service) Served() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.served...)
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := s.fault(r.URL.Path)
	select {
	case <-time.After(fault.Delay):
	case <-r.Context().Done():
		return
	}
	status, body := s.answer(r, fault)
	s.mu.Lock()
	s.served = append(s.served, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, status))
	s.mu.Unlock()
	switch {
	case fault.Cut:
		panic(http.ErrAbortHandler)
	case fault.Half && status == http.StatusOK:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush() // else nothing of it would leave before the hang-up
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a client that went away is its own affair
}

func (s *Service) fault(path string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Faults[path]) == 0 {
		return Fault{}
	}
	fault := s.Faults[path][0]
	s.Faults[path] = s.Faults[path][1:]
	return fault
}

func (s *Service) answer(r *http.Request, fault Fault) (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault.Status == http.StatusUnauthorized {
		s.valid = nil
	}
	switch {
	case fault.Status != 0:
		return fault.Status, http.StatusText(fault.Status)
	case r.URL.Path == "/latest/api/token":
		return s.newToken(r)
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, ""
	case !time.Now().Before(s.valid[r.Header.Get("X-aws-ec2-metadata-token")]):
		return http.StatusUnauthorized, "Unauthorized"
	case r.URL.Path == "/latest/meta-data/instance-id":
		return http.StatusOK, s.InstanceID
	case r.URL.Path == "/latest/meta-data/ami-launch-index":
		return http.StatusOK, strconv.Itoa(s.LaunchIndex)
	case r.URL.Path == "/latest/user-data" && s.UserData != nil:
		return http.StatusOK, string(s.UserData)
	}
	return http.StatusNotFound, "Not Found"
}

// newToken answers the request for a token: by PUT, with a life between a second and six hours, and not
// for what a proxy passed on.
func (s *Service) newToken(r *http.Request) (int, string) {
	life, err := strconv.Atoi(r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"))
	switch {
	case s.Tokens != 0:
		return s.Tokens, http.StatusText(s.Tokens)
	case r.Method != http.MethodPut:
		return http.StatusMethodNotAllowed, ""
	case r.Header.Get("X-Forwarded-For") != "":
		return http.StatusForbidden, ""
	case err != nil || life < 1 || life > 21600:
		return http.StatusBadRequest, "Bad Request"
	}
	token := strings.ToUpper(rand.Text()) + "=="
	if s.valid == nil {
		s.valid = map[string]time.Time{}
	}
	s.valid[token] = time.Now().Add(time.Duration(life) * time.Second)
	return http.StatusOK, token
}
