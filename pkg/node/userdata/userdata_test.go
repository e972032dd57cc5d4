package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// TestParseGolden parses every testdata/*.in and compares what comes of it, files and findings, with
// the file beside it.
func TestParseGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in")
	if err != nil || len(inputs) < 20 {
		t.Fatalf("inputs: %v, %v", inputs, err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(input, ".in")
		t.Run(filepath.Base(name), func(t *testing.T) {
			result, findings := Parse(read(t, input), nil)
			got := listing(result, findings)
			golden.Assert(t, got, filepath.Base(name)+".golden")
		})
	}
}

// listing writes a result as text.
func listing(r Result, findings problem.List) string {
	var b strings.Builder
	fmt.Fprintf(&b, "roles %s\n", r.Roles)
	for _, f := range r.Files {
		appends := ""
		if f.Append {
			appends = " append"
		}
		fmt.Fprintf(&b, "file %s %04o %q:%q%s %q\n", f.Path, f.Mode, f.User, f.Group, appends, f.Content)
	}
	for _, p := range findings {
		rule := ""
		if p.Rule != "" {
			rule = "[" + p.Rule + "]"
		}
		fmt.Fprintf(&b, "%s%s %s\n", p.Severity, rule, p)
	}
	return b.String()
}

// TestParseLayers wraps one input in every layer, and layers in layers: what comes out is the same.
func TestParseLayers(t *testing.T) {
	plain := read(t, "testdata/plain.in")
	want, findings := Parse(plain, nil)
	if findings.Err() != nil || len(want.Files) != 2 {
		t.Fatalf("plain: %v, %d files", findings, len(want.Files))
	}
	tests := map[string][]byte{
		"gzip":               pack(t, plain),
		"base64":             []byte(base64.StdEncoding.EncodeToString(plain)),
		"base64 in lines":    wrap(base64.StdEncoding.EncodeToString(plain)),
		"gzip in base64":     []byte(base64.StdEncoding.EncodeToString(pack(t, plain))),
		"base64 in gzip":     pack(t, []byte(base64.RawStdEncoding.EncodeToString(plain))),
		"gzip in gzip":       pack(t, pack(t, plain)),
		"leading blank line": append([]byte("\n \n"), plain...),
		"capitals":           bytes.Replace(plain, []byte("#cloud-config"), []byte("#Cloud-Config"), 1),
		"MIME":               mimeOf("text/cloud-config", "7bit", plain),
		"MIME, text/plain":   mimeOf("text/plain", "8bit", plain),
		"MIME, script type":  mimeOf("text/x-shellscript", "binary", plain),
		"MIME of base64":     mimeOf("text/cloud-config", "base64", wrap(base64.StdEncoding.EncodeToString(plain))),
		"MIME of gzip":       mimeOf("application/gzip", "base64", wrap(base64.StdEncoding.EncodeToString(pack(t, plain)))),
		"gzip of MIME":       pack(t, mimeOf("text/cloud-config", "", plain)),
		"base64 of MIME":     []byte(base64.StdEncoding.EncodeToString(mimeOf("text/cloud-config", "", plain))),
		"single-part MIME":   append([]byte("Content-Type: text/cloud-config\nMIME-Version: 1.0\n\n"), plain...),
		"windows line ends":  bytes.ReplaceAll(mimeOf("text/cloud-config", "", plain), []byte("\n"), []byte("\r\n")),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			got, findings := Parse(data, nil)
			if err := findings.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestParseBounds gives what a crafted input could.
func TestParseBounds(t *testing.T) {
	deep := read(t, "testdata/plain.in")
	for range MaxDepth + 2 {
		deep = pack(t, deep)
	}
	bomb := pack(t, append([]byte("#cloud-config\n#"), make([]byte, MaxDecoded)...))
	entry := base64.StdEncoding.EncodeToString(pack(t, make([]byte, MaxDecoded/2+1)))
	parts := []byte("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n" +
		strings.Repeat("--b\nContent-Type: text/x-shellscript\n\n#!\n", MaxParts+1) + "--b--\n")
	nested := "\n"
	for i := range MaxDepth + 2 {
		nested = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n%s\n--b%d--\n", i, i, nested, i)
	}
	nested = "MIME-Version: 1.0\n" + nested
	grown := "#cloud-config\nwrite_files:\n- &a {path: /a, append: true, encoding: gz+b64, content: " +
		base64.StdEncoding.EncodeToString(pack(t, make([]byte, MaxDecoded/4))) + "}\n" + strings.Repeat("- *a\n", 3)
	tests := map[string]struct {
		data []byte
		want string
	}{
		"too long":           {make([]byte, MaxInput+1), "over the bound"},
		"a gzip bomb":        {bomb, "more than 16777216 bytes when unpacked"},
		"a long config":      {pack(t, append([]byte("#cloud-config\n#"), make([]byte, MaxInput)...)), "cloud-config of 1048591 bytes is over the bound"},
		"two big files":      {[]byte("#cloud-config\nwrite_files:\n- &a {path: /a, encoding: gz+b64, content: " + entry + "}\n- *a\n"), "more than 16777216 bytes when unpacked"},
		"a file that grows":  {[]byte(grown), "16777216 bytes"},
		"deep gzip":          {deep, "nested more than 8 deep"},
		"deep MIME":          {[]byte(nested), "nested more than 8 deep"},
		"many parts":         {parts, "more than 128 parts"},
		"truncated gzip":     {pack(t, deep)[:40], "unpacking gzip: unexpected EOF"},
		"no boundary":        {[]byte("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n"), "without a boundary"},
		"bad header":         {[]byte("MIME-Version: 1.0\nno header\n\n"), "reading the MIME header"},
		"anchor in itself":   {[]byte("#cloud-config\nwrite_files: &a\n- *a\n"), "must be a mapping"},
		"item within itself": {[]byte("#cloud-config\nwrite_files:\n- &a {path: /a, content: *a}\n"), "must be text, not a mapping"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, findings := Parse(test.data, nil)
			if err := findings.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("findings %v do not say %q", findings, test.want)
			}
		})
	}
}

// processorTime is what the process has had of the processors so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestParseHostile gives inputs of the largest size that cost most: each must be done in seconds of the
// processor (which a busy machine has few of in a minute), and in memory that a small one has.
func TestParseHostile(t *testing.T) {
	size := MaxInput
	if testing.Short() {
		size /= 8 // the race detector makes this twenty times slower
	}
	fill := func(begin, repeat, end string) []byte {
		return []byte(begin + strings.Repeat(repeat, (size-len(begin)-len(end))/len(repeat)) + end)
	}
	keys := []byte("#cloud-config\n")
	for i := 0; len(keys) < size-16; i++ {
		keys = fmt.Appendf(keys, "k%d:\n", i)
	}
	if _, findings := Parse(keys, nil); len(findings) != 1 || !strings.HasSuffix(findings[0].Text, "k18, k19 and "+fmt.Sprint(bytes.Count(keys, []byte("\n"))-21)+" more") {
		t.Errorf("%.200v", findings)
	}
	const list = "#cloud-config\nwrite_files:\n"
	for name, data := range map[string][]byte{
		"keys":             keys,
		"open lists":       fill("#cloud-config\na: ", "[", ""),
		"nested lists":     fill("#cloud-config\na:\n", "- ", ""),
		"short items":      fill("#cloud-config\na: [", "a,", "]"),
		"wrong entries":    fill(list, "- x\n", ""),
		"same entry":       fill(list+"- &a {path: /a, append: true, content: x}\n", "- *a\n", ""),
		"a deep path":      fill(list+"- {path: ", "/a", "}\n"),
		"comments":         fill("#cloud-config\n", "#\n", ""),
		"comments at keys": fill("#cloud-config\n", "a: b #\n", ""),
		"header lines":     fill("MIME-Version: 1.0\n", "A: b\n", "\n"),
		"boundaries":       fill("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n", "--b\n\n", ""),
		"spaces":           fill("", " ", ""),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := processorTime(t)
			_, findings := Parse(data, nil)
			took := processorTime(t) - began
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%v, %d MiB in all, %d findings", took, allocated, len(findings))
			if took > time.Minute || allocated > 1<<10 || len(findings) > 2*MaxFindings {
				t.Errorf("%v, %d MiB in all, %d findings", took, allocated, len(findings))
			}
		})
	}
}

func TestParseSeed(t *testing.T) {
	tests := []struct{ meta, want, err string }{
		{"", "", ""},
		{"instance-id: i-0abc\nlocal-hostname: x\n", "i-0abc", ""},
		{`{"instance-id": "iid-local01"}`, "iid-local01", ""},
		{"instance-id: 7\n", "7", ""},
		{"instance-id:\n", "", ""},
		{"local-hostname: x\n", "", ""},
		{"instance-id: [a]\n", "", "must be text"},
		{"just text", "", "mapping of keys"},
		{"a: [", "", "reading meta-data"},
		{"instance-id: a\nlaunch-index: one\n", "", "launch-index must be a number"},
		{strings.Repeat("#", MaxInput+1), "", "over the bound"},
		{"instance-id: a\n" + strings.Repeat("#", MaxInput-15), "a", ""},
		{"instance-id: ~\n", "", ""},
		{"x: &i i-0abc\ninstance-id: *i\n", "i-0abc", ""},
		{"instance-id: a\nlaunch-index: 0\n", "a 0", ""},
		{"{launch-index: '12'}", " 12", ""},
		{"instance-id: a\nlaunch-index: ~\n", "a", ""},
		{"instance-id: a\nlaunch-index:\n", "a", ""},
		{"instance-id: a\nlaunch-index: [1]\n", "", "line 2: launch-index must be text"},
	}
	for _, test := range tests {
		seed, err := ParseSeed([]byte(test.meta))
		got := seed.InstanceID
		if seed.LaunchIndex != nil {
			got += fmt.Sprint(" ", *seed.LaunchIndex)
		}
		if err == nil && got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%.40q: %q, %v; want %q, %q", test.meta, got, err, test.want, test.err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"plain", "mime"} {
		b.Run(name, func(b *testing.B) {
			data := read(b, "testdata/"+name+".in")
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if result, findings := Parse(data, nil); findings.Err() != nil || len(result.Roles) == 0 {
					b.Fatal(findings)
				}
			}
		})
	}
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func pack(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// wrap breaks a text into lines of 76 characters, as MIME does.
func wrap(text string) []byte {
	var b bytes.Buffer
	for len(text) > 76 {
		b.WriteString(text[:76] + "\r\n")
		text = text[76:]
	}
	b.WriteString(text + "\r\n")
	return b.Bytes()
}

// mimeOf makes a message of one part.
func mimeOf(kind, encoding string, body []byte) []byte {
	head := "Content-Type: multipart/mixed; boundary=\"=b=\"\nMIME-Version: 1.0\n\n--=b=\nContent-Type: " + kind + "\n"
	if encoding != "" {
		head += "Content-Transfer-Encoding: " + encoding + "\n"
	}
	return []byte(head + "\n" + string(body) + "\n--=b=--\n")
}
