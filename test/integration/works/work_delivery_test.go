package works

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	broker "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// startMQTT serves a broker until the test ends, and returns the file with its configuration.
func startMQTT(t *testing.T) (configuration string) {
	t.Helper()
	server := broker.New(&broker.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		t.Fatal(err)
	}
	listener := listeners.NewTCP(listeners.Config{ID: "tcp", Address: "127.0.0.1:0"})
	if err := server.AddListener(listener); err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	configuration = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `
brokerHost: %s
topics:
  sourceEvents: sources/mwrsctrl/clusters/+/sourceevents
  agentEvents: sources/mwrsctrl/clusters/+/agentevents
  sourceBroadcast: sources/mwrsctrl/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
`, listener.Address()), 0o600); err != nil {
		t.Fatal(err)
	}
	return configuration
}

// eventAgent speaks as the agent of a cluster that gets works by MQTT.
type eventAgent struct {
	*mqtt.Client
	cluster  string
	specs    chan *cloudevents.Event
	sequence int
}

func startEventAgent(t *testing.T, configuration, cluster string) *eventAgent {
	t.Helper()
	config, err := mqtt.Load(configuration)
	if err != nil {
		t.Fatal(err)
	}
	agent := &eventAgent{cluster: cluster, specs: make(chan *cloudevents.Event, 1000)}
	subscribed := make(chan struct{}, 1)
	agent.Client, err = mqtt.Connect(t.Context(), mqtt.Options{Config: config, ClientID: cluster + "-client",
		Routes: config.Topics.ForAgent(cluster),
		Receive: func(_ context.Context, _ string, event *cloudevents.Event) {
			if parsed, err := cloudevents.ParseType(event.Type); err == nil && parsed.SubResource == cloudevents.Spec {
				agent.specs <- event
			}
		},
		Subscribed: func(context.Context) { subscribed <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-subscribed:
	case <-time.After(time.Minute):
		t.Fatal("the broker takes no subscription")
	}
	return agent
}

// await returns the next spec for which the condition holds.
func (a *eventAgent) await(t *testing.T, what string, holds func(*cloudevents.Event, *workv1.ManifestWork) bool) *workv1.ManifestWork {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case event := <-a.specs:
			work, err := manifestbundle.DecodeSpec(event)
			if err != nil {
				t.Fatal(err)
			}
			if holds(event, work) {
				return work
			}
		case <-deadline:
			t.Fatalf("%s: the agent is not told", what)
		}
	}
}

// report sends a status of the work, with this condition.
func (a *eventAgent) report(t *testing.T, work *workv1.ManifestWork, condition string) {
	t.Helper()
	work = work.DeepCopy()
	work.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now(),
		ObservedGeneration: work.Generation}}
	a.sequence++
	event, err := manifestbundle.EncodeStatus(a.cluster+"-client", cloudevents.Update, work, strconv.Itoa(a.sequence), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	event.Extensions[cloudevents.ExtensionOriginalSource] = "mwrsctrl"
	if err := a.Send(t.Context(), event); err != nil {
		t.Fatal(err)
	}
}

// CM-13, MR-09, CE-03, CE-05, GR-09: with the driver mqtt, works reach agents by the broker, and what agents report of their own cluster is
// on the hub; a work waits for its removal from the cluster; an agent that was away is told what is new and what has gone.
func TestWorksByMQTT(t *testing.T) {
	t.Parallel()
	configuration := startMQTT(t)
	hub := env.StartHub(t, "work", "--work-driver=mqtt", "--work-driver-config="+configuration)
	c := hub.Client(t)
	for _, name := range []string{"c1", "c2"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	agent, other := startEventAgent(t, configuration, "c1"), startEventAgent(t, configuration, "c2")

	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "web"}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web"},"data":{"a":"1"}}`)}}}
	if err := c.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	delivered := agent.await(t, "a work is created", func(_ *cloudevents.Event, got *workv1.ManifestWork) bool { return got.Name == "web" })
	if delivered.UID != work.UID || delivered.Generation != work.Generation || len(delivered.Spec.Workload.Manifests) != 1 {
		t.Errorf("the agent is told %+v, want %+v", delivered, work)
	}

	// Another cluster does not speak for this one, whatever it writes into its events.
	other.report(t, delivered, "Stolen")
	agent.report(t, delivered, fleet.ConditionApplied)
	work = awaitWork(t, c, work, func(work *workv1.ManifestWork) error {
		switch {
		case !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied):
			return fmt.Errorf("conditions: %v", work.Status.Conditions)
		case !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup):
			return errors.New("there is no finalizer")
		}
		return nil
	})
	if meta.FindStatusCondition(work.Status.Conditions, "Stolen") != nil {
		t.Error("another cluster has reported on the work")
	}

	changed := work.DeepCopy()
	changed.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	if err := c.Patch(t.Context(), changed, client.MergeFrom(work)); err != nil {
		t.Fatal(err)
	}
	// A status of the generation before says nothing of this one.
	agent.report(t, delivered, "Stale")
	newer := agent.await(t, "a work is changed", func(_ *cloudevents.Event, got *workv1.ManifestWork) bool {
		return got.Generation > delivered.Generation
	})
	agent.report(t, newer, fleet.ConditionAvailable)
	work = awaitWork(t, c, work, func(work *workv1.ManifestWork) error {
		if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionAvailable) {
			return fmt.Errorf("conditions: %v", work.Status.Conditions)
		}
		return nil
	})
	if meta.FindStatusCondition(work.Status.Conditions, "Stale") != nil {
		t.Error("a status of an older generation is on the hub")
	}

	agent.sync(t, cloudevents.ResourceVersion{ResourceID: "unknown", ResourceVersion: 3})
	agent.await(t, "what it has not", func(event *cloudevents.Event, got *workv1.ManifestWork) bool {
		return got.UID == work.UID && eventAction(t, event) == cloudevents.ResyncResponse
	})
	agent.await(t, "what has gone", func(event *cloudevents.Event, got *workv1.ManifestWork) bool {
		return got.UID == "unknown" && eventAction(t, event) == cloudevents.Delete
	})

	if err := c.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	deleted := agent.await(t, "a work is deleted", func(_ *cloudevents.Event, got *workv1.ManifestWork) bool {
		return got.UID == work.UID && got.DeletionTimestamp != nil
	})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
		t.Errorf("the work does not wait for its agent: %v", err)
	}
	agent.report(t, deleted, manifestbundle.ConditionDeleted)
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(work), work); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the work is there, or cannot be read: %w", err)
		}
		return nil
	})
	agent.await(t, "a work is gone", func(event *cloudevents.Event, got *workv1.ManifestWork) bool {
		return got.UID == work.UID && eventAction(t, event) == cloudevents.Delete
	})
}

// sync asks for what the agent does not have.
func (a *eventAgent) sync(t *testing.T, has ...cloudevents.ResourceVersion) {
	t.Helper()
	request := cloudevents.New(a.cluster+"-client", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Spec,
		Action: cloudevents.Resync}, time.Now())
	request.Extensions[cloudevents.ExtensionClusterName] = a.cluster
	data, err := json.Marshal(cloudevents.ResourceVersions{Versions: has})
	if err != nil {
		t.Fatal(err)
	}
	request.Data = data
	if err := a.Send(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

func eventAction(t *testing.T, event *cloudevents.Event) cloudevents.Action {
	t.Helper()
	parsed, err := cloudevents.ParseType(event.Type)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Action
}

// WK-38, CE-08, CE-13: an agent with the driver mqtt applies works of the hub without its API, reports on them, goes on after the broker
// was away, and removes what it has applied.
func TestAgentByMQTT(t *testing.T) {
	t.Parallel()
	configuration := startMQTT(t)
	hub := env.StartHub(t, "", "--work-driver=mqtt", "--work-driver-config="+configuration)
	c, cluster := hub.Client(t), "by-mqtt"
	registration := env.NewRegistrationAgent(t, hub, framework.Managed, cluster)
	if err := registration.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, cluster)
	env.AwaitAvailable(t, c, cluster)
	worker := env.NewWorkAgent(t, framework.Managed, registration.HubDir, "--workload-source-driver=mqtt",
		"--workload-source-config="+configuration)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "web"}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"by-mqtt"},"data":{"a":"1"}}`)}}}
	if err := c.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	work = awaitWork(t, c, work, reportsApplied)
	there := framework.Managed.Client(t)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-mqtt"}}
	if err := there.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}

	// What is changed while the agent is away, it is told when it comes back.
	if err := worker.Stop(); err != nil {
		t.Fatal(err)
	}
	changed := work.DeepCopy()
	changed.Spec.Workload.Manifests[0].Raw = []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"by-mqtt"},"data":{"a":"2"}}`)
	if err := c.Patch(t.Context(), changed, client.MergeFrom(work)); err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	work = awaitWork(t, c, changed, func(work *workv1.ManifestWork) error {
		if condition := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied); condition == nil ||
			condition.ObservedGeneration != changed.Generation {
			return fmt.Errorf("condition Applied: %+v", condition)
		}
		return nil
	})
	if err := there.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil || config.Data["a"] != "2" {
		t.Errorf("on the cluster there is %v, %v", config.Data, err)
	}

	if err := c.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		for _, o := range []struct {
			client client.Client
			object client.Object
		}{{there, config}, {c, work}} {
			if err := o.client.Get(ctx, client.ObjectKeyFromObject(o.object), o.object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is there, or cannot be read: %w", o.object, err)
			}
		}
		return nil
	})
}

func reportsApplied(work *workv1.ManifestWork) error {
	if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) {
		return fmt.Errorf("conditions: %v", work.Status.Conditions)
	}
	return nil
}
