package apply

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// What a manifest fails for the lack of is known from the error of the API server, and from the kind.
func TestMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a namespace":                        {fmt.Errorf("create: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")), "shop"},
		"an object":                          {apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "shop"), ""},
		"another namespace of another group": {apierrors.NewNotFound(schema.GroupResource{Group: "example.com", Resource: "namespaces"}, "shop"), ""},
		"a refusal":                          {apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "shop", nil), ""},
		"no API server":                      {errors.New("broken"), ""},
	} {
		got := namespaceOf(test.err)
		if (got == nil) != (test.want == "") || got != nil && (got.Name != test.want || got.Resource != "namespaces") {
			t.Errorf("%s: %+v, want namespace %q", name, got, test.want)
		}
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "example.com", Version: "v1", Kind: "Widget"}: "widgets.example.com",
		{Group: "example.com", Version: "v1", Kind: "Policy"}: "policies.example.com",
	} {
		if got := definitionOf(kind); got.Name != want || got.Resource != "customresourcedefinitions" {
			t.Errorf("the definition of %s is %+v, want %s", kind, got, want)
		}
	}
}

// WK-20: what is missing is tracked as long as a manifest fails for the lack of it.
func TestMissingIsTracked(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracked := tracker.New(t.Context(), fake.NewSimpleMetadataClient(scheme))
	c := &Controller{Options: Options{Applied: &deletion.Cluster{Tracked: tracked}}}
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hash-work"}}
	failed := manifestResult{identity: manifest.Identity{Namespace: "shop", Name: "web"}, err: errors.New("no namespace"),
		missing: namespaceOf(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"))}
	(&applier{tracked: tracked}).awaitMissing(amw.Name, &failed)
	owners := func() []string { return tracked.Owners(namespaces.GroupResource(), failed.missing.NamespacedName) }
	c.untrack(&workResult{results: []manifestResult{failed}}, []manifestResult{failed}, amw)
	if got := owners(); len(got) != 1 || got[0] != amw.Name {
		t.Errorf("told of the namespace while it is missing: %v", got)
	}
	c.untrack(&workResult{results: []manifestResult{failed}}, []manifestResult{{}}, amw)
	if got := owners(); len(got) > 0 {
		t.Errorf("told of the namespace when it is there: %v", got)
	}
}
