package conditions

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-14: what holds up a deletion is in the condition, with what to do about it, and no longer than a condition can hold.
func TestDeletingSaysWhy(t *testing.T) {
	t.Parallel()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "prod1", Name: "web"}}
	const usual = "What the work has applied is being deleted from the managed cluster"
	long := strings.Repeat("x", 2000)
	for want, delay := range map[string]*Delay{
		usual: nil,
		usual + ". There is no progress, with 1 object left: services web/web has the finalizers a": {Left: 1,
			Reasons: []string{"services web/web has the finalizers a"}},
		usual + ". There is no progress, with 3 objects left: one; and 2 more. If the cluster runs no garbage collector, that has no end; to wait for no dependents, run: " +
			`kubectl -n prod1 patch manifestwork web --type=merge -p '{"spec":{"deleteOption":null}}'`: {Left: 3, Reasons: []string{"one"},
			Dependents: true},
	} {
		if got := deletingMessage(w, delay); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	if got := deletingMessage(w, &Delay{Left: 9, Reasons: []string{long, long, long}, Dependents: true}); len(got) > 32768 ||
		!strings.Contains(got, "and 6 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// WK-14: a namespace that waits for its content has no finalizers in its metadata; its conditions say what is in the way.
func TestContentOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		object, want string
	}{
		"a namespace": {`{"kind":"Namespace","status":{"conditions":[
			{"type":"NamespaceDeletionDiscoveryFailure","status":"False","message":"All resources successfully discovered"},
			{"type":"NamespaceContentRemaining","status":"True","message":"Some resources are remaining: configmaps. has 1 resource instances"},
			{"type":"NamespaceFinalizersRemaining","status":"True","message":"Some content has finalizers remaining: x in 1 resource instances"}]}}`,
			"Some resources are remaining: configmaps. has 1 resource instances; Some content has finalizers remaining: x in 1 resource instances"},
		"a namespace that cannot be emptied": {`{"kind":"Namespace","status":{"conditions":[
			{"type":"NamespaceDeletionDiscoveryFailure","status":"True","message":"Discovery failed"}]}}`, "Discovery failed"},
		"a definition": {`{"kind":"CustomResourceDefinition","status":{"conditions":[
			{"type":"Established","status":"True","message":"the initial names have been accepted"},
			{"type":"Terminating","status":"True","message":"CustomResource deletion is in progress"}]}}`, "CustomResource deletion is in progress"},
		"another kind": {`{"kind":"Pod","status":{"conditions":[{"type":"Terminating","status":"True","message":"x"}]}}`, ""},
		"no status":    {`{"kind":"Namespace"}`, ""},
		"nonsense":     {`{"kind":"Namespace","status":{"conditions":["x",{"type":1}]}}`, ""},
	} {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(test.object), &object.Object); err != nil {
			t.Fatal(err)
		}
		if got := ContentOf(object); got != test.want {
			t.Errorf("%s waits for %q, want %q", name, got, test.want)
		}
	}
	if got, want := DeletionBlockedBy(nil, "Discovery failed"), "waits for what is in it: Discovery failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
