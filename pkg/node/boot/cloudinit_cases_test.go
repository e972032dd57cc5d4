package boot

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
)

const minionsEntry = "- {path: /etc/sysconfig/kubernetes-minions, content: 'A=1'}\n"

// configOf is a cloud-config with the minions' role file and more entries.
func configOf(entries ...string) string {
	text := "#cloud-config\nwrite_files:\n" + minionsEntry
	for _, e := range entries {
		text += "- " + e + "\n"
	}
	return text
}

// messageOf is a MIME message of parts, each with its header and an empty line before its body.
func messageOf(parts ...string) string {
	text := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n"
	for _, p := range parts {
		text += "--b\n" + strings.TrimSuffix(p, "\n") + "\n"
	}
	return text + "--b--\n"
}

// partOf is a part with a cloud-config; header lines end in newlines.
func partOf(header, body string) string {
	return header + "Content-Type: text/cloud-config\n\n" + body
}

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		panic(err) // a buffer takes everything
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// cloudInitCases are the cases of TestCloudInit. The bounds (bombs, a thousand parts) are in pkg/node/userdata: cloud-init has none.
func cloudInitCases() []comparison {
	var all []comparison
	for _, some := range [][]comparison{formCases(), entryCases(), modeCases(), placeCases(), messageCases(), indexCases(), mergeCases()} {
		all = append(all, some...)
	}
	return all
}

// like is a case in which both do the same and the machine becomes a minion.
func like(name, data string) comparison {
	return comparison{name: name, data: data, index: -1, want: same, roles: "minions"}
}

// nothing is a case in which neither writes anything.
func nothing(name, data string) comparison {
	return comparison{name: name, data: data, index: -1, want: same}
}

func refuses(name, data, why string) comparison {
	return comparison{name: name, data: data, index: -1, want: refused, why: why}
}

func writesAlone(name, data, why string) comparison {
	return comparison{name: name, data: data, index: -1, want: alone, roles: "minions", why: why}
}

func differs(name, data, why string) comparison {
	return comparison{name: name, data: data, index: -1, want: different, roles: "minions", why: why}
}

// The reasons that several cases share.
const (
	runsNothing  = "Hardtack runs and fetches nothing"
	wouldGuess   = "cloud-init guesses, and a wrong guess is found at run time"
	halfWay      = "cloud-init fails half-way, with what came before it written"
	bothLayers   = "more layers than cloud-init undoes; nothing else can be meant"
	leavesOutAll = "cloud-init leaves the part out and says so in its log only"
)

func formCases() []comparison {
	plain := configOf("{path: /etc/x, content: x}")
	return []comparison{
		like("plain", plain),
		like("CRLF", strings.ReplaceAll(plain, "\n", "\r\n")),
		like("blank lines before it", "\n\n"+plain),
		like("capitals", strings.Replace(plain, "#cloud-config", "#Cloud-Config", 1)),
		like("a comment after the mark", strings.Replace(plain, "#cloud-config", "#cloud-config\n# of ours", 1)),
		like("text after the mark", strings.Replace(plain, "#cloud-config", "#cloud-config of ours", 1)),
		like("document start", strings.Replace(plain, "#cloud-config\n", "#cloud-config\n---\n", 1)),
		like("YAML version", strings.Replace(plain, "#cloud-config\n", "#cloud-config\n%YAML 1.1\n---\n", 1)),
		like("JSON body", "#cloud-config\n{\"write_files\": [{\"path\": \"/etc/sysconfig/kubernetes-minions\", \"content\": \"A=1\"}]}\n"),
		like("other keys beside it", plain+"hostname: x\nruncmd: [true]\n"),
		like("gzip", packed(plain)),
		like("gzip of two members", packed(plain[:20])+packed(plain[20:])),
		like("anchors", "#cloud-config\nx: &c 'A=1'\nwrite_files:\n- {path: /etc/sysconfig/kubernetes-minions, content: *c}\n"),
		like("anchored entry", "#cloud-config\nx: &e {path: /etc/sysconfig/kubernetes-minions, content: 'A=1'}\nwrite_files: [*e]\n"),
		nothing("empty", ""),
		nothing("blank", "\n \n"),
		nothing("only the mark", "#cloud-config\n"),
		nothing("no files", "#cloud-config\nhostname: x\n"),
		nothing("empty list", "#cloud-config\nwrite_files: []\n"),
		nothing("script", "#!/bin/sh\ntouch /etc/x\n"),
		nothing("boothook", "#cloud-boothook\ntouch /etc/x\n"),
		nothing("Ignition", `{"ignition": {"version": "3.4.0"}}`),
		nothing("Bottlerocket", "[settings.kubernetes]\ncluster-name = \"x\"\n"),
		nothing("PowerShell", "<powershell>\n</powershell>\n"),
		nothing("Talos", "version: v1alpha1\nmachine:\n  type: worker\n"),
		nothing("a list as the config", "#cloud-config\n- a\n"),
		nothing("text as the config", "#cloud-config\njust text\n"),
		nothing("broken YAML", "#cloud-config\nwrite_files: [\n"),
		nothing("a tab for indentation", "#cloud-config\nwrite_files:\n\t- {path: /etc/x}\n"),
		nothing("two documents", plain+"---\n"+plain),
		nothing("Latin-1", strings.Replace(plain, "content: x", "content: \xe4", 1)),
		nothing("control character", strings.Replace(plain, "content: x", "content: \x01", 1)),
		nothing("gzip cut short", packed(plain)[:60]),
		writesAlone("byte order mark", "\xef\xbb\xbf"+plain, "editors write one; nothing else can be meant"),
		writesAlone("gzip twice", packed(packed(plain)), bothLayers),
		writesAlone("base64 of it all", b64(plain), bothLayers),
		writesAlone("base64 of gzip", b64(packed(plain)), bothLayers),
		refuses("jinja", "## template: jinja\n"+plain, runsNothing),
		refuses("archive", "#cloud-config-archive\n- type: text/cloud-config\n  content: |\n    "+strings.ReplaceAll(strings.TrimSpace(plain), "\n", "\n    ")+"\n", runsNothing),
		refuses("JSON patch", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/write_files\", \"value\": [{\"path\": \"/etc/sysconfig/kubernetes-minions\"}]}]\n", runsNothing),
		refuses("without a role", "#cloud-config\nwrite_files: [{path: /etc/x}]\n", "a machine without a role is a mistake, which cloud-init cannot know"),
		refuses("unknown role", configOf("{path: /etc/sysconfig/kubernetes-workers_old}"), "a misspelled role would be missing in silence"),
		refuses("a key twice", "#cloud-config\nwrite_files: [{path: /etc/x}]\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions}]\n", wouldGuess),
		refuses("a key of an entry twice", configOf("{path: /etc/x, path: /etc/y}"), wouldGuess),
		refuses("merge key", "#cloud-config\nx: &d {content: 'A=1'}\nwrite_files:\n- {<<: *d, path: /etc/sysconfig/kubernetes-minions}\n", "YAML 1.1 only; the text of the refusal says what to write"),
		refuses("an entry that is text", configOf("just text"), halfWay),
	}
}

func entryCases() []comparison {
	var all []comparison
	content := func(name, entry string) {
		all = append(all, like("content: "+name, configOf("{path: /etc/x, "+entry+"}")))
	}
	content("text", "content: x")
	content("quoted", `content: "a\tb\n"`)
	content("unicode", "content: 'grüße ☃'")
	content("NUL", `content: "a\0b"`)
	content("empty", "content: ''")
	content("none", "owner: root")
	content("null", "content: null")
	all[len(all)-1].modern = true
	content("binary", "content: !!binary AAEC")
	for _, name := range []string{"b64", "base64", "B64", " b64 "} {
		content(name, fmt.Sprintf("encoding: '%s', content: %s", name, b64("x\x00y")))
	}
	for _, name := range []string{"gz+b64", "gzip+base64", "gz+base64", "gzip+b64"} {
		content(name, fmt.Sprintf("encoding: %s, content: %s", name, b64(packed("packed"))))
	}
	content("gz of binary", "encoding: gz, content: !!binary "+b64(packed("packed")))
	content("text/plain", "encoding: text/plain, content: x")
	all = append(all,
		like("content: literal", configOf("path: /etc/x\n  content: |\n    a\n\n    b\n")),
		like("content: literal without its end", configOf("path: /etc/x\n  content: |-\n    a\n    b")),
		like("content: folded", configOf("path: /etc/x\n  content: >\n    a\n    b\n\n    c\n")),
		like("content: base64 in lines", configOf("path: /etc/x\n  encoding: b64\n  content: |\n    YWJj\n    ZGVm\n")),
		like("unknown key", configOf("{path: /etc/x, content: x, contents: y}")),
		like("deferred", configOf("{path: /etc/x, content: late, defer: true}", "{path: /etc/x, content: early}")),
		like("deferred append", configOf("{path: /etc/x, content: late, defer: true, append: true}", "{path: /etc/x, content: early}")),
		like("a path twice", configOf("{path: /etc/x, content: one}", "{path: /etc/x, content: two}")),
		like("a path twice, appending", configOf("{path: /etc/x, content: one}", "{path: /etc/x, content: two, append: true}")),
		like("append to a new file", configOf(`{path: /etc/x, content: "x\n", append: true}`)),
		like("append to the image's", configOf(`{path: /etc/hosts, content: "10.0.0.1 x\n", append: true}`)),
		like("append the end of a line", configOf(`{path: /etc/hosts, content: "localhost\n", append: true}`)),
		like("append a line that is there", configOf(`{path: /etc/hosts, content: "127.0.0.1 localhost\n", append: true}`)),
		like("append yes", configOf(`{path: /etc/hosts, content: x, append: yes}`)),
		like("append no", configOf(`{path: /etc/hosts, content: x, append: no}`)),
		like("append null", configOf(`{path: /etc/hosts, content: x, append: null}`)),
		refuses("append as text", configOf(`{path: /etc/hosts, content: x, append: "true"}`), wouldGuess),
		refuses("append as a number", configOf(`{path: /etc/hosts, content: x, append: 1}`), wouldGuess),
		refuses("append maybe", configOf(`{path: /etc/hosts, content: x, append: maybe}`), wouldGuess),
		refuses("defer as text", configOf(`{path: /etc/x, content: x, defer: 'yes'}`), wouldGuess),
		refuses("source", configOf("{path: /etc/x, content: x, source: {uri: 'file:///etc/hosts'}}"), runsNothing),
		refuses("unknown encoding", configOf("{path: /etc/x, content: x, encoding: rot13}"), wouldGuess),
		refuses("junk in base64", configOf("{path: /etc/x, encoding: b64, content: 'YW*Jj'}"), wouldGuess),
		differs("base64 without padding", configOf("{path: /etc/x, encoding: b64, content: YQ}", "{path: /etc/y}"), halfWay+"; nothing is lost without it"),
		differs("content no", configOf("{path: /etc/x, content: no}"), halfWay+": YAML 1.1 takes it for a truth value"),
		differs("content off", configOf("{path: /etc/x, content: off}"), halfWay+": YAML 1.1 takes it for a truth value"),
		differs("content as a time", configOf("{path: /etc/x, content: 12:30:45}"), halfWay+": YAML 1.1 takes it for a number"),
		refuses("content as a number", configOf("{path: /etc/x, content: 12}"), halfWay),
		refuses("content as a truth value", configOf("{path: /etc/x, content: true}"), halfWay),
		refuses("content as a date", configOf("{path: /etc/x, content: 2026-01-02}"), halfWay),
		refuses("content as a map", configOf("{path: /etc/x, content: {a: b}}"), halfWay),
		refuses("not gzip", configOf("{path: /etc/x, encoding: gz+b64, content: YWJj}"), halfWay),
	)
	return all
}

func modeCases() []comparison {
	var all []comparison
	for _, mode := range []string{`"0644"`, `"644"`, `'0600'`, `0644`, `0o644`, `"0o755"`, `0755`, `"0444"`, `null`} {
		all = append(all, like("mode "+mode, configOf("{path: /etc/x, content: x, permissions: "+mode+"}")))
	}
	for _, mode := range []string{`"4755"`, `"1777"`, `"2755"`} {
		all = append(all, like("mode "+mode, configOf("{path: /etc/x, content: x, permissions: "+mode+"}")))
	}
	all[len(all)-3].modern, all[len(all)-1].modern = true, true // the change of owner cleared the bit
	for _, mode := range []string{`644`, `420`, `493`, `"0888"`, `rw`, `0.5`, `"u+x"`, `-1`, `"99999"`} {
		all = append(all, refuses("mode "+mode, configOf("{path: /etc/x, content: x, permissions: "+mode+"}"), wouldGuess))
	}
	all = append(all, differs("mode 0", configOf(`{path: /etc/x, content: x, permissions: "0000"}`), "cloud-init takes 0 for none, and leaves 0644"))
	for _, owner := range []string{"root", "root:root", "etcd:adm", "etcd:etcd", "'root:adm'"} {
		all = append(all, like("owner "+owner, configOf("{path: /etc/x, content: x, owner: "+owner+"}")))
	}
	all = append(all,
		like("owner by user only", configOf("{path: /etc/x, content: x, owner: etcd}")),
		refuses("owner as a number", configOf("{path: /etc/x, content: x, owner: 812}"), halfWay),
		refuses("unknown owner", configOf("{path: /etc/x, content: x, owner: nobody}"), halfWay),
		refuses("owner of minus one", configOf("{path: /etc/x, content: x, owner: '-1:-1'}"), wouldGuess),
		differs("numeric owner", configOf("{path: /etc/x, content: x, owner: '812:4'}", "{path: /etc/y}"), halfWay+": it knows names only"),
	)
	return all
}

func placeCases() []comparison {
	link := comparison{name: "link as target", data: configOf("{path: /etc/link, content: x}"), before: tree{"etc/link": "-> hosts"}, index: -1, want: refused,
		why: "whoever may place a link would choose what root writes"}
	dead := link
	dead.name, dead.before = "dead link as target", tree{"etc/link": "-> nowhere"}
	appending := link
	appending.name, appending.data = "link as target, appending", configOf("{path: /etc/link, content: x, append: true}")
	through := like("link on the way", configOf("{path: /lib/x, content: x}"))
	through.before = tree{"lib": "-> usr/lib", "usr/lib/y": "y"}
	dirs := like("owner of new directories", configOf("{path: /opt/a/b/c, content: x, owner: 'etcd:adm'}"))
	dirs.modern = true
	directory := refuses("path is a directory", configOf("{path: /opt/there, content: x}"), halfWay)
	directory.before = tree{"opt/there/y": "y"}
	replaced := like("file of the image", configOf("{path: /etc/hosts, content: x}"))
	return []comparison{
		link, dead, appending, through, dirs, directory, replaced,
		like("new directories", configOf("{path: /opt/a/b/c, content: x}")),
		like("dots in the path", configOf("{path: /opt/../etc/./x, content: x}")),
		like("slashes in the path", configOf("{path: //etc///x, content: x}")),
		refuses("relative path", configOf("{path: etc/x, content: x}"), wouldGuess),
		refuses("path with a slash at its end", configOf("{path: /etc/new/, content: x}"), wouldGuess),
		refuses("path of the root", configOf("{path: /, content: x}"), halfWay),
		refuses("no path", configOf("{content: x}"), wouldGuess),
		refuses("empty path", configOf("{path: '', content: x}"), wouldGuess),
	}
}

func messageCases() []comparison {
	plain := configOf("{path: /etc/x, content: x}")
	script := "Content-Type: text/x-shellscript\n\n#!/bin/sh\ntrue\n"
	return []comparison{
		like("MIME", messageOf(partOf("", plain))),
		like("MIME, CRLF", strings.ReplaceAll(messageOf(partOf("", plain)), "\n", "\r\n")),
		like("MIME in gzip", packed(messageOf(partOf("", plain)))),
		like("MIME, base64", messageOf(partOf("Content-Transfer-Encoding: base64\n", b64(plain)))),
		like("MIME, quoted-printable", messageOf(partOf("Content-Transfer-Encoding: quoted-printable\n", strings.ReplaceAll(plain, "=", "=3D")))),
		like("MIME, preamble", strings.Replace(messageOf(partOf("", plain)), "--b\n", "Preamble.\n--b\n", 1)),
		like("MIME, From line", "From x Mon Jan  1 00:00:00 2026\n"+messageOf(partOf("", plain))),
		like("MIME, one part only", "MIME-Version: 1.0\nContent-Type: text/cloud-config\n\n"+plain),
		like("MIME, script beside it", messageOf(script, partOf("", plain))),
		like("MIME, boothook beside it", messageOf("Content-Type: text/cloud-boothook\n\n#cloud-boothook\ntrue\n", partOf("", plain))),
		like("MIME, text/plain", messageOf("Content-Type: text/plain\n\n"+plain)),
		like("MIME, script type", messageOf("Content-Type: text/x-shellscript\n\n"+plain)),
		like("MIME, no type", messageOf("X: y\n\n"+plain)),
		like("MIME, gzip part", messageOf("Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n"+b64(packed(plain)))),
		like("MIME, AWS's boundary", strings.NewReplacer(`"b"`, `"//"`, "--b", "--//").Replace(messageOf(partOf("", plain)))),
		like("MIME, file name", messageOf(partOf("Content-Disposition: attachment; filename=\"x.yaml\"\n", plain))),
		like("MIME, nested", messageOf("Content-Type: multipart/mixed; boundary=c\n\n--c\n"+partOf("", plain)+"--c--\n")),
		like("MIME, header's name in capitals", strings.Replace(messageOf(partOf("", plain)), "MIME-Version", "Mime-version", 1)),
		nothing("MIME, only a script", messageOf(script)),
		nothing("MIME, no parts", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b--\n"),
		refuses("MIME, end boundary missing", strings.TrimSuffix(messageOf(partOf("", plain)), "--b--\n"), "user data that was cut short looks the same, and half of it may be another role"),
		refuses("MIME, unknown encoding", messageOf(partOf("Content-Transfer-Encoding: x-none\n", plain)), wouldGuess),
		writesAlone("MIME, octet-stream", messageOf("Content-Type: application/octet-stream\n\n"+plain), "the beginning says what it is"),
		writesAlone("MIME, unknown text type", messageOf("Content-Type: text/x-foo\n\n"+plain), "the beginning says what it is"),
		writesAlone("MIME, text/yaml", messageOf("Content-Type: text/yaml\n\n"+plain), "the beginning says what it is"),
		writesAlone("MIME, gzip as cloud-config", messageOf(partOf("Content-Transfer-Encoding: base64\n", b64(packed(plain)))), bothLayers),
		writesAlone("MIME, dead include beside it", messageOf("Content-Type: text/x-include-url\n\n#include\nfile:///nowhere\n", partOf("", plain)), "an include that cannot be fetched ends cloud-init's whole run"),
	}
}

func indexCases() []comparison {
	masters := "write_files: [{path: /etc/sysconfig/kubernetes-masters}]\n"
	minions := "write_files: [{path: /etc/sysconfig/kubernetes-minions}]\n"
	two := messageOf(partOf("Launch-Index: 1\n", masters), partOf("Launch-Index: 0\n", minions))
	keys := messageOf(partOf("", "launch-index: 1\n"+masters), partOf("", "launch-index: 0\n"+minions))
	of := func(name, data string, index int, roles string) comparison {
		return comparison{name: "launch index: " + name, data: data, index: index, want: same, roles: roles}
	}
	unknown := of("of no cloud", two, -1, "")
	unknown.want, unknown.why = refused, "cloud-init takes all parts then, and the machine has roles that are meant for others"
	number := of("no number", messageOf(partOf("Launch-Index: one\n", masters), partOf("", minions)), 0, "")
	number.want, number.why = refused, leavesOutAll
	text := of("no number as a key", "#cloud-config\nlaunch-index: one\n"+minions, 0, "")
	text.want, text.why = refused, "cloud-init takes the part for all instances then"
	return []comparison{
		of("header, first", two, 0, "minions"),
		of("header, second", two, 1, "masters"),
		of("header, neither", two, 2, ""),
		of("key, first", keys, 0, "minions"),
		of("key, second", keys, 1, "masters"),
		of("key without MIME", "#cloud-config\nlaunch-index: 1\n"+minions, 1, "minions"),
		of("key without MIME, another's", "#cloud-config\nlaunch-index: 1\n"+minions, 0, ""),
		of("key as text", "#cloud-config\nlaunch-index: '1'\n"+minions, 1, "minions"),
		of("header before key", messageOf(partOf("Launch-Index: 1\n", "launch-index: 0\n"+masters), partOf("", minions)), 0, "minions"),
		of("for all beside one", messageOf(partOf("", minions), partOf("Launch-Index: 1\n", masters)), 0, "minions"),
		of("of a gzip part", messageOf("Launch-Index: 1\nContent-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n"+b64(packed("#cloud-config\n"+masters)), partOf("", minions)), 0, "minions"),
		of("of a container", messageOf("Launch-Index: 1\nContent-Type: multipart/mixed; boundary=c\n\n--c\n"+partOf("", minions)+"--c--\n"), 0, "minions"),
		of("with blanks", messageOf(partOf("Launch-Index:  1 \n", masters), partOf("", minions)), 0, "minions"),
		of("of no cloud, and none is asked for", messageOf(partOf("", minions)), -1, "minions"),
		unknown, number, text,
	}
}

// mergeCases are all merge types of cloud-init, alone and together, over two lists of which the second is longer and shares an
// entry with the first; and their spellings.
func mergeCases() []comparison {
	first := "write_files:\n" + minionsEntry + "- {path: /etc/x, content: one, permissions: '0600'}\n"
	second := "write_files:\n- {path: /etc/sysconfig/kubernetes-minions, content: 'B=2', owner: 'root:adm'}\n- {path: /etc/x, content: two}\n- {path: /etc/y, content: three}\n"
	var all []comparison
	for _, dict := range []string{"", "replace", "no_replace", "recurse_array", "recurse_list", "recurse_array,recurse_str", "replace,recurse_array", "no_replace,recurse_list", "allow_delete"} {
		for _, list := range []string{"", "append", "prepend", "replace", "no_replace", "recurse_dict", "replace,recurse_dict", "append,recurse_dict", "no_replace,recurse_dict", "append,prepend"} {
			for _, str := range []string{"", "append", "replace"} {
				if str != "" && !strings.Contains(list, "recurse_dict") {
					continue // no text is reached
				}
				how := fmt.Sprintf("dict(%s)+list(%s)+str(%s)", dict, list, str)
				c := like("merge "+how, messageOf(partOf("", first), partOf("", "merge_how: "+how+"\n"+second)))
				if strings.Contains(dict, "recurse_str") && str == "append" && (list == "recurse_dict" || list == "replace,recurse_dict") {
					c.want, c.roles, c.why = refused, "", "the paths are joined too, and a role file would be a directory"
				}
				all = append(all, c)
			}
		}
	}
	how := func(name, header, key string) {
		all = append(all, like("merge: "+name, messageOf(partOf("", first), partOf(header, key+second))))
	}
	how("default", "", "")
	how("other order", "", "merge_how: str()+list(append)+dict(recurse_array)\n")
	how("cloud-init's own default", "", "merge_how: 'dict(replace)+list()+str()'\n")
	how("cloud-init's mergers' default", "", "merge_how: list()+dict()+str()\n")
	how("capitals, blanks, dashes", "", "merge_how: ' List( Append ) + DICT(recurse-array) '\n")
	how("merge_type", "", "merge_type: list(append)+dict(recurse_array)\n")
	how("merge_how before merge_type", "", "merge_type: dict(no_replace)\nmerge_how: list(append)+dict(recurse_array)\n")
	how("null and merge_type", "", "merge_type: list(append)+dict(recurse_array)\nmerge_how: null\n")
	how("empty", "", "merge_how: ''\n")
	how("header", "Merge-Type: list(append)+dict(recurse_array)\n", "")
	how("header of another name", "X-Merge-Type: list(prepend)+dict(recurse_array)\n", "")
	how("both headers", "X-Merge-Type: list(prepend)+dict(recurse_array)\nMerge-Type: list(append)+dict(recurse_array)\n", "")
	how("header for what the key leaves out", "Merge-Type: dict(recurse_array)+list(prepend)\n", "merge_how: list(append)\n")
	how("list of settings", "", "merge_how: [{name: list, settings: [append]}, {name: dict, settings: [recurse_array]}]\n")
	how("list of lists", "", "merge_how: [[list, append], [dict, recurse_array]]\n")
	how("a kind twice", "", "merge_how: list(append)+list(prepend)+dict(recurse_array)\n")
	how("no list", "", "merge_how: dict(recurse_array)\n")
	how("module's name", "", "merge_how: m_list(append)+m_dict(recurse_array)\n")
	all = append(all,
		like("merge: three parts", messageOf(partOf("", first), partOf("", "merge_how: list(append)+dict(recurse_array)\n"+"write_files: [{path: /etc/z}]\n"), partOf("", "merge_how: list(prepend)+dict(recurse_array)\n"+second))),
		like("merge: into nothing", messageOf(partOf("", "hostname: x\n"), partOf("", "merge_how: dict()\n"+first))),
		like("merge: type of the first part", messageOf(partOf("", "merge_how: dict(no_replace)\n"+first), partOf("", second))),
		like("merge: type of the only part", "#cloud-config\nmerge_how: dict(recurse_array)+list(append)\n"+first),
		like("merge: a key that is deleted", messageOf(partOf("", first), partOf("", "merge_how: dict(allow_delete,recurse_array)+list(recurse_dict)\nwrite_files: [{content: null}, {permissions: null}]\n"))),
		refuses("merge: unknown merger", messageOf(partOf("", first), partOf("", "merge_how: set(append)+dict(replace)\n"+second)), leavesOutAll),
		refuses("merge: unknown option", messageOf(partOf("", first), partOf("", "merge_how: list(appand)+dict(recurse_array)\n"+second)), "cloud-init passes over an option that it does not know"),
		refuses("merge: no form", messageOf(partOf("", first), partOf("", "merge_how: append\n"+second)), leavesOutAll),
		refuses("merge: no dict", messageOf(partOf("", first), partOf("", "merge_how: list(append)\n"+second)), leavesOutAll),
		refuses("merge: settings missing", messageOf(partOf("", first), partOf("", "merge_how: [{name: dict}]\n"+second)), leavesOutAll),
	)
	return all
}
