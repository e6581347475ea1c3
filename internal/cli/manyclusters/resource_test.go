package manyclusters

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CA-02: words mean what they mean to kubectl.
func TestFind(t *testing.T) {
	t.Parallel()
	resource := func(name, singular, kind string, short ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, SingularName: singular, Kind: kind, ShortNames: short, Verbs: metav1.Verbs{"list"}}
	}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			resource("pods", "pod", "Pod", "po"), resource("pods/status", "", "Pod"), resource("events", "event", "Event", "ev"),
			{Name: "bindings", SingularName: "binding", Kind: "Binding", Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "events.k8s.io/v1", APIResources: []metav1.APIResource{resource("events", "event", "Event", "ev")}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{resource("things", "", "Thing", "pod", "th")}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{resource("things", "", "Thing", "pod", "th")}},
	}
	for word, want := range map[string]string{
		"pods": "/v1 pods", "Pod": "/v1 pods", "po": "/v1 pods", "pods.v1": "/v1 pods",
		"ev": "/v1 events", "events.events.k8s.io": "events.k8s.io/v1 events", "events.events": "events.k8s.io/v1 events",
		"th": "example.com/v2 things", "thing": "example.com/v2 things", "things.v1.example.com": "example.com/v1 things",
		"bindings": "", "pods/status": "", "pods.apps": "", "thin": "", "": "", "things.exam": "",
	} {
		found, ok := find(lists, word, "list")
		got := found.Group + "/" + found.Version + " " + found.GroupVersionResource.Resource
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("%q is %q, want %q", word, got, want)
		}
	}
	if found, ok := find(lists, "bindings", ""); !ok || found.Kind != "Binding" {
		t.Errorf("without a verb, bindings are %v", found)
	}
}

// CA-02
func TestPath(t *testing.T) {
	t.Parallel()
	pods, _ := find([]*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list"}},
	}}}, "pod", "list")
	nodes := pods
	nodes.GroupVersionResource.Resource, nodes.Group, nodes.Namespaced = "nodes", "x.io", false
	for want, got := range map[string][]string{
		"/api/v1/namespaces/n/pods": pods.Path("n", ""), "/api/v1/pods": pods.Path("", ""),
		"/api/v1/namespaces/n/pods/p": pods.Path("n", "p"), "/apis/x.io/v1/nodes/p": nodes.Path("n", "p"),
	} {
		if strings.Join(got, "/") != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if pods.String() != "pod" || nodes.String() != "pod.x.io" {
		t.Errorf("%s, %s", pods, nodes)
	}
}
