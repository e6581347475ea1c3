package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
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

// O14: an AppliedManifestWork says who sent its work, as far as that is known: where works do not name their sources, anybody may have
// written the annotation.
func TestSourceIsRecorded(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	for _, test := range []struct {
		named        bool
		source, want string
	}{{true, "", ""}, {true, "b", "b"}, {false, "b", ""}} {
		r.NamesSources, r.work.Annotations = test.named, map[string]string{fleet.AnnotationWorkSource: test.source}
		if recorded := r.newApplied(r.work, "").Annotations[fleet.AnnotationWorkSource]; recorded != test.want {
			t.Errorf("%+v: recorded %q", test, recorded)
		}
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

// An object that a manifest names by another group than before is the same one: it is not deleted, whether the manifest could be applied,
// or it is not known which object it names.
func TestInventoryOfObjectNamedOtherwise(t *testing.T) {
	t.Parallel()
	recordOf := func(group, resource, name, uid string) workv1.AppliedManifestResourceMeta {
		return workv1.AppliedManifestResourceMeta{Version: "v1", UID: uid,
			ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: resource, Name: name}}
	}
	resultOf := func(uid types.UID, owned bool, presence conditions.Presence, err error) manifestResult {
		return manifestResult{resolved: true, owned: owned, uid: uid, presence: presence, err: err,
			mapping:  &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}},
			identity: manifest.Identity{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Name: "shop"}}
	}
	refused := errors.New("refused")
	found := func(uid types.UID) manifestResult {
		o := resultOf("", true, conditions.Present, refused)
		o.found = uid
		return o
	}
	project, namespace := recordOf("project.openshift.io", "projects", "shop", "1"), recordOf("", "namespaces", "shop", "1")
	type records = []workv1.AppliedManifestResourceMeta
	for name, test := range map[string]struct {
		before          records
		result          manifestResult
		owned, obsolete records
	}{
		"applied":              {records{project}, resultOf("1", true, conditions.Present, nil), records{namespace}, nil},
		"applied, not owned":   {records{project}, resultOf("1", false, conditions.Present, nil), nil, nil},
		"failed":               {records{project}, resultOf("1", true, conditions.Present, refused), records{namespace, project}, nil},
		"failed, not known":    {records{project}, resultOf("", true, conditions.Present, refused), records{project}, nil},
		"failed, nothing read": {records{project}, resultOf("", true, conditions.Unknown, refused), records{project}, nil},
		"failed, not there":    {records{project}, resultOf("", true, conditions.Absent, refused), nil, records{project}},
		"failed, found":        {records{project}, found("1"), records{project}, nil},
		"another object of the name, failed, found": {records{recordOf("apps", "deployments", "shop", "1")}, found("2"), nil,
			records{recordOf("apps", "deployments", "shop", "1")}},
		"applied after it had failed": {records{namespace, project}, resultOf("1", true, conditions.Present, nil),
			records{namespace}, nil},
		"another object": {records{project}, resultOf("2", true, conditions.Present, nil),
			records{recordOf("", "namespaces", "shop", "2")}, records{project}},
		"another object, failed, known by its record": {records{recordOf("", "namespaces", "shop", "2"), project},
			resultOf("", true, conditions.Present, refused), records{recordOf("", "namespaces", "shop", "2")}, records{project}},
		"another name": {records{recordOf("project.openshift.io", "projects", "other", "3")},
			resultOf("", true, conditions.Present, refused), nil, records{recordOf("project.openshift.io", "projects", "other", "3")}},
		"a record without a UID": {records{recordOf("project.openshift.io", "projects", "shop", "")},
			resultOf("", true, conditions.Present, nil), nil, records{recordOf("project.openshift.io", "projects", "shop", "")}},
	} {
		owned, obsolete := inventory(test.before, []manifestResult{test.result})
		if diff := cmp.Diff([]records{test.owned, test.obsolete}, []records{owned, obsolete}); diff != "" {
			t.Errorf("%s: owned and obsolete (-want +got):\n%s", name, diff)
		}
	}
}

// It is known which object a manifest is about that fails before the object is read.
func TestLookup(t *testing.T) {
	t.Parallel()
	d := newDisputed(t, deploys("a", 2, ""))
	d.pass(t)
	made := d.outcome("a")
	o := manifestResult{mapping: made.mapping, identity: made.identity}
	d.lookup(t.Context(), &o, nil)
	if o.presence != conditions.Present || o.found == "" || o.found != d.live.GetUID() {
		t.Errorf("presence %v, found %q, want %q", o.presence, o.found, d.live.GetUID())
	}
	remove(d)
	o = manifestResult{mapping: made.mapping, identity: made.identity}
	d.lookup(t.Context(), &o, made)
	if o.presence != conditions.Absent || o.found != "" {
		t.Errorf("presence %v, found %q of an object that is not there", o.presence, o.found)
	}
}
