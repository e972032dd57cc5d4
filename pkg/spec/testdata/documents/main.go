// Command documents prints the fields of Kubernetes's configuration documents, with their types, and
// the value that each has by upstream's own code where it is not given. It is built against the modules of
// one Kubernetes version, by the test that keeps pkg/spec/upstream true.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	proxyscheme "k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// document is one kind: types by path, where [] is any item of a list and * any key of a map.
type document struct {
	Fields   map[string]string `json:"fields"`
	Defaults any               `json:"defaults"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

func run() error {
	kubelet, _, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		return err
	}
	kinds := map[string]struct {
		scheme *runtime.Scheme
		object runtime.Object
	}{
		"kubelet":       {kubelet, &kubeletv1beta1.KubeletConfiguration{}},
		"kubeProxy":     {proxyscheme.Scheme, &proxyv1alpha1.KubeProxyConfiguration{}},
		"kubeScheduler": {schedulerscheme.Scheme, &schedulerv1.KubeSchedulerConfiguration{}},
	}
	out := map[string]document{}
	for name, k := range kinds {
		d := document{Fields: map[string]string{}}
		fields(d.Fields, "", reflect.TypeOf(k.object).Elem())
		k.scheme.Default(k.object)
		d.Defaults = k.object
		out[name] = d
	}
	enc := json.NewEncoder(os.Stdout)
	return enc.Encode(out)
}

// scalars are types that are written as one value although they are structs.
var scalars = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():      "duration",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "int or string",
	reflect.TypeFor[runtime.RawExtension](): "any",
}

// fields adds the fields of a type below path.
func fields(into map[string]string, path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := scalars[t]; ok {
		into[path] = name
		return
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		into[path] = "any" // written in a form of its own
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if path != "" {
			into[path] = "map"
		}
		for i := range t.NumField() {
			field(into, path, t.Field(i))
		}
	case reflect.Slice, reflect.Array:
		into[path] = "list"
		if t.Elem().Kind() == reflect.Uint8 {
			into[path] = "bytes"
			return
		}
		fields(into, path+"[]", t.Elem())
	case reflect.Map:
		into[path] = "map"
		fields(into, path+".*", t.Elem())
	default:
		into[path] = t.Kind().String()
	}
}

func field(into map[string]string, path string, f reflect.StructField) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported():
	case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
		below := map[string]string{}
		fields(below, path, f.Type)
		delete(below, path)
		maps.Copy(into, below)
	case name == "":
		fields(into, join(path, f.Name), f.Type)
	default:
		fields(into, join(path, name), f.Type)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
