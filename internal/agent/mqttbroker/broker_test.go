package mqttbroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func specOf(action cloudevents.Action, cluster, id string) *cloudevents.Event {
	event := cloudevents.New("s", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Spec, Action: action}, time.Now())
	event.Extensions[cloudevents.ExtensionClusterName] = cluster
	event.Extensions[cloudevents.ExtensionResourceID] = id
	return event
}

// unknownToSDK is what a source of the SDK answers about a work that it does not have.
func unknownToSDK(id string) *cloudevents.Event {
	event := specOf(cloudevents.ResyncResponse, "c1", id)
	event.Extensions[cloudevents.ExtensionDeletedAt] = time.Now()
	return event
}

// CE-08 O14: an agent takes events for its own cluster alone, and a source says of its own works alone that they are gone.
func TestWhoseEvents(t *testing.T) {
	t.Parallel()
	b := &Broker{cluster: "c1", sources: map[string]string{}}
	const one, two = "sources/one/clusters/c1/sourceevents", "sources/two/clusters/c1/sourceevents"
	for _, step := range []struct {
		name, topic string
		event       *cloudevents.Event
		want        bool
	}{
		{"a work", one, specOf(cloudevents.Create, "c1", "w"), true},
		{"a work of another cluster", one, specOf(cloudevents.Create, "c2", "x"), false},
		{"gone, says another source", two, specOf(cloudevents.Delete, "c1", "w"), false},
		{"unknown to another source, of the SDK", two, unknownToSDK("w"), false},
		{"gone, says its source", one, specOf(cloudevents.Delete, "c1", "w"), true},
		{"a work of the other source", two, specOf(cloudevents.Create, "c1", "v"), true},
		{"unknown to its source, of the SDK", two, unknownToSDK("v"), true},
		{"unknown to a source of the SDK, of which nobody knows", two, unknownToSDK("mark"), true},
		{"gone, of which nobody knows", two, specOf(cloudevents.Delete, "c1", "mark"), true},
		{"something else", one, cloudevents.New("s", cloudevents.Type{DataType: cloudevents.Leases, SubResource: cloudevents.Spec,
			Action: cloudevents.Update}, time.Now()), false},
		{"a request for statuses", "sources/one/sourcebroadcast", cloudevents.New("s", cloudevents.Type{DataType: cloudevents.ManifestBundles,
			SubResource: cloudevents.Status, Action: cloudevents.Resync}, time.Now()), true},
	} {
		if got := b.isFor(step.topic, step.event); got != step.want {
			t.Errorf("%s: taken: %t, want %t", step.name, got, step.want)
		}
	}
	if len(b.sources) > 0 {
		t.Errorf("remembered for ever: %v", b.sources)
	}
}

// WK-38: a source that says of a work that it is gone, while the work waits for its agent, is the one to which the agent reports when it
// has cleaned up.
func TestWhoseWorkIsCleanedUp(t *testing.T) {
	t.Parallel()
	const topic = "sources/one/clusters/c1/sourceevents"
	b := &Broker{cluster: "c1", sources: map[string]string{}}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "w",
		Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}}
	for _, action := range []cloudevents.Action{cloudevents.Create, cloudevents.Delete} {
		event, err := manifestbundle.EncodeSpec("one", action, work, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if !b.isFor(topic, event) || b.sources["w"] != "one" {
			t.Errorf("after %s, the work is from %q", action, b.sources["w"])
		}
	}
	for _, condition := range []string{"Applied", manifestbundle.ConditionDeleted} {
		work.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}}
		event, err := manifestbundle.EncodeStatus("c1", cloudevents.Update, work, "1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b.forget(event)
		if _, there := b.sources["w"]; there != (condition == "Applied") {
			t.Errorf("when it is reported to be %s, its source is known: %t", condition, there)
		}
	}
	event, err := manifestbundle.EncodeSpec("one", cloudevents.Delete, work, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if !b.isFor(topic, event) || b.sources["w"] != "one" {
		t.Errorf("asked again, the agent takes the work to be from %q", b.sources["w"])
	}
}

// CE-08: what a broker of MQTT does not carry is said to be so, and Events of Kubernetes are left out.
func TestWorksAlone(t *testing.T) {
	t.Parallel()
	b := &Broker{cluster: "c1"}
	publish := func(dataType cloudevents.DataType) error {
		return b.Publish(t.Context(), cloudevents.New("s", cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec,
			Action: cloudevents.Update}, time.Now()))
	}
	if err := publish(cloudevents.Leases); status.Code(err) != codes.Unimplemented {
		t.Errorf("a lease: %v", err)
	}
	if err := publish(cloudevents.Events); err != nil {
		t.Errorf("an Event: %v", err)
	}
	if _, err := b.Subscribe(t.Context(), "c1", cloudevents.ManagedClusters); status.Code(err) != codes.Unimplemented {
		t.Errorf("clusters: %v", err)
	}
	if _, err := b.Subscribe(t.Context(), "c2", cloudevents.ManifestBundles); status.Code(err) != codes.InvalidArgument {
		t.Errorf("works of another cluster: %v", err)
	}
}

// CE-07 O14: a subscription gets, with its source, what has come by its connection since the MQTT broker agreed to send it, also before
// there was a subscription: a source that sends a work at that moment does not send it again. What an earlier connection has brought is
// dropped, and so is what is too much, after which the agent requests everything again.
func TestWhatASubscriptionGets(t *testing.T) {
	t.Parallel()
	const topic = "sources/one/clusters/c1/sourceevents"
	first, lose := context.WithCancel(t.Context())
	b := &Broker{cluster: "c1", sources: map[string]string{}, changed: make(chan struct{})}
	receive := func(connection context.Context, ids ...string) {
		for _, id := range ids {
			b.receive(connection, topic, specOf(cloudevents.Create, "c1", id))
		}
	}
	subscribe := func() cloudevents.Subscription {
		t.Helper()
		s, err := b.Subscribe(t.Context(), "c1", cloudevents.ManifestBundles)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	expect := func(s cloudevents.Subscription, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if event, err := s.Receive(); err != nil || event.Text(cloudevents.ExtensionResourceID) != id ||
				event.Text(cloudevents.ExtensionOriginalSource) != "one" {
				t.Fatalf("got %v, %v; want %s", event, err, id)
			}
		}
	}

	receive(first, "before the MQTT broker's answer is known")
	b.track(first)
	receive(first, "before the subscription")
	s := subscribe()
	receive(first, "after it")
	expect(s, "before the MQTT broker's answer is known", "before the subscription", "after it")
	s.Close()
	receive(first, "between two")
	expect(subscribe(), "between two")

	receive(first, "lost with its connection")
	lose()
	second := context.WithValue(t.Context(), connection{}, "second")
	receive(second, "by the second")
	b.track(second)
	s = subscribe()
	expect(s, "by the second")

	for range mostWaiting + 1 {
		receive(second, "too much")
	}
	if _, err := s.Receive(); !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
	receive(second, "after that")
	expect(subscribe(), "after that")
}
