package spec

import (
	"fmt"
	"path"
)

// podSecurityLevels are the Pod Security Standards, the strictest first.
var podSecurityLevels = []string{"restricted", defaultPodSecurity, "privileged"}

const (
	defaultPodSecurity = "baseline"
	// admissionDocument has the settings of the API server's admission plugins.
	admissionDocument = "/etc/kubernetes/admission.yaml"
	podSecurityPlugin = "PodSecurity"
)

// podSecurity is the image's document of admission plugins with the cluster's level: what is refused, and what is warned
// of. What the audit log notes stays as the image has it. There is no file where the level is the image's.
func (c *Complete) podSecurity() ([]File, error) {
	if c.admission == nil {
		return nil, nil
	}
	data, err := encodeDocument(admissionDocument, c.admission)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", admissionDocument, err)
	}
	return []File{{Path: admissionDocument, Content: data}}, nil
}

// podSecurity completes the level, and checks that the image's document can carry it.
func (f *completer) podSecurity() {
	level := orDefault(f, "podSecurity", f.in.PodSecurity, defaultPodSecurity, byHardtack)
	f.out.Cluster.PodSecurity = level
	document, err := f.image.document(admissionDocument)
	if err != nil {
		f.errorf("podSecurity", "reading the image's %s: %v", admissionDocument, err)
		return
	}
	defaults := podSecurityDefaults(document)
	if defaults == nil {
		f.errorf("podSecurity", "the image's %s does not configure %s", admissionDocument, podSecurityPlugin)
		return
	}
	if level == defaults["enforce"] {
		return
	}
	defaults["enforce"], defaults["warn"] = level, level
	f.out.admission = document
	for i, a := range f.in.FileAssets {
		if path.Clean(a.Path) == admissionDocument {
			f.hint(at("fileAssets", i)+".path", "leave podSecurity out, and give the level in the file", "%s is written by podSecurity: %s", admissionDocument, level)
		}
	}
}

// podSecurityDefaults is the part of the document that says how strict a namespace without labels is, or nil.
func podSecurityDefaults(document map[string]any) map[string]any {
	plugins, _ := document["plugins"].([]any)
	for _, p := range plugins {
		if plugin, _ := p.(map[string]any); plugin["name"] == podSecurityPlugin {
			configuration, _ := plugin["configuration"].(map[string]any)
			defaults, _ := configuration["defaults"].(map[string]any)
			return defaults
		}
	}
	return nil
}
