package works

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/apply"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// crash ends an agent at one of its writes: nothing that it asks for afterwards reaches a cluster.
type crash struct {
	// at is which write it is, counted from 1; 0 is never.
	at int64
	// done tells whether the write itself still happens, without the agent's being told.
	done   bool
	writes atomic.Int64
	dead   atomic.Bool
}

var errCrashed = errors.New("the agent has crashed")

func (c *crash) wrap(next http.RoundTripper) http.RoundTripper { return crashing{c, next} }

type crashing struct {
	*crash
	next http.RoundTripper
}

func (c crashing) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.dead.Load() {
		return nil, errCrashed
	}
	if r.Method == http.MethodGet || c.writes.Add(1) != c.at {
		return c.next.RoundTrip(r)
	}
	c.dead.Store(true)
	if c.done {
		if response, err := c.next.RoundTrip(r); err == nil {
			_ = response.Body.Close() // nobody reads it
		}
	}
	return nil, errCrashed
}

const crashHub = "crashhub" // stands for the hash of the hub, so that no other agent minds these works

// incarnation is an agent from one start to one crash. It has no caches that would outlive the crash, and no queue: the test
// calls it until all is well.
type incarnation struct {
	apply    *apply.Controller
	finalize *deletion.Finalizer
}

func incarnate(t *testing.T, ctx context.Context, cluster string, c *crash) incarnation { //nolint:revive // the context ends the incarnation, not the test
	t.Helper()
	wrapped := func(s *env.Server) *rest.Config {
		config, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		config.Wrap(c.wrap)
		return config
	}
	config := wrapped(framework.Managed)
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	executors, err := executor.New(config, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	onCluster := &deletion.Cluster{Objects: objects, Discovery: discovery.NewDiscoveryClientForConfigOrDie(config),
		Tracked: tracker.New(ctx, objects)}
	h, m := env.ClientFor(t, wrapped(framework.Hub)), env.ClientFor(t, config)
	observed := observe.New(dyn, onCluster.Tracked, observe.Options{MaxJSONRawLength: 1024, Clock: clock.RealClock{}})
	return incarnation{
		apply: apply.New(h, m, apply.Options{
			Objects: dyn, Applied: onCluster, Observer: observed,
			Namespace: cluster, HubHash: crashHub, AgentID: "crash", Workers: 1, Executors: executors,
			Record: func(*workv1.ManifestWork, string, string, string, string) {}, Clock: clock.RealClock{},
		}),
		finalize: deletion.NewFinalizer(m, deletion.Options{Applied: onCluster, Clock: clock.RealClock{}}),
	}
}

// pass has both controllers look at the work once. What goes wrong is seen by what is not as it should be.
func (i incarnation) pass(ctx context.Context, w *workv1.ManifestWork) error {
	_, applyErr := i.apply.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)})
	_, finalizeErr := i.finalize.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: crashHub + "-" + w.Name}})
	return errors.Join(applyErr, finalizeErr)
}

// objectsOf are the ConfigMaps that are there for a work, as name=value, and with a ! if the work owns them.
func objectsOf(ctx context.Context, c client.Client, namespace, work string) ([]string, error) {
	list := &corev1.ConfigMapList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"work": work}); err != nil {
		return nil, err
	}
	var found []string
	for _, cm := range list.Items {
		text := strings.TrimPrefix(cm.Name, work+"-") + "=" + cm.Data["key"]
		if len(cm.OwnerReferences) > 0 {
			text += "!"
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return found, nil
}

// deleted is a state of a work's spec in which there is none.
var deleted *workv1.ManifestWorkSpec

// The life of an agent, ended at each of its writes, before and after the write, in each step of a work's life, and begun again
// after the next step was asked for: what the cluster holds in the end is what the last step says, nothing less and nothing
// more (WK-02, WK-12 to WK-14).
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	const cluster = "crash-points"
	env.Join(t, framework.Hub, framework.Managed, cluster) // makes the CRDs and the namespace; it knows another hub's hash than these works do
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	// The agent of the cluster must not apply the works of the test.
	const elsewhere = "crash-points-works"
	framework.Create(t, h, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})
	ns := framework.Namespace(t, m, cluster)
	spec := func(work string, option *workv1.DeleteOption, values ...string) *workv1.ManifestWorkSpec {
		s := &workv1.ManifestWorkSpec{DeleteOption: option}
		for _, v := range values {
			name, value, _ := strings.Cut(v, "=")
			s.Workload.Manifests = append(s.Workload.Manifests, framework.RawManifests(fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"%s-%s","labels":{"work":%q}},"data":{"key":%q}}`, ns, work,
				name, work, value))...)
		}
		return s
	}
	orphan := &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	for name, scenario := range map[string]struct {
		// steps are brought about by an agent that does not crash, but for the one before the last.
		steps func(work string) []*workv1.ManifestWorkSpec
		want  []string
	}{
		"create": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "a=1", "b=1")}
		}, []string{"a=1!", "b=1!"}},
		"create, less": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "a=1")}
		}, []string{"a=1!"}},
		"create, delete": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), deleted}
		}, nil},
		"prune": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "b=2", "c=1"), spec(w, nil, "b=2", "c=1")}
		}, []string{"b=2!", "c=1!"}},
		"prune, less": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "b=2", "c=1"), spec(w, nil, "d=1")}
		}, []string{"d=1!"}},
		"prune, as before": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "b=2", "c=1"), spec(w, nil, "a=1", "b=1")}
		}, []string{"a=1!", "b=1!"}},
		"prune, delete": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, nil, "b=2", "c=1"), deleted}
		}, nil},
		"orphan": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), spec(w, orphan, "a=1", "b=1"), deleted}
		}, []string{"a=1", "b=1"}},
		"orphan, then not": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, orphan, "a=1", "b=1"), spec(w, nil, "a=1", "b=1"), spec(w, nil, "a=1", "b=1")}
		}, []string{"a=1!", "b=1!"}},
		"delete": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), deleted, deleted}
		}, nil},
		"delete, come back": {func(w string) []*workv1.ManifestWorkSpec {
			return []*workv1.ManifestWorkSpec{spec(w, nil, "a=1", "b=1"), deleted, spec(w, nil, "c=1")}
		}, []string{"c=1!"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, done := range []bool{false, true} {
				for at := int64(1); ; at++ {
					work := fmt.Sprintf("%s-%d-%t", strings.NewReplacer(", ", "-", " ", "-").Replace(name), at, done)
					c := &crash{at: at, done: done}
					live(t, h, m, elsewhere, ns, work, scenario.steps(work), c, scenario.want)
					if !c.dead.Load() {
						break
					}
					if at > 40 {
						t.Fatal("there is no end of writes")
					}
				}
			}
		})
	}
}

// live leads a work through its steps. The agent of the one before the last crashes.
func live(t *testing.T, h, m client.Client, cluster, ns, name string, steps []*workv1.ManifestWorkSpec, c *crash, want []string) {
	t.Helper()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for i, step := range steps {
		setDesired(t, h, w, step)
		incarnated, end := context.WithCancel(t.Context())
		doomed := &crash{}
		if i == len(steps)-2 {
			doomed = c
		}
		agent := incarnate(t, incarnated, cluster, doomed)
		switch {
		case doomed == c:
			awaitCrash(t, agent, h, m, w, step, c)
		case i == len(steps)-1:
			env.Eventually(t, func(ctx context.Context) error {
				return errors.Join(agent.pass(ctx, w), converged(ctx, h, m, w, ns, step, want))
			})
		default:
			awaitStep(t, agent, h, w, step)
		}
		end()
	}
}

// setDesired makes a step the desired state on the hub. A work that is being deleted and is wanted again is wanted once it has gone.
func setDesired(t *testing.T, h client.Client, w *workv1.ManifestWork, step *workv1.ManifestWorkSpec) {
	t.Helper()
	err := h.Get(t.Context(), client.ObjectKeyFromObject(w), w)
	switch {
	case step == deleted:
		err = client.IgnoreNotFound(h.Delete(t.Context(), w))
	case apierrors.IsNotFound(err) || err == nil && w.DeletionTimestamp != nil:
		if err == nil {
			again := incarnateUntilGone(t, h, w)
			again()
		}
		*w = workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}, Spec: *step}
		err = h.Create(t.Context(), w)
	case err == nil:
		w.Spec = *step
		err = h.Update(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func incarnateUntilGone(t *testing.T, h client.Client, w *workv1.ManifestWork) func() {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	agent := incarnate(t, ctx, w.Namespace, &crash{})
	awaitStep(t, agent, h, w.DeepCopy(), deleted)
	return end
}

// awaitStep has the agent bring about a step.
func awaitStep(t *testing.T, agent incarnation, h client.Client, w *workv1.ManifestWork, step *workv1.ManifestWorkSpec) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := agent.pass(ctx, w); err != nil {
			return err
		}
		err := h.Get(ctx, client.ObjectKeyFromObject(w), w)
		if step == deleted {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("the work is still there: %w", err)
		}
		return err
	})
}

// awaitCrash has an agent bring about a step until it crashes, or has brought it about and writes no more: then it has not as many writes
// as the crash waits for.
func awaitCrash(t *testing.T, agent incarnation, h, m client.Client, w *workv1.ManifestWork, step *workv1.ManifestWorkSpec, c *crash) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		before := c.writes.Load()
		err := agent.pass(ctx, w)
		if c.dead.Load() {
			return nil
		}
		if err == nil && c.writes.Load() > before {
			err = fmt.Errorf("work %s: the agent has written, and may have more to write", w.Name)
		}
		return errors.Join(err, reached(ctx, h, m, w, step))
	})
}

// converged tells whether the clusters are as the last step says.
func converged(ctx context.Context, h, m client.Client, w *workv1.ManifestWork, ns string, step *workv1.ManifestWorkSpec,
	want []string) error {
	have, err := objectsOf(ctx, m, ns, w.Name)
	if err != nil {
		return err
	}
	if !slices.Equal(have, want) {
		return fmt.Errorf("work %s: the cluster holds %v, want %v", w.Name, have, want)
	}
	return reached(ctx, h, m, w, step)
}

// reached tells whether hub and cluster say that a step is done.
func reached(ctx context.Context, h, m client.Client, w *workv1.ManifestWork, step *workv1.ManifestWorkSpec) error {
	work, amw := &workv1.ManifestWork{}, &workv1.AppliedManifestWork{}
	workErr := h.Get(ctx, client.ObjectKeyFromObject(w), work)
	amwErr := m.Get(ctx, client.ObjectKey{Name: crashHub + "-" + w.Name}, amw)
	if step == deleted {
		if !apierrors.IsNotFound(workErr) || !apierrors.IsNotFound(amwErr) {
			return fmt.Errorf("work %s is still there (%w), or its AppliedManifestWork (%w)", w.Name, workErr, amwErr)
		}
		return nil
	}
	if err := errors.Join(workErr, amwErr); err != nil {
		return err
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied)
	if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation {
		return fmt.Errorf("work %s is not reported as applied: %+v", w.Name, applied)
	}
	owned := len(step.Workload.Manifests)
	if step.DeleteOption != nil { // that of the test leaves all objects on the cluster
		owned = 0
	}
	if recorded := amw.Status.AppliedResources; len(recorded) != owned {
		return fmt.Errorf("work %s has recorded %+v, want %d objects", w.Name, recorded, owned)
	}
	return nil
}

// A hub that is gone for longer than any grace period costs nothing: what is there is looked after and stays, and what changes
// once the hub is back is applied (WK-15, WK-17).
func TestHubGone(t *testing.T) {
	t.Parallel()
	const name = "hub-gone"
	own := env.StartHub(t, "")
	agent := env.Join(t, own, framework.Managed, name, "--appliedmanifestwork-eviction-grace-period", "1ms")
	c, m := own.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, "a", "1"))
	framework.Create(t, c, w)
	framework.AwaitCondition(t, c, w, "Applied", metav1.ConditionTrue)
	own.Kill()
	for range 3 {
		framework.PatchData(t, m, ns, "a", "key", "drift")
		framework.AwaitConfigMap(t, m, ns, "a", "1")
	}
	if amw := appliedWork(t, agent, name); amw.Status.EvictionStartTime != nil || amw.DeletionTimestamp != nil {
		t.Errorf("the work is evicted: %+v", amw)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	change(t, c, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(framework.ConfigMap(ns, "a", "2"))
	})
	framework.AwaitConfigMap(t, m, ns, "a", "2")
	framework.AwaitCondition(t, c, w, "Applied", metav1.ConditionTrue)
}
