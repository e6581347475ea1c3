// Package importer installs the agent in clusters to which the hub is given a kubeconfig: those that Cluster API has provisioned, and those
// of ManagedClusters that name a Secret.
//
// An import is only the start: from then on, the operator on the cluster keeps the agent. So the kubeconfig of a cluster is read until its
// import has succeeded, or its agent was installed otherwise, and not again, unless the token of the hub that the agent has got ends before
// it has joined: the next import brings another one.
package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/optionalkind"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	// workers is how many clusters are imported at once. One that does not answer keeps its worker busy for longestImport.
	workers = 10
	// longestImport is how long an attempt may take.
	longestImport = 2 * time.Minute
	// untilFound is the delay before a kubeconfig that is not there is read again: Secrets are not watched, because the hub may not.
	untilFound = time.Minute
	// longestMessage bounds what others have a part in: a server that is no API server answers with anything.
	longestMessage = 1024
)

// Options configure the controller.
type Options struct {
	// Renderers make the values of an installation, one after the other, each over those before it. They are some of
	// fleet.ImportRenderers.
	Renderers []string
	// AgentImage is the image of the agent that the renderer fleet.RendererAuto installs; empty means that of the version of the hub.
	AgentImage string
}

// Clients are those of the controller.
type Clients struct {
	// Client has the ManagedClusters of the hub, from a cache.
	client.Client
	// Live reads and creates on the hub without a cache.
	Live client.Client
	// Clusters returns where those of Cluster API are read, and an object to read one into; nil while the hub has not the kind.
	Clusters func() (client.Reader, *unstructured.Unstructured)
}

// Controller imports ManagedClusters.
type Controller struct {
	Options
	c        Clients
	recorder events.EventRecorder
	clock    clock.PassiveClock
	install  func(ctx context.Context, access *rest.Config, cluster string, values map[string]any) error
}

// New returns a Controller that works through the clients.
func New(c Clients, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{Options: o, c: c, recorder: recorder, clock: clock.RealClock{}, install: installAgent}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make the client of the importer: %w", err)
	}
	clusters, err := optionalkind.Add(mgr, optionalkind.Options{CRD: capiCRD, GroupKind: capiKind, Versions: capiVersions,
		Objects: cache.ByObject{Transform: onlyPhase}})
	if err != nil {
		return err
	}
	c := New(Clients{Client: mgr.GetClient(), Live: live, Clusters: clusters.Object}, mgr.GetEventRecorder("cluster-import-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-import").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or(
			predicates.Generation(), predicate.Predicate(predicate.AnnotationChangedPredicate{}), importRequested()))).
		WatchesRawSource(clusters.Events(handler.EnqueueRequestsFromMapFunc(c.ofCAPI), nil, phaseChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// phaseChanged leaves out the other updates of a cluster of Cluster API, so that they do not bring forward what is tried again.
func phaseChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*unstructured.Unstructured)
		is, isOK := e.ObjectNew.(*unstructured.Unstructured)
		return ok && isOK && phaseOf(was) != phaseOf(is)
	}}
}

// importRequested matches updates by which somebody requests another import: the last condition that keeps the hub from it is removed.
func importRequested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
		is, isOK := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok && isOK && !awaits(was) && awaits(is)
	}}
}

func imported(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionImportSucceeded)
}

// ofCAPI are the ManagedClusters that stand for a cluster of Cluster API.
func (c *Controller) ofCAPI(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	list := &clusterv1.ManagedClusterList{}
	if err := c.c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Find the ManagedClusters of a cluster of Cluster API", "cluster", client.ObjectKeyFromObject(o))
	}
	for i := range list.Items {
		key, _, err := capiClusterOf(&list.Items[i])
		if err == nil && key == client.ObjectKeyFromObject(o) && awaits(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// awaits reports whether the hub may install an agent in the cluster, and has not.
func awaits(cluster *clusterv1.ManagedCluster) bool { return mayImport(cluster) && !imported(cluster) }

// mayImport reports whether the hub may install an agent in the cluster. One that has joined has an agent.
func mayImport(cluster *clusterv1.ManagedCluster) bool {
	return cluster.DeletionTimestamp.IsZero() && cluster.Spec.HubAcceptsClient && !joined(cluster)
}

// untilRepeated is how long it takes until a cluster that the hub has imported is imported again, for another token of the hub; false if it
// is not, because its agent has joined, or has been given something else to join with. The condition has the time of the last import.
func (c *Controller) untilRepeated(cluster *clusterv1.ManagedCluster) (delay time.Duration, repeated bool) {
	if !mayImport(cluster) || !imported(cluster) || !slices.Contains(c.Renderers, fleet.RendererAuto) {
		return 0, false
	}
	last := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionImportSucceeded).LastTransitionTime
	return last.Add(tokenLifetime).Sub(c.clock.Now()), true
}

func joined(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined)
}

// Reconcile imports a cluster for which the hub has a kubeconfig, and says in a condition how that went.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.c.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if joined(cluster) && !imported(cluster) {
		return ctrl.Result{}, c.withdraw(ctx, cluster)
	}
	delay, repeated := c.untilRepeated(cluster)
	switch {
	case repeated && delay > 0:
		return ctrl.Result{RequeueAfter: delay}, nil
	case !repeated && !awaits(cluster):
		return ctrl.Result{}, nil
	}
	requested, err := c.importCluster(ctx, cluster)
	if !requested {
		return ctrl.Result{}, c.withdraw(ctx, cluster)
	}
	if known := (*failure)(nil); repeated && errors.As(err, &known) && known.waits {
		return ctrl.Result{RequeueAfter: tokenLifetime}, nil // what was installed stays; the kubeconfig may have been for one use
	}
	return c.report(ctx, cluster, err)
}

// importCluster installs the agent in the cluster. It returns false if nobody has requested that, and a failure if the condition is to say
// why it did not succeed.
func (c *Controller) importCluster(ctx context.Context, cluster *clusterv1.ManagedCluster) (requested bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestImport)
	defer cancel()
	access, err := c.access(ctx, cluster)
	if access == nil && err == nil {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	values, err := c.render(ctx, cluster.Name)
	if err != nil {
		return true, failed(fleet.ReasonConfigRendererFailed, err)
	}
	err = c.install(ctx, access, cluster.Name, values)
	if known := (*failure)(nil); err != nil && !errors.As(err, &known) {
		err = failed(fleet.ReasonImportFailed, err)
	}
	return true, err
}

// failure is why a cluster is not imported.
type failure struct {
	reason string
	err    error
	// waits says that it is nobody's fault, and tried again after untilFound.
	waits bool
}

func failed(reason string, err error) error { return &failure{reason: reason, err: err} }

// Error implements error.
func (f *failure) Error() string { return f.err.Error() }

// report writes the condition. A failure is an error of the reconcile, so that it is tried again, unless it waits. The time of a success is
// that of the import, also of one that is repeated.
func (c *Controller) report(ctx context.Context, cluster *clusterv1.ManagedCluster, cause error) (ctrl.Result, error) {
	condition := metav1.Condition{Type: fleet.ConditionImportSucceeded, Status: metav1.ConditionTrue, Reason: fleet.ReasonImportSucceed,
		Message: "The hub has installed the agent in the cluster", LastTransitionTime: metav1.NewTime(c.clock.Now())}
	failure := (*failure)(nil)
	if cause != nil {
		if !errors.As(cause, &failure) {
			return ctrl.Result{}, cause
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, failure.reason, brief(failure.err)
	}
	before := cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	if failure == nil {
		meta.FindStatusCondition(cluster.Status.Conditions, condition.Type).LastTransitionTime = condition.LastTransitionTime
	}
	changed, err := patch.Status(ctx, c.c, cluster, before)
	if err != nil {
		return ctrl.Result{}, err
	}
	if failure == nil {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventManagedClusterImported, "Import", "%s", condition.Message)
		delay, _ := c.untilRepeated(cluster)
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	if changed {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, fleet.EventManagedClusterImportFailed, "Import", "%s: %s", failure.reason,
			condition.Message)
	}
	if failure.waits {
		return ctrl.Result{RequeueAfter: untilFound}, nil
	}
	return ctrl.Result{}, fmt.Errorf("import cluster %s: %s: %s", cluster.Name, failure.reason, condition.Message)
}

// withdraw takes off the condition that an attempt has left, of which nothing is to come any more.
func (c *Controller) withdraw(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	before := cluster.DeepCopy()
	cluster.Status.Conditions = slices.DeleteFunc(cluster.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == fleet.ConditionImportSucceeded && condition.Status != metav1.ConditionTrue
	})
	_, err := patch.Status(ctx, c.c, cluster, before)
	return err
}

// brief is the first line of an error: the others say to users of the command line what to type.
func brief(err error) string {
	line, _, _ := strings.Cut(text.Stable(err.Error()), "\n")
	if len(line) > longestMessage {
		line = strings.ToValidUTF8(line[:longestMessage], "") + "…"
	}
	return line
}
