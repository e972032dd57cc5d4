package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Report is the report of a machine's probe.
type Report struct {
	// Uptime is how long the kernel had run when the probe began.
	Uptime time.Duration
	// Decided is true if every unit's condition had been checked before the probe's limit.
	Decided bool
	// Units are the units asked for, by name.
	Units map[string]Unit
	// Failed names the failed units of the whole machine.
	Failed []string
	// Files are the contents of the files in the role files' directory, by path.
	Files map[string]string
	// Interfaces names the network interfaces.
	Interfaces []string
	// Analyze is the output of systemd-analyze about the time of the boot.
	Analyze string
	// Journal is the end of the boot's journal.
	Journal string
}

// Unit is the state of one unit by systemd. Times count from the start of the kernel; zero means never.
type Unit struct {
	Load, Active, Result, FileState string
	// Conditioned is when the conditions were last checked. Condition and Assert are the results of the conditions and
	// assertions.
	Conditioned       time.Duration
	Condition, Assert bool
	// Activated is when the unit left the inactive state. Started and Exited are the times of its main process.
	Activated, Started, Exited time.Duration
	Restarts                   int
	// Jobs are its finished jobs, the oldest first.
	Jobs []Job
}

// Job is the result of one job of a unit.
type Job struct {
	Type, Result, Message string
}

// lastFrame is the frame that ends a complete report.
const lastFrame = "@end report"

// ParseReport parses the output of a probe on a serial line.
func ParseReport(text string) (*Report, error) {
	frames := parseFrames(text)
	for _, name := range []string{"uptime", "decided", "show", "jobs", "failed", "files", "network", "journal", "report"} {
		if _, ok := frames[name]; !ok {
			return nil, fmt.Errorf("probe's report: no frame %q; the line ends with:\n%s", name, tail(text, 20))
		}
	}
	r := &Report{Analyze: frames["analyze"], Journal: frames["journal"], Interfaces: strings.Fields(frames["network"])}
	r.Decided = strings.HasSuffix(strings.TrimSpace(frames["decided"]), "yes")
	for line := range strings.Lines(frames["failed"]) {
		if fields := strings.Fields(strings.TrimPrefix(line, "●")); len(fields) > 0 {
			r.Failed = append(r.Failed, fields[0])
		}
	}
	var errs [4]error
	r.Uptime, errs[0] = parseUptime(frames["uptime"])
	r.Files, errs[1] = parseFiles(frames["files"])
	r.Units, errs[2] = parseShow(frames["show"])
	errs[3] = r.addJobs(frames["jobs"])
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("probe's report: %w", err)
	}
	return r, nil
}

// parseFrames returns the text between "@begin NAME" and "@end NAME" by name.
func parseFrames(text string) map[string]string {
	frames := map[string]string{}
	name, body := "", []string(nil)
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", ""), "\n") {
		begin, isBegin := strings.CutPrefix(line, "@begin ")
		switch {
		case isBegin:
			name, body = begin, nil
		case name != "" && line == "@end "+name:
			frames[name] = strings.Join(body, "\n")
			name = ""
		default:
			body = append(body, line)
		}
	}
	return frames
}

func parseUptime(text string) (time.Duration, error) {
	up, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return 0, fmt.Errorf("uptime: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func parseFiles(text string) (map[string]string, error) {
	files := map[string]string{}
	for line := range strings.Lines(text) {
		path, content, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", path, err)
		}
		files[path] = string(data)
	}
	return files, nil
}

// parseShow reads what "systemctl show" printed: a block of key=value lines for each unit.
func parseShow(text string) (map[string]Unit, error) {
	units := map[string]Unit{}
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		p := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			p[key] = value
		}
		if p["Id"] == "" {
			return nil, fmt.Errorf("unit without Id:\n%s", block)
		}
		u := Unit{
			Load: p["LoadState"], Active: p["ActiveState"], Result: p["Result"], FileState: p["UnitFileState"],
			Condition: p["ConditionResult"] == "yes", Assert: p["AssertResult"] == "yes",
		}
		var errs [5]error
		u.Conditioned, errs[0] = micros(p, "ConditionTimestampMonotonic")
		u.Activated, errs[1] = micros(p, "InactiveExitTimestampMonotonic")
		u.Started, errs[2] = micros(p, "ExecMainStartTimestampMonotonic")
		u.Exited, errs[3] = micros(p, "ExecMainExitTimestampMonotonic")
		restarts, err := number(p, "NRestarts")
		u.Restarts, errs[4] = int(restarts), err
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("unit %s: %w", p["Id"], err)
		}
		units[p["Id"]] = u
	}
	return units, nil
}

func micros(p map[string]string, key string) (time.Duration, error) {
	n, err := number(p, key)
	return time.Duration(n) * time.Microsecond, err
}

// number returns the value of a property, or 0 for a unit whose type does not have it.
func number(p map[string]string, key string) (int64, error) {
	if p[key] == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(p[key], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("property %s: %w", key, err)
	}
	return n, nil
}

// addJobs reads the journal's entries about finished jobs, a JSON object a line.
func (r *Report) addJobs(text string) error {
	for line := range strings.Lines(text) {
		var entry struct {
			Unit    string `json:"UNIT"`
			Type    string `json:"JOB_TYPE"`
			Result  string `json:"JOB_RESULT"`
			Message string `json:"MESSAGE"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return fmt.Errorf("journal entry %q: %w", strings.TrimSpace(line), err)
		}
		if u, ok := r.Units[entry.Unit]; ok {
			u.Jobs = append(u.Jobs, Job{entry.Type, entry.Result, entry.Message})
			r.Units[entry.Unit] = u
		}
	}
	return nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
