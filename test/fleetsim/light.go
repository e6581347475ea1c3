package fleetsim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/bootstrap"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/heartbeat"
	"github.com/capstan-io/capstan/internal/agent/registration/hubca"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// light is an agent of which a machine holds ten thousand. To the hub it is what the real agent is: it registers with the code of that one,
// under an identity and over a connection of its own, and then has the same watches and makes the same requests for heartbeats, its status
// and works. It manages no cluster: a work is Applied and Available as soon as it comes, its objects are nowhere, and there is neither
// drift nor feedback, nor are there add-ons.
type light struct {
	bootstrap *bootstrap.Bootstrap
	name      string
}

// The pause after a failure doubles from the first to the last, as it does with the caches of the real agent.
const (
	firstPause = 800 * time.Millisecond
	lastPause  = 30 * time.Second
)

// The pause after a heartbeat that fails doubles from the first to the last, as it does with the real agent.
const (
	firstBeatPause = 100 * time.Millisecond
	lastBeatPause  = 10 * time.Second
)

// shortestWatch is how long a watch lasts at least, and it lasts twice that at most, as those of client-go.
const shortestWatch = 5 * time.Minute

// newLight returns the agent of a cluster that keeps its credential in a folder.
func newLight(name, dir, kubeconfig string) (*light, error) {
	store := &hubkubeconfig.Store{Dir: dir}
	id, err := identity.Resolve(name, "", store.Dir)
	if err != nil {
		return nil, err
	}
	return &light{name: name, bootstrap: &bootstrap.Bootstrap{
		Kubeconfigs: []string{kubeconfig}, Identity: id, Store: store, Clock: clock.RealClock{},
		Record: func(string, string, string, string, ...any) {},
	}}, nil
}

// run runs the agent until the context ends.
func (l *light) run(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := l.bootstrap.Ensure(ctx)
		if err == nil {
			err = l.serve(ctx)
		}
		if !sleep(ctx, pause) {
			return nil
		}
		log.FromContext(ctx).Info("The agent connects to the hub again", "reason", err.Error())
	}
}

// session is the agent's work on a hub under one credential.
type session struct {
	name        string
	hub         client.WithWatch
	certificate metav1.Condition
	// period is that of heartbeats.
	period  time.Duration
	changed chan time.Duration
}

func (l *light) serve(ctx context.Context) error {
	credential, err := l.bootstrap.Store.Load()
	if err != nil {
		return err
	}
	certificate, err := clientcert.Condition(credential)
	if err != nil {
		return err
	}
	config, err := l.bootstrap.Store.Connect(ctx, l.name)
	if err != nil {
		return err
	}
	hub, err := hubclient.New(config)
	if err != nil {
		return err
	}
	authority, err := hubca.New(config, l.bootstrap.Store, l.bootstrap.Registered(), clock.RealClock{})
	if err != nil {
		return err
	}
	s := &session{name: l.name, hub: hub, certificate: certificate, changed: make(chan time.Duration)}
	lease, err := s.awaitRights(ctx)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return authority.Start(ctx) })
	all.Go(func() error { return s.beat(ctx, lease) })
	own := fields.OneTermEqualSelector("metadata.name", s.name)
	all.Go(func() error {
		return s.follow(ctx, &clusterv1.ManagedClusterList{}, client.ListOptions{FieldSelector: own}, s.onCluster)
	})
	inNamespace := client.ListOptions{Namespace: s.name}
	all.Go(func() error { return s.follow(ctx, &workv1.ManifestWorkList{}, inNamespace, s.onWork) })
	all.Go(func() error { return s.follow(ctx, &addonv1beta1.ManagedClusterAddOnList{}, inNamespace, ignore) })
	return all.Wait()
}

func ignore(context.Context, client.Object) error { return nil }

// awaitRights makes the request by which the real agent finds out that the hub lets it work, and returns the Lease for the first heartbeat.
func (s *session) awaitRights(ctx context.Context) (*coordinationv1.Lease, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, lastPause) {
		lease, err := heartbeat.ReadLease(ctx, s.hub, s.name)
		if err == nil {
			return lease, nil
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// follow lists and watches as an informer does.
func (s *session) follow(ctx context.Context, list client.ObjectList, o client.ListOptions,
	handle func(context.Context, client.Object) error) error {
	version := ""
	for pause := firstPause; ; {
		seen, err := s.watch(ctx, list, o, version, handle)
		if version = seen; err == nil {
			pause = firstPause
			continue
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, lastPause)
	}
}

// watch lists, unless there is a version to go on from, and returns the version up to which changes have been seen; none, if all objects
// have to be listed again.
func (s *session) watch(ctx context.Context, list client.ObjectList, o client.ListOptions, version string,
	handle func(context.Context, client.Object) error) (seen string, err error) {
	if version == "" {
		if version, err = s.list(ctx, list, o, handle); err != nil {
			return "", err
		}
	}
	o.Raw = &metav1.ListOptions{
		AllowWatchBookmarks: true, ResourceVersion: version,
		TimeoutSeconds: ptr.To(int64((shortestWatch + rand.N(shortestWatch)).Seconds())),
	}
	w, err := s.hub.Watch(ctx, list, &o)
	if err != nil {
		return "", err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return "", apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			return "", fmt.Errorf("a watch has sent a %T", event.Object)
		}
		version = object.GetResourceVersion()
		if event.Type != watch.Added && event.Type != watch.Modified {
			continue
		}
		if err := handle(ctx, object); err != nil && !apierrors.IsConflict(err) { // after a conflict comes another event
			return "", err
		}
	}
	return version, ctx.Err()
}

func (s *session) list(ctx context.Context, list client.ObjectList, o client.ListOptions,
	handle func(context.Context, client.Object) error) (version string, err error) {
	o.Raw = &metav1.ListOptions{ResourceVersion: "0", Limit: 500}
	if err := s.hub.List(ctx, list, &o); err != nil {
		return "", err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("a list has a %T", o)
		}
		if err := handle(ctx, object); err != nil && !apierrors.IsConflict(err) {
			return err
		}
		return nil
	})
	return list.GetResourceVersion(), err
}

// onCluster writes the status as the real agent does, which has found out everything before its first write.
func (s *session) onCluster(ctx context.Context, o client.Object) error {
	cluster, ok := o.(*clusterv1.ManagedCluster)
	if !ok || !cluster.Spec.HubAcceptsClient || !cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	if period := time.Duration(cluster.Spec.LeaseDurationSeconds) * time.Second; period != s.period {
		s.period = period
		select {
		case s.changed <- period:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	before := cluster.DeepCopy()
	s.complete(cluster)
	if equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		return nil
	}
	// The answer of the hub is the next event, too.
	became := !meta.IsStatusConditionTrue(before.Status.Conditions, fleet.ConditionClusterAvailable)
	if err := s.hub.Status().Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	if became {
		return s.recordAvailable(ctx, cluster)
	}
	return nil
}

func (s *session) complete(cluster *clusterv1.ManagedCluster) {
	for _, cond := range []metav1.Condition{
		{Type: fleet.ConditionJoined, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterJoined, Message: "Managed cluster joined"},
		{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterAvailable,
			Message: "Managed cluster is available"},
		s.certificate,
	} {
		meta.SetStatusCondition(&cluster.Status.Conditions, cond)
	}
	all := corev1.ResourceList{}
	for name, each := range node("").Status.Capacity {
		sum := resource.Quantity{}
		for range nodes {
			sum.Add(each)
		}
		all[name] = sum
	}
	cluster.Status.Capacity, cluster.Status.Allocatable = all, all
	cluster.Status.Version.Kubernetes = gitVersion.GitVersion
	cluster.Status.ClusterClaims = claims(s.name)
}

func (s *session) recordAvailable(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	return s.hub.Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: s.name, GenerateName: s.name + "-"},
		EventTime:           metav1.NowMicro(),
		ReportingController: "registration-agent", ReportingInstance: "registration-agent-" + s.name,
		Action: "Probe", Reason: fleet.EventAvailable, Type: corev1.EventTypeNormal, Note: "The managed cluster is available",
		Regarding: corev1.ObjectReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster", Namespace: s.name, Name: s.name, UID: cluster.UID,
		},
	})
}

// onWork writes what the real agent does for a work whose objects are applied, or gone, at once.
func (s *session) onWork(ctx context.Context, o client.Object) error {
	work, ok := o.(*workv1.ManifestWork)
	if !ok {
		return nil
	}
	if !work.DeletionTimestamp.IsZero() {
		return patch.RemoveFinalizer(ctx, s.hub, work, fleet.FinalizerManifestWorkCleanup)
	}
	if err := patch.AddFinalizer(ctx, s.hub, work, fleet.FinalizerManifestWorkCleanup); err != nil {
		return err
	}
	if !conditions.Update(work, results(work), time.Now()) {
		return nil
	}
	return s.hub.Status().Update(ctx, work)
}

// results are those of a pass in which everything went well.
func results(work *workv1.ManifestWork) (all []conditions.Result) {
	for i := range work.Spec.Workload.Manifests {
		manifest := &metav1.PartialObjectMetadata{}
		_ = json.Unmarshal(work.Spec.Workload.Manifests[i].Raw, manifest) // admission has read it
		gvk := manifest.GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		all = append(all, conditions.Result{Presence: conditions.Present, Manifest: workv1.ManifestResourceMeta{
			Ordinal: int32(i), Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Resource: plural.Resource,
			Namespace: manifest.Namespace, Name: manifest.Name,
		}})
	}
	return all
}

// beat renews the lease as soon as the hub accepts the cluster, and then as often as the ManagedCluster says.
func (s *session) beat(ctx context.Context, lease *coordinationv1.Lease) error {
	period, due, pause := time.Duration(0), (<-chan time.Time)(nil), firstBeatPause
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case period = <-s.changed:
		case <-due:
		}
		if err := s.renew(ctx, lease); err != nil {
			lease = &coordinationv1.Lease{}
			due, pause = time.After(pause), min(2*pause, lastBeatPause)
			continue
		}
		pause = firstBeatPause
		due = time.After(period + rand.N(period/4))
	}
}

func (s *session) renew(ctx context.Context, lease *coordinationv1.Lease) error {
	if lease.ResourceVersion == "" {
		if err := s.hub.Get(ctx, client.ObjectKey{Namespace: s.name, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
			return err
		}
	}
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	return s.hub.Update(ctx, lease)
}

// sleep tells whether the context still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
