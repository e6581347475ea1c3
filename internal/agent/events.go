package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubevents"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
	"github.com/capstan-io/capstan/internal/agent/work/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// namespaceTimeout is how long the cluster may take to say whether the agent's namespace is there.
const namespaceTimeout = 5 * time.Second

// podNameVariable is the environment variable with the name of the pod, which deployments of the agent set.
const podNameVariable = "POD_NAME"

// newRecorder returns what takes the agent's own events: they are about registration, which starts before the agent may write
// to the hub, so they go to the agent's namespace in the cluster that it runs in. An agent without such a namespace, a
// process outside of a cluster, only logs.
func (a *Agent) newRecorder(ctx context.Context) (clientcert.Recorder, error) {
	core, err := corev1client.NewForConfig(a.management)
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	// A cluster that does not answer must not hold up the agent.
	getCtx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	namespace, err := core.Namespaces().Get(getCtx, a.Namespace, metav1.GetOptions{})
	if err != nil {
		log.FromContext(ctx).V(1).Info("The agent's events are not recorded", "namespace", a.Namespace, "reason", err.Error())
		return func(string, string, string, string, ...any) {}, nil
	}
	transport, err := rest.HTTPClientFor(a.management)
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster, err := hubevents.Start(ctx, a.management, transport)
	if err != nil {
		return nil, err
	}
	recorder, regarding := broadcaster.NewRecorder(scheme.Scheme, fleet.AgentUserAgent), a.regarding(namespace)
	return func(eventType, reason, action, note string, args ...any) {
		recorder.Eventf(regarding, nil, eventType, reason, action, note, args...)
	}, nil
}

// newHubReport returns what takes the results of attempts to reach the hub, for the operator that has installed the agent. It is nil for a
// process that is no pod, or does not register.
func (a *Agent) newHubReport() (*hubreport.Report, error) {
	if !a.parts.Registration || os.Getenv(podNameVariable) == "" {
		return nil, nil
	}
	core, err := corev1client.NewForConfig(a.management)
	if err != nil {
		return nil, fmt.Errorf("make a client for the report on the hub: %w", err)
	}
	return hubreport.New(core.ConfigMaps(a.Namespace), a.clock), nil
}

// regarding is the object that the agent's events are about: its pod, or else its namespace.
func (a *Agent) regarding(namespace *corev1.Namespace) *corev1.ObjectReference {
	if pod := os.Getenv(podNameVariable); pod != "" {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: a.Namespace, Name: pod}
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: a.Namespace, Name: namespace.Name, UID: namespace.UID}
}

// The names under which the agent records events on the hub.
const (
	registrationRecorder = "registration-agent"
	namespaceRecorder    = "managed-namespace-controller"
	workRecorder         = "work-agent"
	// serviceAccountRecorder is as whom the agent of the add-on of the same name is known.
	serviceAccountRecorder = "managed-serviceaccount-agent"
)

// startHubEvents returns what makes recorders of events on the hub, in the namespace of the cluster.
func startHubEvents(ctx context.Context, hub cluster.Cluster) (events.EventBroadcaster, error) {
	return hubevents.Start(ctx, hub.GetConfig(), hub.GetHTTPClient())
}

// newWorkRecorder returns what takes the events about works.
func newWorkRecorder(recorder events.EventRecorder) apply.Recorder {
	return func(work *workv1.ManifestWork, eventType, reason, action, note string) {
		recorder.Eventf(work, nil, eventType, reason, action, "%s", note)
	}
}
