package inprocess_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
	"github.com/capstan-io/capstan/internal/admission/webhook"
)

// recorder keeps the warnings that an API server sends to the client.
type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

// remove deletes an object in process and by its webhook, both of which must say the same, and returns the warnings. What is refused
// is an error of the test.
func (s *server) remove(t *testing.T, old *unstructured.Unstructured) []string {
	t.Helper()
	kind := old.GroupVersionKind()
	request := admission.NewAttributesRecord(nil, old, kind, old.GetNamespace(), old.GetName(), resourceOf(kind), "", admission.Delete, nil,
		false, s.sender())
	var said recorder
	ctx := warning.WithWarningRecorder(t.Context(), &said)
	for _, plugin := range s.plugins(t) {
		if validating, ok := plugin.Plugin.(admission.ValidationInterface); ok && plugin.Plugin.Handles(admission.Delete) {
			checkStatus(t, validating.Validate(ctx, request, nil), 0, "")
		}
	}
	handlers, err := webhook.Handlers(s.api(t), s.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range webhookPaths[kind.Kind] {
		response := reviewDeletion(t, handlers[path], old, s.sender())
		if !response.Allowed || !slices.Equal(response.Warnings, []string(said)) {
			t.Errorf("the webhook says %v, %q, the plugin %q", response.Allowed, response.Warnings, said)
		}
	}
	return said
}

// WH-16: a set that is in use is deleted, as clients of Open Cluster Management expect, with warnings.
func TestDeletionOfSetsInUse(t *testing.T) {
	t.Parallel()
	set := func(more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta2, kind: ManagedClusterSet, metadata: {name: prod`+more+`}`)
	}
	const used = `}, status: {conditions: [{type: ClusterSetEmpty, status: "False", message: 2 ManagedClusters selected}]}`
	for _, test := range []struct {
		name     string
		set      *unstructured.Unstructured
		bindings string
		want     []string
	}{
		{name: "nobody", set: set("}"), bindings: `{"metadata":{"namespace":"a","name":"test"}}`},
		{name: "namespaces and clusters", set: set(used),
			bindings: `{"metadata":{"namespace":"b","name":"prod"}},{"metadata":{"namespace":"a","name":"prod"}}`,
			want:     []string{"prod is bound to namespaces a, b:", "prod has members (2 ManagedClusters selected):"}},
		{name: "being deleted already", set: set(`, deletionTimestamp: "2026-11-22T09:00:00Z"` + used),
			bindings: `{"metadata":{"namespace":"a","name":"prod"}}`},
		{name: "bindings cannot be read", set: set(used), bindings: `{`,
			want: []string{"prod has members", "prod may be bound to namespaces, which could not be read: "}},
		{name: "cannot be read", set: set(`}, spec: {clusterSelector: 7}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.bindings = test.bindings
			got := s.remove(t, test.set)
			if !slices.EqualFunc(got, test.want, strings.Contains) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// WH-16: a set whose selector cannot be read is stored, as with Open Cluster Management, with a warning.
func TestSetsAreNotRefused(t *testing.T) {
	t.Parallel()
	set := object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta2, kind: ManagedClusterSet, metadata: {name: prod},
		spec: {clusterSelector: {selectorType: LabelSelector, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}}}`)
	checkStatus(t, newServer().write(t, set, nil, ""), 0, "")
	handlers, err := webhook.Handlers(newServer().api(t), inprocess.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	_, response := review(t, handlers[webhookPaths["ManagedClusterSet"][0]], set, nil, "", sender)
	if len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], `"Like" is not a valid label selector operator`) {
		t.Errorf("got %q", response.Warnings)
	}
}
