package apply

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// WK-21: a message is never longer than a condition can hold, nor half a letter.
func TestLongErrors(t *testing.T) {
	t.Parallel()
	o := outcome{err: errors.New(strings.Repeat("ä", 40000))}
	outcomes := []outcome{o, o, o, o}
	for _, message := range []string{o.appliedCondition().Message, appliedCondition(&workv1.ManifestWork{}, outcomes).Message} {
		if len(message) > 4096 || !utf8.ValidString(message) || !strings.Contains(message, "ää ...") {
			t.Errorf("a message of %d bytes: %.200s", len(message), message)
		}
	}
}

// What a work names no more is not tracked any more, even if it never came to be; what it owns and what it names are.
func TestUntrack(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracked := tracker.New(t.Context(), fake.NewSimpleMetadataClient(scheme))
	c := &Controller{tracked: tracked}
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

// WK-14: what holds up a deletion is in the condition, with what to do about it, and no longer than a condition can hold.
func TestDeletingSaysWhy(t *testing.T) {
	t.Parallel()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "prod1", Name: "web"}}
	const usual = "What the work has applied is being deleted from the managed cluster"
	long := strings.Repeat("x", 2000)
	for want, delay := range map[string]*applied.Delay{
		usual: nil,
		usual + ". There is no progress, with 1 object left: services web/web has the finalizers a": {Left: 1,
			Reasons: []string{"services web/web has the finalizers a"}},
		usual + ". There is no progress, with 3 objects left: one; and 2 more. If the cluster runs no garbage collector, that has no end; to wait for no dependents, run: " +
			`kubectl -n prod1 patch manifestwork web --type=merge -p '{"spec":{"deleteOption":null}}'`: {Left: 3, Reasons: []string{"one"},
			Dependents: true},
	} {
		if got := deleting(w, delay); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	if got := deleting(w, &applied.Delay{Left: 9, Reasons: []string{long, long, long}, Dependents: true}); len(got) > 32768 ||
		!strings.Contains(got, "and 6 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
