package main

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// testZip is a function's package whose program has only the ELF header, which names the processor.
func testZip(t *testing.T, machine elf.Machine) []byte {
	t.Helper()
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64, Phentsize: 56}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("bootstrap")
	if err == nil {
		err = binary.Write(f, binary.LittleEndian, header)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// examine runs the doctor on the region, and returns its findings and its error.
func (d *deployedFunction) examine(t *testing.T, args ...string) (doctor.List, error) {
	t.Helper()
	stdout, stderr, err := d.run(t, append([]string{"--json"}, args...)...)
	var list doctor.List
	if e := json.Unmarshal([]byte(stdout), &list); e != nil {
		t.Fatalf("it printed %s (%v), %s, and ended with %v", stdout, e, stderr, err)
	}
	return list, err
}

// run runs the doctor on the region.
func (d *deployedFunction) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	for k, v := range map[string]string{"AWS_ENDPOINT_URL": d.url, "AWS_REGION": deployedRegion, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": t.TempDir(), "AWS_MAX_ATTEMPTS": "1"} {
		t.Setenv(k, v)
	}
	var out, story bytes.Buffer
	err = newApp(&out, &story).RunContext(t.Context(), append([]string{"hardtack", "lambda", "doctor"}, args...))
	return out.String(), story.String(), err
}

// bad lists the checks that are not ok, one line each.
func bad(l doctor.List) (lines []string) {
	for _, c := range l {
		if c.State != doctor.OK {
			lines = append(lines, string(c.State)+" "+c.Name)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// healthy wants nothing above ok.
func (d *deployedFunction) healthy(t *testing.T, args ...string) doctor.List {
	t.Helper()
	list, err := d.examine(t, args...)
	if err != nil || len(bad(list)) > 0 {
		text, _ := json.MarshalIndent(list, "", " ")
		t.Errorf("%v\n%s", err, text)
	}
	return list
}

// TestLambdaDoctor deploys the template once, and introduces each fault, one by one.
func TestLambdaDoctor(t *testing.T) {
	if testing.Short() {
		t.Skip("-short was asked for: it deploys a stack")
	}
	d := deployTemplate(t)
	d.do(t, set(&d.mu, &d.calls, map[string]int{}))
	t.Run("healthy", func(t *testing.T) { d.healthy(t, "--stack", deployedStack) })
	byStack := d.called()
	d.mu.Lock()
	sum := 0
	for _, n := range d.calls {
		sum += n
	}
	d.mu.Unlock()
	t.Logf("it takes %d calls", sum)
	t.Run("healthy by the function's name", func(t *testing.T) { d.healthy(t, "--function", d.ids["Function"]) })
	t.Run("healthy without a stack", func(t *testing.T) {
		d.do(t, set(&d.mu, &d.untagged, true))
		defer d.do(t, set(&d.mu, &d.untagged, false))
		list := d.healthy(t, "--function", d.ids["Function"])
		if !slices.ContainsFunc(list, func(c doctor.Check) bool { return c.Name == "stack" && strings.Contains(c.Text, "belongs to no stack") }) {
			t.Errorf("%+v does not say that there is no stack", list)
		}
	})
	t.Run("policy", func(t *testing.T) { d.wantPolicy(t) })
	for _, action := range byStack {
		t.Run("without "+action, func(t *testing.T) { d.withoutPermission(t, action) })
	}
	t.Run("a service does not answer", func(t *testing.T) { d.withoutAnswer(t) })
	t.Run("zip", func(t *testing.T) { d.wantZip(t) })
	t.Run("table", func(t *testing.T) { d.wantTable(t) })
	for _, f := range d.faults() {
		t.Run(f.name, func(t *testing.T) {
			d.do(t, f.do)
			list, err := d.examine(t, "--stack", deployedStack)
			if diff := cmp.Diff(f.want, bad(list)); diff != "" {
				text, _ := json.MarshalIndent(list, "", " ")
				t.Errorf("(-want +got):\n%s\n%s", diff, text)
			}
			fails := slices.ContainsFunc(f.want, func(w string) bool { return strings.HasPrefix(w, "error ") })
			if fails != (err != nil) {
				t.Errorf("it ends with %v", err)
			}
			for _, c := range list {
				if c.State != doctor.OK && c.Next == "" {
					t.Errorf("%s (%s) says no next step", c.Name, c.Text)
				}
			}
			d.do(t, f.undo)
		})
	}
	t.Run("healthy again", func(t *testing.T) { d.healthy(t, "--stack", deployedStack) })
}

// do does something that has to work.
func (d *deployedFunction) do(t *testing.T, a act) {
	t.Helper()
	if err := a(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// called are the actions of all calls since the last time.
func (d *deployedFunction) called() (actions []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.calls {
		actions = append(actions, a)
	}
	slices.Sort(actions)
	return actions
}

// wantPolicy compares the actions called with the output of --policy.
func (d *deployedFunction) wantPolicy(t *testing.T) {
	t.Helper()
	stdout, _, err := d.run(t, "--policy", "--stack", deployedStack)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := awsfake.ParsePolicy([]byte(stdout)); err != nil {
		t.Errorf("IAM would not take it: %v", err)
	}
	var policy struct {
		Statement []struct {
			Action, Resource []string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &policy); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, s := range policy.Statement {
		allowed = append(allowed, s.Action...)
	}
	slices.Sort(allowed)
	// GetFunction returns the tags to callers with this permission; ListTags itself is not called. Only etcd has
	// volumes.
	notCalled := []string{"lambda:ListTags", "ec2:DescribeVolumes"}
	if diff := cmp.Diff(slices.DeleteFunc(allowed, func(a string) bool { return slices.Contains(notCalled, a) }), d.called()); diff != "" {
		t.Errorf("allowed and called (-allowed +called):\n%s", diff)
	}
	p, err := awsfake.ParsePolicy([]byte(stdout))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ action, arn, want string }{
		{"lambda:GetFunction", "arn:aws:lambda:eu-central-1:123456789012:function:" + d.ids["Function"], "allowed"},
		{"lambda:GetFunction", "arn:aws:lambda:eu-central-1:123456789012:function:other", "implicitDeny"},
		{"logs:FilterLogEvents", "arn:aws:logs:eu-central-1:123456789012:log-group:" + d.ids["Logs"] + ":*", "allowed"},
		{"iam:SimulatePrincipalPolicy", "arn:aws:iam::123456789012:role/" + d.ids["Role"], "allowed"},
		{"iam:SimulatePrincipalPolicy", "arn:aws:iam::123456789012:role/admin", "implicitDeny"},
		{"sqs:GetQueueAttributes", "arn:aws:sqs:eu-central-1:123456789012:" + nameOfURL(d.ids["Queue"]), "allowed"},
	} {
		if got := awsfake.Decision([]awsfake.Policy{p}, c.action, c.arn, nil); got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.action, c.arn, got, c.want)
		}
	}
}

// withoutPermission wants a finding that names the action, no error, and the checks that do not need it.
func (d *deployedFunction) withoutPermission(t *testing.T, action string) {
	t.Helper()
	d.do(t, set(&d.mu, &d.denied, action))
	defer d.do(t, set(&d.mu, &d.denied, ""))
	list, err := d.examine(t, "--stack", deployedStack)
	if err != nil || list.Count(doctor.Error) > 0 {
		t.Errorf("it ends with %v, and finds %v", err, bad(list))
	}
	named := 0
	for _, c := range list {
		if c.State != doctor.Warning {
			continue
		}
		if !strings.HasPrefix(c.Text, "not known: ") {
			t.Errorf("%+v is not about what is not known", c)
		}
		if strings.HasSuffix(c.Text, "needs "+action) && strings.Contains(c.Next, "allow "+action) {
			named++
		}
	}
	if named == 0 {
		t.Errorf("nothing names it: %v", list)
	}
	switch {
	case action == "lambda:GetFunction": // there is little to look at
	case strings.HasPrefix(action, "cloudformation:"): // the stack names the function
		if list, err = d.examine(t, "--stack", deployedStack, "--function", d.ids["Function"]); err != nil || list.Count(doctor.OK) < 50 {
			t.Errorf("with the function's name too it ends with %v, and %d checks are ok: %v", err, list.Count(doctor.OK), bad(list))
		}
	case list.Count(doctor.OK) < 35:
		t.Errorf("only %d checks are ok: %v", list.Count(doctor.OK), bad(list))
	}
}

// withoutAnswer expects a finding about the service that does not answer, and all findings about the others.
func (d *deployedFunction) withoutAnswer(t *testing.T) {
	t.Helper()
	d.do(t, set(&d.mu, &d.stalled, "logs:FilterLogEvents"))
	defer d.do(t, set(&d.mu, &d.stalled, ""))
	list, err := d.examine(t, "--timeout", "30s", "--stack", deployedStack)
	if diff := cmp.Diff([]string{"error reconcile"}, bad(list)); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func (d *deployedFunction) wantZip(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	same, other, none := filepath.Join(dir, "same.zip"), filepath.Join(dir, "other.zip"), filepath.Join(dir, "none.zip")
	for file, data := range map[string][]byte{same: testZip(t, elf.EM_X86_64), other: testZip(t, elf.EM_AARCH64), none: []byte("no zip")} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.healthy(t, "--stack", deployedStack, "--zip", same)
	list, err := d.examine(t, "--stack", deployedStack, "--zip", other)
	if diff := cmp.Diff([]string{"error function.architecture", "error function.code"}, bad(list)); diff != "" || err == nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if stdout, _, err := d.run(t, "--stack", deployedStack, "--zip", none); err == nil || !strings.Contains(err.Error(), "make lambda builds it") || stdout != "" {
		t.Errorf("of no zip it says %v, and prints %s", err, stdout)
	}
}

// wantTable tests the table for people, and wrong command lines.
func (d *deployedFunction) wantTable(t *testing.T) {
	t.Helper()
	state := &d.alarms.alarm("ErrorsAlarm").StateValue
	d.do(t, set(&d.mu, state, "ALARM"))
	defer d.do(t, set(&d.mu, state, "OK"))
	stdout, _, err := d.run(t, "--stack", deployedStack)
	if err == nil || !strings.HasPrefix(err.Error(), "1 of ") {
		t.Errorf("it ends with %v", err)
	}
	for _, want := range []string{"\nerror  alarms.Errors ", "the function crashes or runs out of time\n", " next: see the function's log from that time on\n", "\nok     demo.records "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not print %q:\n%s", want, stdout)
		}
	}
	if _, _, err := d.run(t); err == nil || !strings.Contains(err.Error(), "--stack or --function is needed") {
		t.Errorf("without a name it ends with %v", err)
	}
	list, err := d.examine(t, "--stack", "nobody")
	if err == nil || !slices.Contains(bad(list), "error stack") || !strings.Contains(list[0].Text, "nobody") {
		t.Errorf("of a stack that is not there it says %v, %v", err, list)
	}
	list, err = d.examine(t, "--function", "nobody")
	if err == nil || !slices.Contains(bad(list), "error function") {
		t.Errorf("of a function that is not there it says %v, %v", err, list)
	}
}
