package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// What a work names no more is not tracked any more, even if it never came to be; what it owns and what it names are.
func TestUntrack(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracked := tracker.New(t.Context(), fake.NewSimpleMetadataClient(scheme))
	c := &Controller{Options: Options{Applied: &deletion.Cluster{Tracked: tracked}}}
	outcomeOf := func(name string) manifestResult {
		o := manifestResult{resolved: true, mapping: &meta.RESTMapping{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Scope:    meta.RESTScopeNamespace}}
		o.identity = manifest.Identity{Namespace: "default", Name: name}
		return o
	}
	last := &workResult{results: []manifestResult{outcomeOf("named"), outcomeOf("owned"), outcomeOf("never-made")}}
	amw := &workv1.AppliedManifestWork{}
	amw.Name = "hash-work"
	amw.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{last.results[1].resource()}
	for i := range last.results {
		tracked.Track(amw.Name, last.results[i].object())
	}
	c.untrack(last, []manifestResult{outcomeOf("named")}, amw)
	for _, o := range last.results[:2] {
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			_, known := tracked.Revision(o.object())
			return known, nil
		})
		if err != nil {
			t.Errorf("%s is not tracked: %v", o.identity.Name, err)
		}
	}
	if _, known := tracked.Revision(last.results[2].object()); known {
		t.Error("what never came to be is still tracked")
	}
}

// A manifest of which the kind is not known now keeps what it may be about, with or without the namespace that it names. It keeps nothing
// else.
func TestInventoryOfUnknownKind(t *testing.T) {
	t.Parallel()
	manifestOf := func(namespace, name string) manifest.Identity {
		kind := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
		return manifest.Identity{GroupVersionKind: kind, Namespace: namespace, Name: name}
	}
	recordOf := func(group, namespace string) workv1.AppliedManifestResourceMeta {
		return workv1.AppliedManifestResourceMeta{Version: "v1", UID: "1",
			ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: "clusterroles", Namespace: namespace, Name: "viewer"}}
	}
	const rbac = "rbac.authorization.k8s.io"
	for name, test := range map[string]struct {
		manifest manifest.Identity
		record   workv1.AppliedManifestResourceMeta
		stays    bool
	}{
		"in the whole cluster":                     {manifestOf("", "viewer"), recordOf(rbac, ""), true},
		"in the whole cluster, with a namespace":   {manifestOf("release", "viewer"), recordOf(rbac, ""), true},
		"in its namespace":                         {manifestOf("release", "viewer"), recordOf(rbac, "release"), true},
		"a manifest that cannot be read":           {manifest.Identity{}, recordOf(rbac, "release"), true},
		"in another namespace":                     {manifestOf("release", "viewer"), recordOf(rbac, "other"), false},
		"with another name":                        {manifestOf("release", "editor"), recordOf(rbac, ""), false},
		"of another group":                         {manifestOf("release", "viewer"), recordOf("example.com", ""), false},
		"without a namespace, the record with one": {manifestOf("", "viewer"), recordOf(rbac, "release"), false},
	} {
		owned, obsolete := inventory([]workv1.AppliedManifestResourceMeta{test.record},
			[]manifestResult{{identity: test.manifest, err: errors.New("connection refused")}})
		if stays := len(owned) == 1 && len(obsolete) == 0; stays != test.stays {
			t.Errorf("%s: owned %v, obsolete %v", name, owned, obsolete)
		}
	}
}
