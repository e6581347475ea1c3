package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ocmworkv1 "open-cluster-management.io/api/work/v1"
	sdkmqtt "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/mqtt"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// hubSource is the source that a hub is.
const hubSource = "mwrsctrl"

func sdkMQTT(t *testing.T, config string) *sdkmqtt.MQTTOptions {
	t.Helper()
	loaded, err := sdkmqtt.BuildMQTTOptionsFromFlags(config)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// manifest is a ConfigMap with a value.
func manifest(name, value string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"value":%q}}`, name, value)}
}

func newWork(cluster, name, value string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Spec: workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: manifest(name, value)}}}}}
}

// set changes the value on the hub.
func set(t *testing.T, hub client.Client, work *workv1.ManifestWork, value string) {
	t.Helper()
	before := work.DeepCopy()
	work.Spec = newWork(work.Namespace, work.Name, value).Spec
	if err := hub.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// hasValue is nil if the work that the SDK's client has is of the value.
func hasValue(value string) func(*ocmworkv1.ManifestWork) error {
	return func(work *ocmworkv1.ManifestWork) error {
		if n := len(work.Spec.Workload.Manifests); n != 1 {
			return fmt.Errorf("%d manifests", n)
		}
		if raw := string(work.Spec.Workload.Manifests[0].Raw); !strings.Contains(raw, `"`+value+`"`) {
			return fmt.Errorf("want the value %s, have %s", value, raw)
		}
		return nil
	}
}

// awaitCondition waits until a condition of the work is true on the hub, for its generation.
func awaitCondition(t *testing.T, hub client.Client, work *workv1.ManifestWork, condition string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := hub.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
			return err
		}
		found := meta.FindStatusCondition(work.Status.Conditions, condition)
		if found == nil || found.Status != metav1.ConditionTrue || found.ObservedGeneration != work.Generation {
			return fmt.Errorf("generation %d: %+v", work.Generation, work.Status.Conditions)
		}
		return nil
	})
}

func awaitGone(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("%T %s is still there", o, o.GetName()))
		}
		return nil
	})
}

// CM-13 CE-03 CE-05 CE-07 CE-08 GR-09: an agent with the client of the SDK gets the works of a hub by MQTT, reports on them, goes on
// when the broker was away, and has their deletion wait for it. The broker refuses what another cluster writes in its name.
func TestSDKAgentByMQTT(t *testing.T) {
	t.Parallel()
	broker := startMosquitto(t, []string{hubSource}, []string{"c1", "c2"})
	hub := env.StartHub(t, "work", "--work-driver=mqtt", "--work-driver-config="+broker.config(t, hubSource, hubSource)).Client(t)
	work := newWork("c1", "web", "1")
	framework.Create(t, hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, work)
	agent := startSDKAgent(t, sdkMQTT(t, broker.config(t, "c1", hubSource)), "c1")
	agent.await(t, "web", hasValue("1"))
	agent.report(t, "web", fleet.ConditionApplied)
	awaitCondition(t, hub, work, fleet.ConditionApplied)
	expectRefusal(t, broker)

	set(t, hub, work, "2")
	agent.await(t, "web", hasValue("2"))
	broker.stop(t)
	set(t, hub, work, "3")
	broker.start(t)
	agent.await(t, "web", hasValue("3"))
	agent.report(t, "web", fleet.ConditionAvailable)
	awaitCondition(t, hub, work, fleet.ConditionAvailable)

	// An agent that has lost its memory is told of everything again.
	agent.stop()
	agent = startSDKAgent(t, sdkMQTT(t, broker.config(t, "c1", hubSource)), "c1")
	agent.await(t, "web", hasValue("3"))
	agent.report(t, "web", fleet.ConditionApplied)
	if err := hub.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	agent.cleanUp(t, "web")
	awaitGone(t, hub, work)
	agent.cleanUpAgain(t, "web")
}

// expectRefusal: with the certificate of another cluster, nobody speaks for this one.
func expectRefusal(t *testing.T, broker *mqttBroker) {
	t.Helper()
	config, err := mqtt.Load(broker.config(t, "c2", hubSource))
	if err != nil {
		t.Fatal(err)
	}
	subscribed := make(chan struct{}, 1)
	intruder, err := mqtt.Connect(t.Context(), mqtt.Options{Config: config, ClientID: "intruder", Routes: config.Topics.ForAgent("c1"),
		Receive: func(context.Context, string, *cloudevents.Event) {}, Subscribed: func(context.Context) { subscribed <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-subscribed:
	case <-time.After(env.WaitTimeout):
		t.Fatal("the broker takes no subscription")
	}
	event := cloudevents.New("intruder", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status,
		Action: cloudevents.Update}, time.Now())
	event.Extensions[cloudevents.ExtensionOriginalSource] = hubSource
	if err := intruder.Send(t.Context(), event); err == nil {
		t.Error("the broker takes what another cluster writes")
	}
}

// WK-38 CE-02 CE-05 CE-06 CE-08 O14: an agent applies the works of two sources by MQTT, a hub and a client of the SDK, reports to each
// on its own, and tells a source that has lost its memory how its works are.
func TestSDKSourceByMQTT(t *testing.T) {
	t.Parallel()
	const cluster = "c1"
	broker := startMosquitto(t, []string{hubSource, "sdk"}, []string{cluster})
	server := env.StartHub(t, "", "--work-driver=mqtt", "--work-driver-config="+broker.config(t, hubSource, hubSource))
	hub, managed := server.Client(t), env.StartSandbox(t)
	registration := env.NewRegistrationAgent(t, server, managed, cluster)
	if err := registration.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, hub, cluster)
	env.AwaitAvailable(t, hub, cluster)
	agent := env.NewWorkAgent(t, managed, registration.HubDir, "--workload-source-driver=mqtt",
		"--workload-source-config="+broker.config(t, cluster, "+"))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}

	config := sdkMQTT(t, broker.config(t, "sdk", "sdk"))
	source := startSDKSource(t, config, "sdk", cluster)
	ofHub := newWork(cluster, "of-hub", "1")
	framework.Create(t, hub, ofHub)
	// A client of the SDK that is asked for its works while it sends one answers that it has none.
	awaitCondition(t, hub, ofHub, fleet.ConditionApplied)
	ofSource := &ocmworkv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "of-source"}, Spec: ocmworkv1.ManifestWorkSpec{
		Workload: ocmworkv1.ManifestsTemplate{Manifests: []ocmworkv1.Manifest{{RawExtension: manifest("of-source", "1")}}}}}
	if _, err := source.ManifestWorks(cluster).Create(t.Context(), ofSource, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	known := source.await(t, "of-source", isTrue(fleet.ConditionApplied)).DeepCopy()
	awaitValue(t, managed, "of-hub", "1")
	awaitValue(t, managed, "of-source", "1")

	source.stop()
	known.Status = ocmworkv1.ManifestWorkStatus{}
	source = startSDKSource(t, config, "sdk", cluster, known)
	source.await(t, "of-source", isTrue(fleet.ConditionAvailable))
	source.patch(t, "of-source", func(work *ocmworkv1.ManifestWork) {
		work.Spec.Workload.Manifests = []ocmworkv1.Manifest{{RawExtension: manifest("of-source", "2")}}
	})
	awaitValue(t, managed, "of-source", "2")
	// The client of a source takes a work back that it deletes while reports on it come.
	source.await(t, "of-source", func(work *ocmworkv1.ManifestWork) error {
		for _, condition := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			found := meta.FindStatusCondition(work.Status.Conditions, condition)
			if found == nil || found.ObservedGeneration != 2 || len(work.Finalizers) == 0 {
				return fmt.Errorf("finalizers %v, conditions %+v", work.Finalizers, work.Status.Conditions)
			}
		}
		return nil
	})
	if err := source.ManifestWorks(cluster).Delete(t.Context(), "of-source", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	source.awaitGone(t, "of-source")
	awaitGone(t, managed.Client(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-source"}})
	awaitValue(t, managed, "of-hub", "1")
}

func isTrue(condition string) func(*ocmworkv1.ManifestWork) error {
	return func(work *ocmworkv1.ManifestWork) error {
		if !meta.IsStatusConditionTrue(work.Status.Conditions, condition) {
			return fmt.Errorf("conditions %+v", work.Status.Conditions)
		}
		return nil
	}
}

func awaitValue(t *testing.T, managed *env.Server, name, want string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		found := &corev1.ConfigMap{}
		if err := managed.Client(t).Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, found); err != nil {
			return err
		}
		if found.Data["value"] != want {
			return fmt.Errorf("ConfigMap %s has %v, want %s", name, found.Data, want)
		}
		return nil
	})
}
