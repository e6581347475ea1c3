package pull

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/optionalkind"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	argo = "argocd"
	// finalizerArgo has the Argo CD that an Application belongs to delete what it has deployed.
	finalizerArgo = "resources-finalizer.argocd.argoproj.io"
)

// fixture is a hub where the set of the clusters paris and rome is bound in namespace argocd. Cluster berlin is in no set, and cluster hub
// is the hub itself.
type fixture struct {
	*testing.T
	client.Client
	clock    *clocktesting.FakeClock
	events   chan string
	c        *Controller
	reporter *Reporter
	// written are the health that was written to Applications.
	written []string
}

func setUp(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1alpha1.AddToScheme, clusterv1.AddToScheme, clusterv1beta2.AddToScheme,
		workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.ClusterSelector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "s"}}
	binding.Spec.ClusterSet = "s"
	objects = append(objects, set, binding, cluster("paris", "s"), cluster("rome", "s"), cluster("berlin", ""), cluster("hub", "s"))
	f := &fixture{T: t, clock: clocktesting.NewFakeClock(time.Now())}
	f.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&workv1.ManifestWork{}).
		WithIndex(&workv1.ManifestWork{}, indexApplication, ofWork).Build()
	recorder := events.NewFakeRecorder(100)
	f.events = recorder.Events
	clients := Clients{Client: f.Client, Applications: func() client.Reader { return f.Client }, Live: f}
	f.c, f.reporter = New(clients, recorder, Options{Clock: f.clock}), &Reporter{clients}
	return f
}

// Patch notes the health of Applications that is written.
func (f *fixture) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	if app, ok := o.(*unstructured.Unstructured); ok {
		if health := healthOf(app); health != "" && !slices.Contains(f.written, health) {
			f.written = append(f.written, health)
		}
	}
	return f.Client.Patch(ctx, o, patch, options...)
}

func cluster(name, set string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterSet: set}}}
	if name == "hub" {
		c.Labels[fleet.LabelLocalCluster] = fleet.LabelTrue
	}
	c.Spec.HubAcceptsClient = true
	c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	return c
}

// application is one of ApplicationSet web that a cluster pulls.
func application(cluster string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	app := newApplication()
	app.SetNamespace(argo)
	app.SetName("web-" + cluster)
	app.SetUID("0123456789")
	app.SetLabels(map[string]string{fleet.LabelArgoPull: fleet.LabelTrue, "team": "blue"})
	app.SetAnnotations(map[string]string{fleet.AnnotationArgoCluster: cluster, fleet.AnnotationArgoSkip: fleet.LabelTrue, "note": "n"})
	app.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "ApplicationSet", Name: "web", UID: "set"}})
	app.SetFinalizers([]string{finalizerArgo})
	app.Object[fieldSpec] = map[string]any{"project": "default",
		"destination": map[string]any{"name": cluster, "server": "https://elsewhere", "namespace": "web"}}
	for _, change := range changes {
		change(app)
	}
	return app
}

func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(app *unstructured.Unstructured) {
		annotations := app.GetAnnotations()
		annotations[key] = value
		if value == "" {
			delete(annotations, key)
		}
		app.SetAnnotations(annotations)
	}
}

func (f *fixture) reconcile(app client.Object) {
	f.Helper()
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(app)}
	if _, err := f.c.Reconcile(f.Context(), request); err != nil {
		f.Fatal(err)
	}
	request.Name = "web"
	if _, err := f.reporter.Reconcile(f.Context(), request); err != nil {
		f.Fatal(err)
	}
}

// works are the names of all works, with their namespaces.
func (f *fixture) works() (names []string) {
	f.Helper()
	list := &workv1.ManifestWorkList{}
	if err := f.List(f.Context(), list); err != nil {
		f.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, client.ObjectKeyFromObject(&list.Items[i]).String())
	}
	return names
}

func (f *fixture) read(o client.Object) {
	f.Helper()
	if err := f.Get(f.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		f.Fatal(err)
	}
}

// report has a cluster report how its Application is.
func (f *fixture) report(cluster string, values map[string]string) {
	f.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "web-" + cluster + "-01234"}}
	f.read(work)
	manifest := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Group: "argoproj.io", Kind: "Application"}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		manifest.StatusFeedbacks.Values = append(manifest.StatusFeedbacks.Values,
			workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &value}})
	}
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{manifest}
	if err := f.Status().Update(f.Context(), work); err != nil {
		f.Fatal(err)
	}
}

// AR-06: what a cluster gets of an Application.
func TestWork(t *testing.T) {
	t.Parallel()
	app := application("paris", func(app *unstructured.Unstructured) {
		app.Object[fieldOperation] = map[string]any{"sync": map[string]any{"revision": "r"}}
	}, annotated(fleet.AnnotationArgoNamespace, "deployments"))
	f := setUp(t, app)
	f.reconcile(app)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "paris", Name: "web-paris-01234"}}
	f.read(work)
	if want := map[string]string{fleet.AnnotationArgoHubNamespace: argo, fleet.AnnotationArgoHubName: "web-paris",
		fleet.AnnotationArgoSet: "argocd/web"}; !maps.Equal(work.Annotations, want) {
		t.Errorf("annotations %v, want %v", work.Annotations, want)
	}
	if want := map[string]string{fleet.LabelArgoPull: "true", fleet.LabelArgoSet: "true",
		fleet.LabelArgoSetHash: "88bffdf8456713f87bd7c29cba4f3d7cb2120faa"}; !maps.Equal(work.Labels, want) {
		t.Errorf("labels %v, want %v", work.Labels, want)
	}
	got := map[string]any{}
	if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": "web-paris", "namespace": "deployments", "finalizers": []any{finalizerArgo},
			"labels": map[string]any{"team": "blue"}, "annotations": map[string]any{"note": "n"}},
		"spec": map[string]any{"project": "default",
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "web"}},
		"operation": map[string]any{"sync": map[string]any{"revision": "r"}}}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the cluster gets %v, want %v", got, want)
	}
	strategy := work.Spec.ManifestConfigs[0].UpdateStrategy
	if strategy.Type != workv1.UpdateStrategyTypeServerSideApply || !strategy.ServerSideApply.Force ||
		strategy.ServerSideApply.IgnoreFields[0].Condition != workv1.IgnoreFieldsConditionOnSpokeChange ||
		!slices.Equal(strategy.ServerSideApply.IgnoreFields[0].JSONPaths, []string{".operation"}) {
		t.Errorf("written by %+v", strategy)
	}
	version := work.ResourceVersion
	f.reconcile(app)
	if f.read(work); work.ResourceVersion != version {
		t.Error("a work that is right is written again")
	}
}

// AR-06: who gets no work, why, and what happens to one that is there.
func TestObstacles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   string // of the condition
		works  []string
	}{
		"no label": {change: func(app *unstructured.Unstructured) { app.SetLabels(nil) }},
		"another value": {change: func(app *unstructured.Unstructured) {
			app.SetLabels(map[string]string{fleet.LabelArgoPull: "yes"})
		}},
		"no cluster": {change: annotated(fleet.AnnotationArgoCluster, "")},
		"not bound": {change: annotated(fleet.AnnotationArgoCluster, "berlin"),
			want: "ManagedClusterSetBinding in namespace argocd"},
		"no such cluster": {change: annotated(fleet.AnnotationArgoCluster, "nowhere"),
			want: "there is no such ManagedCluster"},
		"the hub":            {change: annotated(fleet.AnnotationArgoCluster, "hub"), want: "the hub itself"},
		"the Argo CD has it": {change: annotated(fleet.AnnotationArgoSkip, ""), works: []string{"paris/web-paris-01234"}},
		"moved": {change: annotated(fleet.AnnotationArgoCluster, "rome"),
			works: []string{"rome/web-paris-01234"}},
		"nothing has changed": {change: annotated("other", "o"), works: []string{"paris/web-paris-01234"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := application("paris")
			f := setUp(t, app)
			f.reconcile(app)
			f.read(app)
			test.change(app)
			if err := f.Update(t.Context(), app); err != nil {
				t.Fatal(err)
			}
			f.reconcile(app)
			if got := f.works(); !slices.Equal(got, test.works) {
				t.Errorf("works %q, want %q", got, test.works)
			}
			f.read(app)
			if got := conditionMessage(app); !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("condition %q, want %q", got, test.want)
			}
		})
	}
}

// A cluster from a backup without status keeps its Applications until the hub has accepted it again.
func TestRestoredClusterKeepsItsWork(t *testing.T) {
	t.Parallel()
	app := application("paris")
	f := setUp(t, app)
	f.reconcile(app)
	paris := &clusterv1.ManagedCluster{}
	if err := f.Get(t.Context(), client.ObjectKey{Name: "paris"}, paris); err != nil {
		t.Fatal(err)
	}
	paris.Status.Conditions = nil
	if err := f.Update(t.Context(), paris); err != nil {
		t.Fatal(err)
	}
	f.reconcile(app)
	if got, want := f.works(), []string{"paris/web-paris-01234"}; !slices.Equal(got, want) {
		t.Errorf("works %q, want %q", got, want)
	}
}

// AR-06: nothing of users is written or deleted.
func TestWorksOfOthers(t *testing.T) {
	t.Parallel()
	own := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "paris", Name: "web-paris-01234",
		Labels: map[string]string{fleet.LabelArgoPull: fleet.LabelTrue}}}
	report := &appsv1alpha1.MulticlusterApplicationSetReport{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	app := application("paris")
	f := setUp(t, app, own, report)
	f.reconcile(app)
	if f.read(own); len(own.Spec.Workload.Manifests) > 0 {
		t.Error("the work of a user is written")
	}
	if f.read(report); report.Statuses.Summary.Clusters != "" {
		t.Error("the report of a user is written")
	}
	f.read(app)
	if got := conditionMessage(app); !strings.Contains(got, "ManifestWork paris/web-paris-01234, which was not made for it, is in the way") {
		t.Errorf("condition %q", got)
	}
	app.SetFinalizers(nil)
	if err := f.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	f.reconcile(app)
	f.read(own)
	f.read(report)
}

// AR-06: a cluster gets the finalizers that its Argo CD takes off, and no others: nobody would.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	const hooks = "post-delete-finalizer.argocd.argoproj.io/cleanup"
	for _, test := range []struct{ given, want []string }{
		{nil, nil},
		{[]string{finalizerArgo}, []string{finalizerArgo}},
		{[]string{finalizerArgo + "/background", hooks}, []string{finalizerArgo + "/background", hooks}},
		{[]string{"example.com/of-a-user", finalizerArgo, "foregroundDeletion"}, []string{finalizerArgo}},
		{[]string{"example.com/resources-finalizer.argocd.argoproj.io"}, nil},
	} {
		given := slices.Clone(test.given)
		app := application("paris", func(app *unstructured.Unstructured) { app.SetFinalizers(given) })
		if got := onCluster(app).GetFinalizers(); !slices.Equal(got, test.want) || !slices.Equal(app.GetFinalizers(), test.given) {
			t.Errorf("of %q, the cluster gets %q", test.given, got)
		}
	}
}

// AR-06: with an Application, its work goes, whether or not it is seen to be deleted,
// and the finalizer of the Argo CD that leaves it alone.
func TestDeletion(t *testing.T) {
	t.Parallel()
	app := application("paris", func(app *unstructured.Unstructured) {
		app.SetFinalizers([]string{finalizerArgo + "/background", "post-delete-finalizer.argocd.argoproj.io", "example.com/of-a-user"})
	})
	f := setUp(t, app)
	f.reconcile(app)
	if err := f.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	f.reconcile(app)
	f.read(app)
	if got := app.GetFinalizers(); !slices.Equal(got, []string{"example.com/of-a-user"}) || len(f.works()) > 0 {
		t.Errorf("finalizers %q, works %q", got, f.works())
	}

	f = setUp(t)
	orphan, err := workOf(application("rome"), "rome")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	for _, request := range f.c.ofWorks(t.Context()) {
		if _, err := f.c.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.works(); len(got) > 0 {
		t.Errorf("works %q stay", got)
	}
}

// AR-07: what the clusters report is in the Applications and in the report of their ApplicationSet.
func TestStatus(t *testing.T) {
	t.Parallel()
	paris, rome := application("paris"), application("rome")
	f := setUp(t, paris, rome)
	f.reconcile(paris)
	f.reconcile(rome)
	const at = "2026-01-02T03:04:05Z"
	f.report("paris", map[string]string{valueHealth: "Healthy", valueSync: "Synced", valuePhase: "Succeeded", valueStartedAt: at,
		valueRevision: "abc"})
	f.report("rome", map[string]string{valueHealth: "Degraded", valueSync: "OutOfSync", valuePhase: "Running",
		valueStartedAt: "yesterday"})
	f.reconcile(paris)
	f.reconcile(rome)
	f.read(paris)
	status, _ := paris.Object[fieldStatus].(map[string]any)
	if want := map[string]any{"status": "Synced", "revision": "abc"}; !equality.Semantic.DeepEqual(status["sync"], want) {
		t.Errorf("sync %v, want %v", status["sync"], want)
	}
	want := map[string]any{"phase": "Succeeded", "startedAt": at, "operation": map[string]any{}}
	if !equality.Semantic.DeepEqual(status["operationState"], want) {
		t.Errorf("operation %v, want %v", status["operationState"], want)
	}
	if want := []string{"Progressing", "Healthy", "Degraded"}; healthOf(paris) != "Healthy" || !slices.Equal(f.written, want) {
		t.Errorf("health %q, written %q, want %q", healthOf(paris), f.written, want)
	}
	f.read(rome)
	if _, found, _ := unstructured.NestedMap(rome.Object, fieldStatus, "operationState"); found {
		t.Error("half of an operation is written, which the kind refuses")
	}
	report := &appsv1alpha1.MulticlusterApplicationSetReport{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	f.read(report)
	counted := appsv1alpha1.ReportSummary{Synced: "1", NotSynced: "1", Healthy: "1", NotHealthy: "1", InProgress: "0", Clusters: "2"}
	if got := report.Statuses.Summary; got != counted {
		t.Errorf("summary %+v, want %+v", got, counted)
	}
	if first := report.Statuses.ClusterConditions[0]; first.Cluster != "rome" || first.App != "argocd/web-rome" ||
		first.HealthStatus != "Degraded" {
		t.Errorf("first is %+v", first)
	}
	for _, app := range []*unstructured.Unstructured{paris, rome} {
		f.read(app)
		app.SetFinalizers(nil)
		if err := f.Update(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		if err := f.Delete(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		f.reconcile(app)
	}
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(report), report); !apierrors.IsNotFound(err) {
		t.Errorf("the report stays: %v", err)
	}
}

// Nothing happens before the hub has the kind.
func TestWithoutArgo(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	orphan, err := workOf(application("rome"), "rome")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	nowhere := func() client.Reader { return (&optionalkind.Kind{}).Reader() }
	f.c.c.Applications, f.reporter.c.Applications = nowhere, nowhere
	f.reconcile(application("rome"))
	if got := f.works(); len(got) != 1 {
		t.Errorf("works %q", got)
	}
}
