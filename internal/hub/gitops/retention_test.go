package gitops

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// application is one for a cluster, by its name or by its server.
func application(name, server string) *unstructured.Unstructured {
	app := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"project": "default", "destination": map[string]any{"name": name, "server": server, "namespace": "web"}}}}
	app.SetGroupVersionKind(applicationKind)
	app.SetNamespace(argo)
	app.SetName("web")
	return app
}

// skipped is an Application that the Argo CD of the hub does not deploy.
func skipped(app *unstructured.Unstructured) *unstructured.Unstructured {
	app.SetAnnotations(map[string]string{fleet.AnnotationArgoSkip: fleet.LabelTrue})
	return app
}

// withApplications is a hub with one cluster that is registered, and with Applications as they are cached.
func withApplications(t *testing.T, applications ...*unstructured.Unstructured) (*fixture, client.Client) {
	t.Helper()
	f := setUp(t, slices.Concat(member("c1", nil), member("c2", nil), []client.Object{decision(argo, "c1", "c2"), gitOps(argo),
		token("c1", "argo"), token("c2", "argo")})...)
	apps := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	for _, app := range applications {
		kept, err := onlyDestination(app)
		f.apply(err)
		f.apply(apps.Create(t.Context(), kept.(*unstructured.Unstructured)))
	}
	f.c.c.Applications = func() client.Reader { return apps }
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret", "c2-argo-cluster-secret")
	return f, apps
}

// AR-03: a cluster that is no longer selected stays known to an Argo CD that deploys Applications there, and the status says so; one that
// is taken away does not.
func TestRetention(t *testing.T) {
	t.Parallel()
	byName, byServer := application("c1", ""), application("", "https://hub.example.com/c1/")
	merge := func(f *fixture, o client.Object, change string) error {
		return f.Patch(f.Context(), o, client.RawPatch("application/merge-patch+json", []byte(change)))
	}
	for name, test := range map[string]struct {
		app      *unstructured.Unstructured
		change   func(*fixture) error // besides that it is no longer selected
		retained bool
	}{
		"an Application by name":   {byName, nil, true},
		"an Application by server": {byServer, nil, true},
		"one for another cluster":  {application("c2", ""), nil, false},
		"one for another server":   {application("", "https://hub.example.com/c12"), nil, false},
		"one that is left alone":   {skipped(application("c1", "")), nil, false},
		"no longer accepted": {byName, func(f *fixture) error {
			return merge(f, member("c1", nil)[0], `{"spec":{"hubAcceptsClient":false}}`)
		}, false},
		"deleted":                 {byName, func(f *fixture) error { return f.Delete(f.Context(), member("c1", nil)[0]) }, false},
		"in no set that is bound": {byName, func(f *fixture) error { return f.Delete(f.Context(), bound(argo)) }, false},
		"of an account that changes": {byName, func(f *fixture) error {
			return merge(f, gitOps(argo), `{"spec":{"managedServiceAccountRef":"other"}}`)
		}, false},
		"without the Placement":       {byName, func(f *fixture) error { return f.Delete(f.Context(), placementWeb()) }, true},
		"of another GitOpsCluster":    {byName, func(f *fixture) error { return f.Create(f.Context(), anotherFor("c1", f)) }, false},
		"of another one, another one": {byName, func(f *fixture) error { return f.Create(f.Context(), anotherFor("c2", f)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := withApplications(t, test.app.DeepCopy())
			f.apply(f.decide("c2"))
			if test.change != nil {
				f.apply(test.change(f))
			}
			g := f.reconcile(argo)
			if retained := slices.Contains(f.secrets(), "c1-argo-cluster-secret"); retained != test.retained {
				t.Errorf("the Secret stays: %t, want %t; there are %q", retained, test.retained, f.secrets())
			}
			resolved := meta.FindStatusCondition(g.Status.Conditions, appsv1beta1.GitOpsClusterPlacementResolved)
			reported := strings.Contains(g.Status.Message+resolved.Message, "c1 is no longer selected, and stays registered until ")
			if reported != test.retained {
				t.Errorf("the status is %q, %q", g.Status.Message, resolved.Message)
			}
		})
	}
}

func placementWeb() *clusterv1beta1.Placement {
	return &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
}

// anotherFor makes another Placement and its decisions, and returns a GitOpsCluster for it.
func anotherFor(cluster string, f *fixture) *appsv1beta1.GitOpsCluster {
	d := decision(argo, cluster)
	d.Name, d.Labels = "other-decision-1", map[string]string{fleet.LabelPlacement: "other"}
	f.apply(f.Create(f.Context(), d))
	f.apply(f.Create(f.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "other"}}))
	return gitOps(argo, func(g *appsv1beta1.GitOpsCluster) {
		g.Name, g.Spec.PlacementRef.Name, g.Spec.ManagedServiceAccountRef = "other", "other", "another"
	})
}

// AR-03: it stays until the Applications are gone, for ten minutes at the latest, or for good if it is selected again.
func TestRetentionEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		by       func(*fixture, client.Client) error
		retained bool
	}{
		"the Application goes": {func(f *fixture, apps client.Client) error { return apps.Delete(f.Context(), application("c1", "")) }, false},
		"ten minutes pass":     {func(f *fixture, _ client.Client) error { f.clock.Step(retentionLimit); return nil }, false},
		"ten minutes pass, and the hub has started meanwhile": {func(f *fixture, _ client.Client) error {
			f.clock.Step(retentionLimit / 2)
			f.c = New(f.c.c, f.c.recorder, f.c.Options)
			if f.reconcile(argo); !slices.Contains(f.secrets(), "c1-argo-cluster-secret") {
				f.Error("with the start of the hub, the Secret goes")
			}
			f.clock.Step(retentionLimit / 2)
			return nil
		}, false},
		"it is selected again": {func(f *fixture, _ client.Client) error {
			defer f.clock.Step(retentionLimit)
			return f.decide("c1", "c2")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, apps := withApplications(t, application("c1", ""))
			f.apply(f.decide("c2"))
			g := f.reconcile(argo)
			if !strings.HasSuffix(g.Status.Message, "as Applications deploy to it: argocd/web") ||
				g.Status.Phase != appsv1beta1.GitOpsClusterSuccessful {
				t.Errorf("the status is %s, %q", g.Status.Phase, g.Status.Message)
			}
			if waiting := f.c.withAbsences(t.Context()); len(waiting) != 1 || waiting[0].Name != g.Name {
				t.Errorf("the GitOpsClusters that look at Applications are %v", waiting)
			}
			result, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
			if want := retentionLimit - 2*debounce.Delay; err != nil || result.RequeueAfter != want {
				t.Errorf("it is due again after %s, want %s: %v", result.RequeueAfter, want, err)
			}
			f.apply(end.by(f, apps))
			g = f.reconcile(argo)
			if retained := slices.Contains(f.secrets(), "c1-argo-cluster-secret"); retained != end.retained {
				t.Errorf("the Secret stays: %t, want %t", retained, end.retained)
			} else if retained && f.secret("c1-argo-cluster-secret").Annotations[fleet.AnnotationDepartedAt] != "" {
				t.Error("the Secret of a cluster that is back says that it has left")
			}
			if waiting := f.c.withAbsences(t.Context()); strings.Contains(g.Status.Message, "stays registered") || len(waiting) > 0 {
				t.Errorf("the status is %q; %v look at Applications", g.Status.Message, waiting)
			}
		})
	}
}

// AR-03: what stands in the way of other clusters is looked at again in the meantime.
func TestRetentionAndFailure(t *testing.T) {
	t.Parallel()
	f, _ := withApplications(t, application("c1", ""))
	f.apply(f.Delete(t.Context(), token("c2", "argo")))
	f.apply(f.decide("c2"))
	g := f.reconcile(argo)
	result, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
	if err != nil || result.RequeueAfter != retryInterval {
		t.Errorf("it is due again after %s, want %s: %v", result.RequeueAfter, retryInterval, err)
	}
	expectFailure(t, g, "CredentialNotFound", "c2")
	resolved := meta.FindStatusCondition(g.Status.Conditions, appsv1beta1.GitOpsClusterPlacementResolved)
	if !strings.Contains(resolved.Message, "c1 is no longer selected, and stays registered until ") {
		t.Errorf("the condition says %q", resolved.Message)
	}
	f.expectSecrets("c1-argo-cluster-secret", "c2-argo-cluster-secret")
}

// AR-03: after a start, the hub does not know the Applications for a moment, in which no Secret goes.
func TestRetentionBeforeApplicationsAreRead(t *testing.T) {
	t.Parallel()
	f, _ := withApplications(t)
	f.c.c.Applications = func() client.Reader { return nil }
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(applicationKind, meta.RESTScopeNamespace)
	f.c.c.Live = mapped{f.c.c.Live, mapper}
	f.apply(f.decide("c2"))
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret", "c2-argo-cluster-secret")
	f.c.c.Live = mapped{f.c.c.Live, meta.NewDefaultRESTMapper(nil)}
	f.reconcile(argo)
	f.expectSecrets("c2-argo-cluster-secret")
}

// mapped is a client of an API with the kinds of a mapper.
type mapped struct {
	client.Client
	mapper meta.RESTMapper
}

func (m mapped) RESTMapper() meta.RESTMapper { return m.mapper }

// Only events after which an Application may be for a cluster no more are looked at.
func TestApplicationMayLeave(t *testing.T) {
	t.Parallel()
	matters, before := applicationMayLeave(), application("c1", "")
	changed := before.DeepCopy()
	changed.SetLabels(map[string]string{"a": "b"})
	for name, test := range map[string]struct {
		now  *unstructured.Unstructured
		want bool
	}{
		"something else": {changed, false}, "the name": {application("c2", ""), true}, "the server": {application("c1", "https://x"), true},
		"that it is left alone": {skipped(application("c1", "")), true},
	} {
		if got := matters.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: test.now}); got != test.want {
			t.Errorf("a change of %s matters: %t, want %t", name, got, test.want)
		}
	}
	if matters.Create(event.CreateEvent{Object: before}) || !matters.Delete(event.DeleteEvent{Object: before}) {
		t.Error("an Application that comes matters, or one that goes does not")
	}
}

// AR-03: what stays is not selected by the labels of its cluster any more, names only Applications of its own users, and goes at once with
// the binding or the acceptance, also while the GitOpsCluster or the Argo CD cannot be used.
func TestRetentionGivesNothingAway(t *testing.T) {
	t.Parallel()
	elsewhere := application("c1", "")
	elsewhere.SetNamespace("other-team")
	f, _ := withApplications(t, application("c1", ""), elsewhere)
	secret := func() *corev1.Secret {
		found := &corev1.Secret{}
		f.apply(client.IgnoreNotFound(f.Get(f.Context(), client.ObjectKey{Namespace: argo, Name: "c1-argo-cluster-secret"}, found)))
		return found
	}
	f.apply(f.Patch(f.Context(), member("c1", nil)[0], client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"env":"prod"}}}`))))
	f.reconcile(argo)
	if secret().Labels["env"] != "prod" {
		t.Fatalf("the Secret has the labels %v", secret().Labels)
	}
	f.apply(f.decide("c2"))
	g := f.reconcile(argo)
	if labels := secret().Labels; labels["env"] != "" || labels[fleet.LabelArgoSecretType] != fleet.ArgoSecretTypeCluster {
		t.Errorf("the Secret that stays has the labels %v", labels)
	}
	if !strings.HasSuffix(g.Status.Message, "as Applications deploy to it: argocd/web, 1 in other namespaces") {
		t.Errorf("the status is %q", g.Status.Message)
	}
	f.apply(f.Patch(f.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"placementRef":{"kind":"Unknown"}}}`))))
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret", "c2-argo-cluster-secret")
	f.apply(f.Delete(f.Context(), bound(argo)))
	f.reconcile(argo)
	f.expectSecrets()
}
