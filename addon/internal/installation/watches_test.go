package installation

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func condition(kind string) func(*addonv1beta1.ManagedClusterAddOn) {
	return func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
}

// What others report of an add-on costs nothing; what the engine needs, or has set itself, brings it back.
func TestMatters(t *testing.T) {
	t.Parallel()
	customized := func(a *addonv1beta1.ManagedClusterAddOn) { a.Status.HealthCheck.Mode = "Customized" }
	for name, test := range map[string]struct {
		before []func(*addonv1beta1.ManagedClusterAddOn)
		change func(*addonv1beta1.ManagedClusterAddOn)
		want   bool
	}{
		"nothing":             {nil, func(*addonv1beta1.ManagedClusterAddOn) {}, false},
		"health by lease":     {nil, condition("Available"), false},
		"health that it sets": {[]func(*addonv1beta1.ManagedClusterAddOn){customized}, condition("Available"), true},
		"progress":            {nil, condition("Progressing"), false},
		"certificate":         {nil, condition("ClusterCertificateRotated"), false},
		"configured":          {nil, condition("Configured"), true},
		"token account":       {nil, condition("TokenInfrastructureReady"), true},
		"its condition":       {nil, condition("ManifestApplied"), true},
		"driver": {nil, func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: "kubeClient"}}
		}, true},
		"configurations": {nil, func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Status.ConfigReferences = []addonv1beta1.ConfigReference{{}}
		}, true},
		"annotation":              {nil, func(a *addonv1beta1.ManagedClusterAddOn) { a.Annotations = map[string]string{"a": "b"} }, true},
		"finalizer":               {nil, func(a *addonv1beta1.ManagedClusterAddOn) { a.Finalizers = []string{"a"} }, true},
		"deletion":                {nil, leaving, true},
		"spec":                    {nil, func(a *addonv1beta1.ManagedClusterAddOn) { a.Generation++ }, true},
		"what the server manages": {nil, func(a *addonv1beta1.ManagedClusterAddOn) { a.ManagedFields = []metav1.ManagedFieldsEntry{{}} }, false},
	} {
		before := installed(test.before...)
		after := before.DeepCopy()
		test.change(after)
		if got := matters(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A change of a cluster is for the add-ons on it that look at what has changed.
func TestOfCluster(t *testing.T) {
	t.Parallel()
	hosted := installed(func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
	})
	unknown := func(c *clusterv1.ManagedCluster) {
		c.Status.Conditions = append(c.Status.Conditions,
			metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue})
	}
	upgraded := func(c *clusterv1.ManagedCluster) { c.Status.Version.Kubernetes = "v1.37.1" }
	labelled := func(c *clusterv1.ManagedCluster) { c.Labels = map[string]string{"a": "b"} }
	never := func(_, _ *clusterv1.ManagedCluster) bool { return false }
	for name, test := range map[string]struct {
		addOn   *addonv1beta1.ManagedClusterAddOn
		cluster string
		change  func(*clusterv1.ManagedCluster)
		look    func(before, after *clusterv1.ManagedCluster) bool
		want    bool
	}{
		"labels": {installed(), "c1", labelled, nil, true},
		"claims": {installed(), "c1", func(c *clusterv1.ManagedCluster) {
			c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "a"}}
		}, nil, true},
		"annotations": {installed(), "c1",
			func(c *clusterv1.ManagedCluster) { c.Annotations = map[string]string{"a": "b"} }, nil, true},
		"version":                             {installed(), "c1", upgraded, nil, true}, // AF-18
		"labels it does not look at":          {installed(), "c1", labelled, never, false},
		"another cluster":                     {installed(), "c2", labelled, nil, false},
		"labels of the hosting cluster":       {hosted, "host", labelled, nil, false},
		"availability of the hosting cluster": {hosted, "host", unknown, never, true},  // AF-16, A6
		"version of the hosting cluster":      {hosted, "host", upgraded, never, true}, // AF-18
		"deletion of the hosting cluster": {hosted, "host",
			func(c *clusterv1.ManagedCluster) { now := metav1.Now(); c.DeletionTimestamp = &now }, nil, true},
		"deletion of a cluster it ignores": {installed(), "c1",
			func(c *clusterv1.ManagedCluster) { now := metav1.Now(); c.DeletionTimestamp = &now }, never, true},
	} {
		h := newHub(t, test.addOn, cluster("c1"))
		h.agent.options.RedeployOn, h.agent.options.HostingCluster = test.look, addon.AnnotatedHostingCluster
		if test.addOn == hosted {
			h.reconcile(t) // which finds out where
		}
		before := cluster(test.cluster)
		after := before.DeepCopy()
		test.change(after)
		queue := newQueue(t)
		h.controller.ofCluster().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		if got := queue.Len() == 1; got != test.want {
			t.Errorf("%s: %d add-ons are asked for", name, queue.Len())
		}
	}
	h, queue := newHub(t, hosted, cluster("c1")), newQueue(t)
	h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
	h.reconcile(t)
	h.controller.ofCluster().Delete(t.Context(), event.DeleteEvent{Object: cluster("host")}, queue)
	if queue.Len() != 1 {
		t.Error("that the hosting cluster is gone is not noticed")
	}
	h.agent.options.Name = "another" // another user has the add-on now
	h.reconcile(t)
	if requests := h.controller.hosted.by("host"); len(requests) > 0 {
		t.Errorf("%v are asked for, of which others take care", requests)
	}
}

// AF-15: a removal that waits for a denied cluster goes on when that is cut off, whether the add-on looks at labels or not.
func TestDeniedClusterIsCutOff(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"c1", "host"} {
		h, queue := newHub(t, installed(func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
		}), cluster("c1")), newQueue(t)
		h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
		h.agent.options.RedeployOn = func(_, _ *clusterv1.ManagedCluster) bool { return false }
		h.reconcile(t)
		denied := cluster(name)
		denied.Spec.HubAcceptsClient = false
		cutOff := denied.DeepCopy()
		cutOff.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
		h.controller.ofCluster().Update(t.Context(), event.UpdateEvent{ObjectOld: denied, ObjectNew: cutOff}, queue)
		if queue.Len() != 1 {
			t.Errorf("%s: %d add-ons are asked for, want 1", name, queue.Len())
		}
	}
}

// AF-14: whether a cluster is available brings back only the add-ons of which something else is to be said then.
func TestAvailability(t *testing.T) {
	t.Parallel()
	isNow := func(status metav1.ConditionStatus) *clusterv1.ManagedCluster {
		c := cluster("c1")
		if status != "" {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: status})
		}
		return c
	}
	work := func(observed int64, finalizers ...string) *workv1.ManifestWork {
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
			Namespace: "c1", Name: "addon-hello-deploy-0", Generation: 2, Labels: map[string]string{fleet.LabelAddOnName: "hello"},
		}}
		if w.Finalizers = finalizers; len(finalizers) > 0 {
			w.DeletionTimestamp = new(metav1.Now())
		}
		if observed > 0 {
			w.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, ObservedGeneration: observed}}
		}
		return w
	}
	for name, test := range map[string]struct {
		addOn         *addonv1beta1.ManagedClusterAddOn
		work          *workv1.ManifestWork
		health        addon.HealthMode
		before, after metav1.ConditionStatus
		want          bool
	}{
		"works are applied":                {installed(), work(2), addon.HealthLease, "True", "Unknown", false},
		"works are applied, back":          {installed(), work(2), addon.HealthLease, "Unknown", "True", false},
		"work is not answered":             {installed(), work(0), addon.HealthLease, "True", "Unknown", true},
		"work is not answered, back":       {installed(), work(0), addon.HealthLease, "False", "True", true},
		"work is changed":                  {installed(), work(1), addon.HealthLease, "True", "Unknown", true},
		"work goes":                        {installed(), work(2, "agent"), addon.HealthLease, "True", "Unknown", true},
		"not available either way":         {installed(), work(0), addon.HealthLease, "Unknown", "False", false},
		"no condition, then not heard of":  {installed(), work(0), addon.HealthLease, "", "Unknown", false},
		"health of works":                  {installed(), work(2), addon.HealthManifests, "Unknown", "False", true}, // RG-30
		"health by another":                {installed(), work(2), addon.HealthNone, "True", "Unknown", false},
		"leaves":                           {installed(leaving), work(2), addon.HealthLease, "True", "Unknown", true},  // A6
		"leaves, from Unknown on to False": {installed(leaving), work(2), addon.HealthLease, "Unknown", "False", true}, // A6
		"nothing":                          {installed(leaving), work(0), addon.HealthLease, "True", "True", false},
	} {
		h, queue := newHub(t, test.addOn, test.work), newQueue(t)
		h.agent.options.Health.Mode = test.health
		h.controller.ofCluster().Update(t.Context(), event.UpdateEvent{ObjectOld: isNow(test.before), ObjectNew: isNow(test.after)}, queue)
		if got := queue.Len() == 1; got != test.want {
			t.Errorf("%s: %d add-ons are asked for", name, queue.Len())
		}
	}
}

// R12: what is granted to an add-on while it goes is seen when it is gone.
func TestNotNew(t *testing.T) {
	t.Parallel()
	h := newHub(t, installed())
	h.controller.client = interceptor.NewClient(h.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
				t.Error("a predicate waits for what was written last")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	binding := func(addOn string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{fleet.LabelClusterName: "c1",
			fleet.LabelAddOnName: addOn}}}
	}
	for name, test := range map[string]struct {
		event event.CreateEvent
		want  bool
	}{
		"made":                      {event.CreateEvent{Object: binding("hello")}, false},
		"found":                     {event.CreateEvent{Object: binding("hello"), IsInInitialList: true}, true},
		"made for one that is gone": {event.CreateEvent{Object: binding("gone")}, true},
	} {
		if got := h.controller.notNew().Create(test.event); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A permission without its labels is not the add-on's any more: who took them off does not change what it is to have.
func TestPermissionLosesLabels(t *testing.T) {
	t.Parallel()
	h := newHub(t, installed())
	before := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "role", Labels: map[string]string{
		fleet.LabelClusterName: "c1", fleet.LabelAddOnName: "hello", fleet.LabelAddOnManager: "test"}}}
	for label := range before.Labels {
		after := before.DeepCopy()
		delete(after.Labels, label)
		e := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
		queue := newQueue(t)
		handler.EnqueueRequestsFromMapFunc(h.controller.ofPermission).Update(t.Context(), e, queue)
		if !h.controller.permissionChanged().Update(e) || queue.Len() != 1 {
			t.Errorf("without %s: %d add-ons", label, queue.Len())
		}
	}
}

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return queue
}

// A configuration is for the add-ons that refer to it.
func TestOfConfiguration(t *testing.T) {
	t.Parallel()
	h := newHub(t, installed(func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Status.ConfigReferences = []addonv1beta1.ConfigReference{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Resource: "configmaps"},
			DesiredConfig:       &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "ns", Name: "mine"}},
		}}
	}))
	key := func(o client.Object) string {
		return configKey(schema.GroupResource{Resource: "configmaps"}, client.ObjectKeyFromObject(o))
	}
	for name, want := range map[string]int{"mine": 1, "other": 0} {
		queue := newQueue(t)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		h.controller.listed(indexConfig, key).Create(context.Background(), event.CreateEvent{Object: config}, queue)
		if queue.Len() != want {
			t.Errorf("%s: %d add-ons", name, queue.Len())
		}
	}
}

// AM-07: what package addon/config compares brings the add-on back, whatever the generation says: otherwise it would wait forever for a
// state that is there.
func TestStateChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          bool
	}{
		"status": {
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}, status: {c: d}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '2'}, spec: {a: b}, status: {c: e}}", false,
		},
		"label": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {uid: u, resourceVersion: '1'}, data: {a: b}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {uid: u, resourceVersion: '2', labels: {c: d}}, data: {a: b}}", false,
		},
		"spec": {
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 2, resourceVersion: '2'}, spec: {a: c}}", true,
		},
		"without generation": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {uid: u, resourceVersion: '1'}, data: {a: b}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {uid: u, resourceVersion: '2'}, data: {a: c}}", true,
		},
		"default added": { // by the API server, when it reads what was stored before
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b, c: d}}", true,
		},
		"recreated": {
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: v, generation: 1, resourceVersion: '2'}, spec: {a: c}}", true,
		},
		"changed in another version": {
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 2, resourceVersion: '2'}, spec: {a: b}}", true,
		},
		"resync": {
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}",
			"{apiVersion: a/v1, kind: A, metadata: {uid: u, generation: 1, resourceVersion: '1'}, spec: {a: b}}", false,
		},
	} {
		if got := stateChanged(event.UpdateEvent{ObjectOld: decode(t, test.before), ObjectNew: decode(t, test.after)}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// AM-07: types of configurations are watched in the version that the add-on reads and in the one that the hub hashes. Those that the hub
// does not have are named, with what to do.
func TestWatched(t *testing.T) {
	t.Parallel()
	v1, v2 := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v2, v1})
	for _, version := range []schema.GroupVersion{v1, v2} {
		mapper.Add(version.WithKind("Config"), meta.RESTScopeNamespace)
	}
	for version, want := range map[schema.GroupVersion][]schema.GroupVersion{v1: {v1, v2}, v2: {v2}} {
		objects, err := watched(version.WithResource("configs"), mapper)
		var got []schema.GroupVersion
		for _, object := range objects {
			if _, whole := object.(*unstructured.Unstructured); !whole {
				t.Errorf("add-ons read their configurations as unstructured, and a %T is watched", object)
			}
			got = append(got, object.GetObjectKind().GroupVersionKind().GroupVersion())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", version, got, err, want)
		}
	}
	if _, err := watched(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "others"}, mapper); err == nil {
		t.Error("a type that does not exist")
	}
}

// AF-02, AF-16: an add-on runs where it says itself, for example where a label of its cluster says; and one that knows no hosted mode
// on its own cluster, whatever the hub has copied to it.
func TestHostingCluster(t *testing.T) {
	t.Parallel()
	addOn := installed(func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "annotated"}
	})
	managed := cluster("c1")
	managed.Labels = map[string]string{"host": "labelled"}
	for name, test := range map[string]struct {
		choose func(addon.Installation) string
		want   string
	}{
		"no hosted mode": {nil, ""},
		"annotated":      {addon.AnnotatedHostingCluster, "annotated"},
		"derived":        {func(i addon.Installation) string { return i.Cluster.Labels["host"] }, "labelled"},
	} {
		h := newHub(t, addOn.DeepCopy(), managed.DeepCopy(), cluster("annotated"), cluster("labelled"))
		h.agent.options.HostingCluster = test.choose
		h.agent.options.RedeployOn = func(_, _ *clusterv1.ManagedCluster) bool { return false }
		h.agent.workload.Objects[0].SetAnnotations(map[string]string{fleet.AnnotationHostedManifestLocation: "hosting"})
		h.reconcile(t)
		place, mode, validity := "c1", addon.Default, metav1.ConditionStatus("")
		if test.want != "" {
			place, mode, validity = test.want, addon.Hosted, metav1.ConditionTrue
		}
		if works := len(h.works(t, place)); works != 1 {
			t.Errorf("%s: %d works on %s", name, works, place)
		}
		if got := h.agent.requestedFor; got.Mode() != mode || got.HostingCluster != test.want {
			t.Errorf("%s: the add-on is told mode %s, hosting cluster %q", name, got.Mode(), got.HostingCluster)
		}
		if c := h.condition(t, "HostingClusterValidity"); c.Status != validity {
			t.Errorf("%s: %+v", name, c)
		}
		// Another cluster is chosen.
		after, queue := managed.DeepCopy(), newQueue(t)
		after.Labels["host"] = "other"
		h.controller.ofCluster().Update(t.Context(), event.UpdateEvent{ObjectOld: managed, ObjectNew: after}, queue)
		if want := test.want == "labelled"; (queue.Len() == 1) != want {
			t.Errorf("%s: %d add-ons are asked for when the label changes", name, queue.Len())
		}
	}
}
