package apply

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
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
	c := &Controller{Options: Options{Applied: &appliedmanifestwork.Cluster{Tracked: tracked}}}
	outcomeOf := func(name string) outcome {
		o := outcome{resolved: true, mapping: &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Scope: meta.RESTScopeNamespace}}
		o.identity = manifest.Identity{Namespace: "default", Name: name}
		return o
	}
	last := &pass{outcomes: []outcome{outcomeOf("named"), outcomeOf("owned"), outcomeOf("never-made")}}
	amw := &workv1.AppliedManifestWork{}
	amw.Name = "hash-work"
	amw.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{last.outcomes[1].resource()}
	for i := range last.outcomes {
		tracked.Track(amw.Name, last.outcomes[i].object())
	}
	c.untrack(last, []outcome{outcomeOf("named")}, amw)
	for _, o := range last.outcomes[:2] {
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			_, known := tracked.Revision(o.object())
			return known, nil
		})
		if err != nil {
			t.Errorf("%s is not tracked: %v", o.identity.Name, err)
		}
	}
	if _, known := tracked.Revision(last.outcomes[2].object()); known {
		t.Error("what never came to be is still tracked")
	}
}
