package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// recorded keeps what is sent, as ACTION UID.
type recorded struct {
	sent []string
	// tooLarge is the UID of a work that cannot be sent.
	tooLarge string
}

// Start implements Transport.
func (*recorded) Start(context.Context, Handlers) error { return nil }

// Send implements Transport.
func (r *recorded) Send(_ context.Context, event *cloudevents.Event) error {
	if id := event.Text(cloudevents.ExtensionResourceID); id != "" && id == r.tooLarge {
		return fmt.Errorf("send %s: %w", id, cloudevents.ErrTooLarge)
	}
	eventType, err := cloudevents.ParseType(event.Type)
	r.sent = append(r.sent, string(eventType.Action)+" "+event.Text(cloudevents.ExtensionResourceID))
	return err
}

// An agent that requests a resync gets the works that it does not know in their present generation, or has not reported on in that, and
// then what has gone. A work that the API itself has in an earlier generation than the agent knows is from a backup, and sets the agent
// back; one that the cache alone has so does not. One that is too large to be sent holds up no other.
func TestAnswer(t *testing.T) {
	t.Parallel()
	works := func(behind int64) (works []client.Object) {
		for name, generation := range map[string]int64{"a-same": 3, "b-large": 4, "b-newer": 4, "c-restored": 2, "d-new": 1, "f-unreported": 3,
			"g-behind": behind} {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: types.UID(name), Generation: generation}}
			if name != "f-unreported" {
				work.Status.Conditions = []metav1.Condition{{Type: "Applied", ObservedGeneration: generation}}
			}
			works = append(works, work)
		}
		return works
	}
	transport := &recorded{tooLarge: "b-large"}
	c := newController(t, transport, works(2)...)
	c.reader = newController(t, transport, works(3)...).client
	for _, known := range []string{"a-same", "b-newer", "c-restored", "e-gone", "f-unreported", "g-behind"} {
		c.resyncs["c1"] = cloudevents.ResourceVersions{Versions: append(c.resyncs["c1"].Versions,
			cloudevents.ResourceVersion{ResourceID: known, ResourceVersion: 3})}
	}
	if err := c.answer(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	want := []string{"resync_response b-newer", "resync_response c-restored", "resync_response d-new", "resync_response f-unreported",
		"delete_request e-gone"}
	if !slices.Equal(transport.sent, want) {
		t.Errorf("sent %q, want %q", transport.sent, want)
	}
}

// A status of another generation than the present one says nothing of that: a later one is from before a restore, unless the API has it,
// and the cache is behind.
func TestStatusesOfOtherGenerations(t *testing.T) {
	t.Parallel()
	of := func(generation int64) *workv1.ManifestWork {
		work := workOfC1()
		work.Generation = generation
		return work
	}
	for name, test := range map[string]struct {
		present, cached, reported int64
		want                      bool
	}{
		"the present one":                  {present: 3, cached: 3, reported: 3, want: true},
		"an earlier one":                   {present: 3, cached: 3, reported: 2},
		"one from before a restore":        {present: 3, cached: 3, reported: 4},
		"one that is not in the cache yet": {present: 4, cached: 3, reported: 4, want: true},
	} {
		c := newController(t, &recorded{}, of(test.present))
		reported := of(test.reported)
		reported.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue}}
		event, err := manifestbundle.EncodeStatus("agent", cloudevents.Update, reported, "1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cached := of(test.cached)
		if test.cached == test.present {
			if err := c.client.Get(t.Context(), workRequest.NamespacedName, cached); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.write(t.Context(), cached, event); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		work := &workv1.ManifestWork{}
		if err := c.client.Get(t.Context(), workRequest.NamespacedName, work); err != nil {
			t.Fatal(err)
		}
		if written := len(work.Status.Conditions) > 0; written != test.want {
			t.Errorf("%s: written: %t", name, written)
		}
	}
}

// Works are sent as the cache has them: a copy of all of a fleet takes as much memory as the cache.
func TestWorksAreNotCopied(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lists := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			if !ptr.Deref((&client.ListOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy, false) {
				t.Errorf("%T is copied", list)
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	c := New(api, api, Options{Transport: &recorded{}, Clock: clock.RealClock{}})
	c.connected(t.Context())
	if err := c.sendChanged(t.Context(), "c1", cloudevents.ResourceVersions{}); err != nil || lists != 2 {
		t.Errorf("%d lists, %v", lists, err)
	}
}

// What is remembered of each work of a fleet is small, whatever its annotations, and distinguishes them.
func TestVersionsAreSmall(t *testing.T) {
	t.Parallel()
	annotated := func(end string) *workv1.ManifestWork {
		return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", 200_000) + end}}}
	}
	one := versionOf(annotated("1"))
	if one == versionOf(annotated("2")) || one != versionOf(annotated("1")) {
		t.Error("versions are not told apart by annotations")
	}
	if text := fmt.Sprint(one); len(text) > 1000 {
		t.Errorf("a version is written in %d characters", len(text))
	}
}

// What an agent says through a broker is as bounded as on the API; what is left out is not tried again and again.
func TestStatusesAreBounded(t *testing.T) {
	t.Parallel()
	c := newController(t, &recorded{}, cluster(false), workOfC1())
	for _, test := range []struct {
		bytes int
		want  string
	}{{60 << 10, "Applied"}, {70 << 10, "Applied"}, {10, "Progressing"}} {
		condition := metav1.Condition{Type: test.want, Status: metav1.ConditionTrue, Message: strings.Repeat("m", test.bytes)}
		if test.bytes > 64<<10 {
			condition.Type = "TooLarge"
		}
		if err := c.keep(t.Context(), "c1", statusOf(t, condition)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reconcile(t.Context(), workRequest); err != nil {
			t.Errorf("%d bytes: %v", test.bytes, err)
		}
		work := &workv1.ManifestWork{}
		if err := c.client.Get(t.Context(), workRequest.NamespacedName, work); err != nil {
			t.Fatal(err)
		}
		if len(work.Status.Conditions) != 1 || work.Status.Conditions[0].Type != test.want || len(c.reported) > 0 {
			t.Errorf("%d bytes: %d conditions, %d statuses wait", test.bytes, len(work.Status.Conditions), len(c.reported))
		}
	}
}

// The broker goes on to serve the agent of a cluster that is cut off. The hub sends it nothing, also on request, and accepts nothing of it.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []bool{false, true} {
		transport := &recorded{}
		c := newController(t, transport, cluster(cutOff), workOfC1())
		if err := c.keep(t.Context(), "c1", statusOf(t, metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue})); err != nil {
			t.Fatal(err)
		}
		c.resyncs["c1"] = cloudevents.ResourceVersions{}
		for _, request := range []ctrl.Request{workRequest, {NamespacedName: types.NamespacedName{Namespace: "c1"}}} {
			result, err := c.Reconcile(t.Context(), request)
			if again := result.RequeueAfter > 0; err != nil || again != cutOff {
				t.Errorf("cut off: %t, %v is looked at again: %t, %v", cutOff, request, again, err)
			}
		}
		work := &workv1.ManifestWork{}
		if err := c.client.Get(t.Context(), workRequest.NamespacedName, work); err != nil {
			t.Fatal(err)
		}
		if believed := len(work.Status.Conditions) > 0; believed == cutOff || len(transport.sent) > 0 == cutOff {
			t.Errorf("cut off: %t, the status is taken: %t, sent %q", cutOff, believed, transport.sent)
		}
		if len(c.reported) > 0 || len(c.resyncs) > 0 {
			t.Errorf("cut off: %t, kept for when it is accepted again: %d statuses, %d requests", cutOff, len(c.reported), len(c.resyncs))
		}
	}
}

// MR-09: what an agent has said while its cluster was cut off, the broker has taken, so that the agent does not say it again by itself.
// When the cluster is accepted again, the hub asks: it sends the works again, to which an agent that has removed one answers so, and
// requests statuses. It asks once, and not if the agent has said nothing.
func TestAcceptedAgain(t *testing.T) {
	t.Parallel()
	ofCluster := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "c1"}}
	for name, test := range map[string]struct {
		says func(t *testing.T, c *Controller)
		key  ctrl.Request
		want []string
	}{
		"it has removed the work": {
			says: func(t *testing.T, c *Controller) {
				t.Helper()
				removed := metav1.Condition{Type: manifestbundle.ConditionDeleted, Status: metav1.ConditionTrue}
				if err := c.keep(t.Context(), "c1", statusOf(t, removed)); err != nil {
					t.Fatal(err)
				}
			},
			key: workRequest, want: []string{"resync_response 1", "resync_request "},
		},
		"it has asked for works": {
			says: func(_ *testing.T, c *Controller) { c.resyncs["c1"] = cloudevents.ResourceVersions{} },
			key:  ofCluster, want: []string{"resync_response 1", "resync_request "},
		},
		"nothing": {says: func(*testing.T, *Controller) {}, key: workRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deleting := workOfC1()
			deleting.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
			transport := &recorded{}
			c := newController(t, transport, cluster(false), deleting)
			reconcile := func(key ctrl.Request) {
				t.Helper()
				if _, err := c.Reconcile(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			accept := func(accepted bool) {
				t.Helper()
				now := &clusterv1.ManagedCluster{}
				if err := c.client.Get(t.Context(), client.ObjectKey{Name: "c1"}, now); err != nil {
					t.Fatal(err)
				}
				now.Labels, now.Spec = cluster(!accepted).Labels, cluster(!accepted).Spec
				if err := c.client.Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.client.Delete(t.Context(), workOfC1()); err != nil {
				t.Fatal(err)
			}
			reconcile(workRequest)
			if want := []string{"update_request 1"}; !slices.Equal(transport.sent, want) {
				t.Fatalf("sent %q, want %q", transport.sent, want)
			}
			transport.sent = nil
			accept(false)
			test.says(t, c)
			reconcile(test.key)
			if len(transport.sent) > 0 {
				t.Errorf("while it is cut off, it is sent %q", transport.sent)
			}
			accept(true)
			reconcile(test.key)
			reconcile(workRequest)
			if !slices.Equal(transport.sent, test.want) {
				t.Errorf("sent %q, want %q", transport.sent, test.want)
			}
		})
	}
}

func workOfC1() *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "1"}}
}

var workRequest = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "c1", Name: "w"}}

func newController(t *testing.T, transport Transport, objects ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{workv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&workv1.ManifestWork{}).Build()
	return New(c, c, Options{Transport: transport, Clock: clock.RealClock{}})
}

func cluster(cutOff bool) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	c.Spec.HubAcceptsClient = !cutOff
	if cutOff {
		c.Labels = map[string]string{"capstan.io/cut-off": "true"}
	}
	return c
}

// statusOf is what the agent of c1 reports of the work.
func statusOf(t *testing.T, condition metav1.Condition) *cloudevents.Event {
	t.Helper()
	work := workOfC1()
	work.Status.Conditions = []metav1.Condition{condition}
	event, err := manifestbundle.EncodeStatus("agent", cloudevents.Update, work, "1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return event
}
