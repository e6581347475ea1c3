package delivery

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// recorded keeps what is sent, as ACTION UID.
type recorded struct{ sent []string }

// Start implements Transport.
func (*recorded) Start(context.Context, Handlers) error { return nil }

// Send implements Transport.
func (r *recorded) Send(_ context.Context, event *cloudevents.Event) error {
	eventType, err := cloudevents.ParseType(event.Type)
	r.sent = append(r.sent, string(eventType.Action)+" "+event.Text(cloudevents.ExtensionResourceID))
	return err
}

// An agent that asks gets the works that it does not know in their present generation, also in an earlier one, as a restored backup has
// them, and then what has gone.
func TestAnswer(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for name, generation := range map[string]int64{"a-same": 3, "b-newer": 4, "c-restored": 2, "d-new": 1} {
		builder.WithObjects(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: types.UID(name),
			Generation: generation}})
	}
	transport := &recorded{}
	c := New(builder.Build(), Options{Transport: transport, Clock: clock.RealClock{}})
	for _, known := range []string{"a-same", "b-newer", "c-restored", "e-gone"} {
		c.resyncs["c1"] = cloudevents.ResourceVersions{Versions: append(c.resyncs["c1"].Versions,
			cloudevents.ResourceVersion{ResourceID: known, ResourceVersion: 3})}
	}
	if err := c.answer(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	want := []string{"resync_response b-newer", "resync_response c-restored", "resync_response d-new", "delete_request e-gone"}
	if !slices.Equal(transport.sent, want) {
		t.Errorf("sent %q, want %q", transport.sent, want)
	}
}
