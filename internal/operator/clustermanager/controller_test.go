package clustermanager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repair"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// CM-02: the hub of the operator's cluster belongs to the oldest ClusterManager that wants it.
func TestSameHub(t *testing.T) {
	t.Parallel()
	named := func(name string, age time.Duration, mode operatorv1.InstallMode) *operatorv1.ClusterManager {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(-age))}}
		cm.Spec.DeployOption.Mode = mode
		return cm
	}
	first, second := named("first", 2*time.Hour, operatorv1.InstallModeDefault), named("second", time.Hour, "")
	hosted, twin := named("hosted", 3*time.Hour, operatorv1.InstallModeHosted), named("twin", time.Hour, "")
	c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).
		WithObjects(first.DeepCopy(), second.DeepCopy(), hosted.DeepCopy(), twin.DeepCopy()).Build()}}
	for cm, want := range map[*operatorv1.ClusterManager]string{first: "", second: "first", hosted: "", twin: "first"} {
		if got, err := c.sameHub(t.Context(), cm); err != nil || got != want {
			t.Errorf("%s: %q, %v", cm.Name, got, err)
		}
	}
	if !frame.Older(second, twin) || frame.Older(twin, second) {
		t.Error("of two that are as old, the name does not decide")
	}
}

// CA-41: an operator that may not take over what is installed says so in the same way as that of Klusterlets, and waits for a change.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hub",
		Annotations: map[string]string{upgrade.AnnotationVersion: "v1.4.0"}}}
	c := &Controller{Operator: &frame.Operator{Options: frame.Options{Version: "v1.6.0"}}}
	due, err := c.install(t.Context(), cm)
	applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
	if err != nil || due != 0 || applied == nil || applied.Status != metav1.ConditionFalse || applied.Reason != frame.ReasonVersionRefused {
		t.Errorf("due in %v, %v: %+v", due, err, applied)
	}
}

// CM-24: what is said of the components is never that of an earlier time, whatever keeps the spec from being applied.
func TestComponentsAreReportedWhateverFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit      func(*operatorv1.ClusterManager)
		namespace string // of the operator
		reason    string // of Applied
		fails     bool   // also if what is installed cannot be renewed
	}{
		"an invalid spec": {edit: named("indigo", func(cm *operatorv1.ClusterManager) {
			cm.Spec.DeployOption.Mode = operatorv1.InstallModeHosted
		}), reason: fleet.ReasonHubResourceApplyFailed, fails: true},
		"a version that is refused": {edit: named("indigo", func(cm *operatorv1.ClusterManager) {
			cm.Annotations[upgrade.AnnotationVersion] = "v1.4.0"
		}), reason: frame.ReasonVersionRefused, fails: true},
		"a hub that cannot be reached": {edit: named("cluster-manager", hostedAt("hub.example.com"), func(cm *operatorv1.ClusterManager) {
			cm.Annotations[fleet.AnnotationInstalledMode] = string(operatorv1.InstallModeHosted)
		}), namespace: fleet.NamespaceOperators, reason: fleet.ReasonHubResourceApplyFailed, fails: true},
		"the hub of another": {edit: named("second"), reason: fleet.ReasonHubResourceApplyFailed},
		"an operator in the namespace of the hub": {edit: named("indigo"), namespace: fleet.NamespaceHub,
			reason: fleet.ReasonHubResourceApplyFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeDefault)}}}
			test.edit(cm)
			stored := []client.Object{cm}
			if cm.Name == "second" {
				first := cm.DeepCopy()
				first.Name = "first"
				stored = append(stored, first)
			}
			c := &Controller{Operator: &frame.Operator{Options: frame.Options{Version: "v1.6.0", Namespace: test.namespace},
				Client:     fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(stored...).Build(),
				Secrets:    frame.NewSecrets(t.Context(), clientset.NewClientset().CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
				Management: withoutServer(t), Elsewhere: remote.New(t.Context(), apply.Options{})}}
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
				t.Fatal(err)
			}
			for _, d := range degradations {
				meta.SetStatusCondition(&cm.Status.Conditions, metav1.Condition{Type: d.condition, Status: metav1.ConditionFalse, Reason: d.functional})
			}
			due, err := c.reconciler().Install(t.Context(), cm)
			if due != 0 || (err != nil) != test.fails {
				t.Errorf("due in %s, %v", due, err)
			}
			applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
			if applied == nil || applied.Status != metav1.ConditionFalse || applied.Reason != test.reason {
				t.Errorf("applied: %v", applied)
			}
			for _, d := range degradations {
				condition := meta.FindStatusCondition(cm.Status.Conditions, d.condition)
				if condition.Status != metav1.ConditionTrue || condition.Reason != d.missing {
					t.Errorf("%v", condition)
				}
			}
		})
	}
}

// withoutServer is a cluster whose API server does not run: there is nothing to be seen of it.
func withoutServer(t *testing.T) *apply.Cluster {
	t.Helper()
	cluster, err := apply.NewCluster(&rest.Config{Host: "http://127.0.0.1:1"},
		apply.Options{Label: fleet.LabelCreatedByClusterManager, Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// CM-02: a hub is not installed in the namespace of the operator, with which it would go; one that is there is kept up.
func TestNamespaceOfOperator(t *testing.T) {
	t.Parallel()
	finalizer := func(cm *operatorv1.ClusterManager) { cm.Finalizers = []string{fleet.FinalizerClusterManagerCleanup} }
	for name, test := range map[string]struct {
		edit      func(*operatorv1.ClusterManager)
		namespace string
		refused   bool
	}{
		"another":                {named("indigo"), fleet.NamespaceOperators, false},
		"that of the hub":        {named("indigo"), fleet.NamespaceHub, true},
		"of a hub that is there": {named("indigo", finalizer), fleet.NamespaceHub, false},
		"hosted":                 {named("indigo", hostedAt("hub.example.com")), fleet.NamespaceHub, false},
	} {
		cm := &operatorv1.ClusterManager{}
		test.edit(cm)
		c := &Controller{Operator: &frame.Operator{Options: frame.Options{Namespace: test.namespace},
			Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(cm.DeepCopy()).Build()}}
		const want = "the operator runs in the namespace open-cluster-management-hub, which is that of the hub and would be deleted with it: " +
			"install the operator in another namespace"
		if err := c.checkNamespace(cm); (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if !test.refused {
			continue
		}
		due, err := c.installOnce(t.Context(), cm)
		applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
		if due != 0 || err != nil || applied == nil || applied.Reason != fleet.ReasonHubResourceApplyFailed ||
			!strings.Contains(applied.Message, want) || len(cm.Finalizers) > 0 {
			t.Errorf("%s: due in %s, %v: %v, finalizers %v", name, due, err, applied, cm.Finalizers)
		}
	}
}

// CM-20: a dispute about what the operator writes on the ClusterManager itself is reported, because it is not an error of the reconcile.
func TestDisputedFinalizer(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo"}}
	disputed := &repair.BackoffError{Until: time.Unix(1000, 0)}
	api := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(cm.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return disputed
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return disputed },
	}).Build()
	_, err := (&Controller{Operator: &frame.Operator{Client: api}}).installOnce(t.Context(), cm)
	applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
	if !errors.Is(err, disputed) || applied == nil || applied.Status != metav1.ConditionFalse || applied.Message != err.Error() {
		t.Errorf("%v: %v", err, applied)
	}
}

// The cache has the pods of all components.
func TestPodsAreWatched(t *testing.T) {
	t.Parallel()
	for object, by := range ManagerOptions("operators").Cache.ByObject {
		if _, isPod := object.(*corev1.Pod); !isPod {
			continue
		}
		for _, d := range planOf(named("indigo"), nil).deployments {
			pod := d.Spec.Template.Labels
			if !by.Label.Matches(labels.Set(pod)) || pod[fleet.LabelCreatedByClusterManager] != "indigo" {
				t.Errorf("the pods of %s have the labels %v", d.Name, pod)
			}
		}
		return
	}
	t.Error("no pods are watched")
}
