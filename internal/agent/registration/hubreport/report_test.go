package hubreport

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const namespace = "agent"

var (
	errRefused = errors.New("dial tcp 192.0.2.1:6443: connect: connection refused")
	errOther   = errors.New("dial tcp 192.0.2.1:6443: i/o timeout")
	start      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// KL-31: the report is there while the agent does not reach the hub, since the first failure, and is written only when it changes.
func TestReport(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	clk := clocktesting.NewFakeClock(start)
	r := New(client.CoreV1().ConfigMaps(namespace), clk)
	writes := func() (count int) {
		for _, action := range client.Actions() {
			if action.GetVerb() == "update" || action.GetVerb() == "create" {
				count++
			}
		}
		client.ClearActions()
		return count
	}
	is := func(step string, want map[string]string) {
		t.Helper()
		got, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), fleet.ConfigMapHubConnection, metav1.GetOptions{})
		if (want == nil) != apierrors.IsNotFound(err) || want != nil && !maps.Equal(got.Data, want) {
			t.Errorf("%s: the report is %v, %v; want %v", step, got, err, want)
		}
	}
	r.Attempted(t.Context(), nil)
	is("reached", nil)
	r.Attempted(t.Context(), errRefused)
	first := map[string]string{"since": "2026-11-21T12:00:00Z", "message": errRefused.Error()}
	is("refused", first)
	writes()
	clk.Step(30 * time.Second)
	r.Attempted(t.Context(), errRefused)
	r.Attempted(t.Context(), errOther)
	is("refused still", first)
	if count := writes(); count != 0 {
		t.Errorf("the report is written %d times and has not changed", count)
	}
	clk.Step(rewriteAfter)
	r.Attempted(t.Context(), errOther)
	is("another error", map[string]string{"since": "2026-11-21T12:00:00Z", "message": errOther.Error()})
	r.Attempted(t.Context(), apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "c1", errors.New("not accepted")))
	is("forbidden by a hub that is reached", nil)
	clk.Step(time.Hour)
	r.Attempted(t.Context(), apierrors.NewUnauthorized("unknown certificate"))
	is("unknown", map[string]string{"since": "2026-11-21T13:01:30Z", "message": "unknown certificate"})
	r.Attempted(t.Context(), nil)
	proxy := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "leases"}, "c1", "<html>", 0, true)
	r.Attempted(t.Context(), proxy)
	is("a proxy answers", map[string]string{"since": "2026-11-21T13:01:30Z", "message": proxy.Error()})
}

// KL-31: a report that an earlier process has left goes when the hub is reached.
func TestReportOfEarlierProcess(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	configMaps := client.CoreV1().ConfigMaps(namespace)
	New(configMaps, clocktesting.NewFakeClock(start)).Attempted(t.Context(), errRefused)
	New(configMaps, clocktesting.NewFakeClock(start)).Attempted(t.Context(), nil)
	if _, err := configMaps.Get(t.Context(), fleet.ConfigMapHubConnection, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the report is still there: %v", err)
	}
}

// KL-31: what could not be written is written with the next attempt; an agent that has no namespace, or no right, does not try again.
func TestReportThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err   error
		again bool
	}{
		"unavailable":  {apierrors.NewServiceUnavailable("starting"), true},
		"no namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace), false},
		"no right":     {apierrors.NewForbidden(resource, fleet.ConfigMapHubConnection, errors.New("no role")), false},
	} {
		client, tries := fake.NewClientset(), 0
		client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, test.err
		})
		client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, test.err
		})
		r := New(client.CoreV1().ConfigMaps(namespace), clocktesting.NewFakeClock(start))
		r.Attempted(t.Context(), errRefused)
		r.Attempted(t.Context(), errRefused)
		if (tries > 1) != test.again {
			t.Errorf("%s: the report is tried %d times", name, tries)
		}
	}
}

// KL-31: an agent without an operator reports nothing, and one that ends does not take that for a failure of the hub.
func TestNoReport(t *testing.T) {
	t.Parallel()
	var none *Report
	none.Attempted(t.Context(), errRefused)
	client := fake.NewClientset()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	New(client.CoreV1().ConfigMaps(namespace), clocktesting.NewFakeClock(start)).Attempted(ended, context.Canceled)
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("it did %v", actions)
	}
}
