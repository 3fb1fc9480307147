// The fields of the configuration kinds that winlab writes, by Kubernetes' own Go types: JSON on standard output.
// A map's keys are shown as ".*"; a type with a text form of its own (a duration, a quantity) has no fields.
package main

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"sort"
	"strings"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
)

var (
	ownJSON = reflect.TypeFor[json.Marshaler]()
	ownText = reflect.TypeFor[encoding.TextMarshaler]()
)

func walk(t reflect.Type, at string, found map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(ownJSON) || reflect.PointerTo(t).Implements(ownText) {
		return
	}
	if t.Kind() == reflect.Map {
		found[at+".*"] = true
		walk(t.Elem(), at+".*", found)
		return
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for _, field := range reflect.VisibleFields(t) {
		if len(field.Index) > 1 || !field.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && name == "" || strings.Contains(options, "inline"):
			walk(field.Type, at, found)
		default:
			path := strings.TrimPrefix(at+"."+name, ".")
			found[path] = true
			walk(field.Type, path, found)
		}
	}
}

func main() {
	kinds := map[string]any{
		"ClusterConfiguration":   kubeadm.ClusterConfiguration{},
		"InitConfiguration":      kubeadm.InitConfiguration{},
		"JoinConfiguration":      kubeadm.JoinConfiguration{},
		"KubeletConfiguration":   kubelet.KubeletConfiguration{},
		"KubeProxyConfiguration": kubeproxy.KubeProxyConfiguration{},
	}
	fields := map[string]string{}
	for kind, value := range kinds {
		found := map[string]bool{}
		walk(reflect.TypeOf(value), "", found)
		paths := []string{}
		for path := range found {
			paths = append(paths, path)
		}
		sort.Strings(paths)
		fields[kind] = strings.Join(paths, " ")
	}
	if err := json.NewEncoder(os.Stdout).Encode(fields); err != nil {
		panic(err)
	}
}
