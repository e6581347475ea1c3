package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

var someConfigs = []schema.GroupVersionResource{{Group: "g", Version: "v1", Resource: "r"}}

// listed is the add-on in the catalogue of the hub.
func listed() *addonv1beta1.ClusterManagementAddOn {
	return &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
}

func configured(addOn *addonv1beta1.ManagedClusterAddOn) {
	addOn.Status.ConfigReferences = []addonv1beta1.ConfigReference{reference("r", "hash")}
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: "Configured", Status: metav1.ConditionTrue,
		Reason: "ConfigurationsConfigured"})
}

func reference(resource, hash string) addonv1beta1.ConfigReference {
	return addonv1beta1.ConfigReference{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "g", Resource: resource},
		DesiredConfig:       &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Name: "one"}, SpecHash: hash},
	}
}

// AF-09 AF-10
func TestStatus(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	h.agent.options.Configs = []schema.GroupVersionResource{{Group: "g", Version: "v1", Resource: "r"},
		{Group: "g", Version: "v2", Resource: "r"}}
	h.reconcile(t)
	status := h.addOn(t).Status
	if status.Namespace != "open-cluster-management-agent-addon" ||
		!slices.Equal(status.SupportedConfigs, []addonv1beta1.ConfigGroupResource{{Group: "g", Resource: "r"}}) {
		t.Errorf("%+v", status)
	}
	if c := h.condition(t, "RegistrationApplied"); c.Reason != "NilRegistration" || c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	h.change(t, func(a *addonv1beta1.ManagedClusterAddOn) {
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, fleet.AnnotationInstallNamespace, "annotated")
	})
	h.reconcile(t)
	if ns := h.addOn(t).Status.Namespace; ns != "annotated" {
		t.Errorf("namespace %q", ns)
	}
	chosen, err := "chosen", error(nil)
	h.agent.options.InstallNamespace = func(context.Context, addon.Installation) (string, error) { return chosen, err }
	h.reconcile(t)
	// What is not known now stays as it was.
	chosen, err = "", addon.ErrNotYet
	h.reconcile(t)
	if ns := h.addOn(t).Status.Namespace; ns != "chosen" {
		t.Errorf("namespace %q", ns)
	}
	err = errors.New("broken")
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error though the namespace is not known")
	}
	if c := h.condition(t, "RegistrationApplied"); c.Reason != "SetPermissionFailed" || !strings.Contains(c.Message, "broken") {
		t.Errorf("%+v", c)
	}
}

// AM-38 AF-11: manifests are requested when they can be determined.
func TestWaits(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed(func(a *addonv1beta1.ManagedClusterAddOn) { a.CreationTimestamp = metav1.NewTime(now) }), listed())
	clock := clocktesting.NewFakePassiveClock(now)
	h.controller.Clock = clock
	h.agent.options.Configs = someConfigs
	h.agent.options.InstallNamespace = func(_ context.Context, i addon.Installation) (string, error) {
		if len(i.AddOn.Status.ConfigReferences) == 0 {
			return "too-early", nil
		}
		return "chosen", nil
	}
	result := h.reconcile(t)
	// Whoever reports to the hub what it supports waits for it; nothing of the agent is anywhere yet, not even its identity.
	if status := h.addOn(t).Status; h.agent.rendered > 0 || len(h.works(t, "c1")) > 0 || status.Namespace != "" ||
		len(status.Conditions) > 0 || len(status.SupportedConfigs) != 1 {
		t.Fatalf("it does not wait for its configurations: %+v", status)
	}
	// If that takes long, it says so.
	if result.RequeueAfter != configuredTimeout {
		t.Errorf("it comes back after %s", result.RequeueAfter)
	}
	clock.SetTime(now.Add(configuredTimeout))
	result = h.reconcile(t)
	if c := h.condition(t, "RegistrationApplied"); c.Status != metav1.ConditionFalse || c.Reason != "PermissionConfigPending" ||
		!strings.Contains(c.Message, "its condition Configured is True") {
		t.Errorf("it does not say what it waits for: %+v", c)
	}
	if status := h.addOn(t).Status; h.agent.rendered > 0 || status.Namespace != "" || result.RequeueAfter != 0 {
		t.Fatalf("it does not wait for its configurations: %+v", status)
	}
	h.change(t, configured)
	h.agent.err = fmt.Errorf("config: %w", addon.ErrNotYet)
	h.reconcile(t)
	if c := h.condition(t, "ManifestApplied"); h.agent.rendered == 0 || len(h.works(t, "c1")) > 0 || c.Type != "" {
		t.Fatalf("rendered %d times, condition %+v", h.agent.rendered, c)
	}
	h.agent.err = nil
	h.reconcile(t)
	before := h.works(t, "c1")
	if len(before) != 1 {
		t.Fatalf("%d works", len(before))
	}
	if ns := h.addOn(t).Status.Namespace; ns != "chosen" {
		t.Errorf("namespace %q", ns)
	}
	// From now on, what is not known changes nothing, and is requested again.
	h.agent.err, h.agent.workload = addon.ErrNotYet, nil
	result = h.reconcile(t)
	if after := h.works(t, "c1"); len(after) != 1 || after[0].ResourceVersion != before[0].ResourceVersion ||
		result.RequeueAfter != notYetAgain {
		t.Errorf("works %+v, back after %v", after, result.RequeueAfter)
	}
	// To return nothing at all is a mistake, which changes nothing either,
	h.agent.err = nil
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil ||
		!strings.Contains(err.Error(), "return an empty Workload") {
		t.Errorf("neither a workload nor an error: %v", err)
	}
	if after := h.works(t, "c1"); len(after) != 1 {
		t.Errorf("%d works", len(after))
	}
	// and nothing on the cluster is something else.
	h.agent.workload = &addon.Workload{}
	h.reconcile(t)
	if after := h.works(t, "c1"); len(after) != 0 {
		t.Errorf("%d works of an add-on without manifests", len(after))
	}
}

// AM-07, AM-38: an add-on is not deployed with defaults while a configuration that it reads is announced, whoever does that. What it
// has been given it goes on with.
func TestWaitsForWhatIsAnnounced(t *testing.T) {
	t.Parallel()
	type references = []addonv1beta1.ConfigReference
	for name, test := range map[string]struct {
		references references
		configured metav1.ConditionStatus
		listed     bool
		deployed   bool
	}{
		"nothing is known":                      {nil, "", true, false},
		"it has none":                           {nil, metav1.ConditionTrue, true, true},
		"it waits for its turn":                 {nil, metav1.ConditionFalse, true, false},
		"announced":                             {references{reference("r", "")}, "", true, false},
		"announced and said so":                 {references{reference("r", "")}, metav1.ConditionFalse, true, false},
		"announced by another":                  {references{reference("r", "")}, "", false, false},
		"one given, one announced":              {references{reference("r", "a"), reference("r", "")}, metav1.ConditionFalse, true, false},
		"announced is what it does not read":    {references{reference("r", "a"), reference("s", "")}, metav1.ConditionFalse, true, true},
		"given":                                 {references{reference("r", "a")}, metav1.ConditionTrue, true, true},
		"given, and it waits for the next turn": {references{reference("r", "a")}, metav1.ConditionFalse, true, true},
		"nobody configures it":                  {nil, "", false, true},
	} {
		objects := []client.Object{cluster("c1"), installed(func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Status.ConfigReferences = test.references
			if test.configured != "" {
				a.Status.Conditions = []metav1.Condition{{Type: "Configured", Status: test.configured}}
			}
		})}
		if test.listed {
			objects = append(objects, listed())
		}
		h := newHub(t, objects...)
		h.agent.options.Configs = someConfigs
		h.reconcile(t)
		if deployed := len(h.works(t, "c1")) > 0; deployed != test.deployed {
			t.Errorf("%s: deployed %t", name, deployed)
		}
	}
}

// AM-08, AM-38: a configuration that is missing is reported by a condition, and is no error: it comes back with it.
func TestMissingConfigIsNoError(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("Thing one %w: create it", config.ErrMissing)
	h := newHub(t, cluster("c1"), installed(configured), listed())
	h.agent.options.Configs = someConfigs
	chosen := missing
	h.agent.options.InstallNamespace = func(context.Context, addon.Installation) (string, error) { return "", chosen }
	result := h.reconcile(t)
	if c := h.condition(t, "RegistrationApplied"); c.Status != metav1.ConditionFalse || c.Reason != "PermissionConfigPending" ||
		!strings.Contains(c.Message, "Thing one does not exist: create it") || result.RequeueAfter != notYetAgain {
		t.Errorf("before it registers: %+v, back after %s", c, result.RequeueAfter)
	}
	chosen, h.agent.err = nil, missing
	result = h.reconcile(t)
	if c := h.condition(t, "ManifestApplied"); c.Status != metav1.ConditionFalse || c.Reason != "ManifestWorkApplyFailed" ||
		!strings.Contains(c.Message, "Thing one does not exist: create it") || result.RequeueAfter != notYetAgain {
		t.Errorf("before it is deployed: %+v, back after %s", c, result.RequeueAfter)
	}
	h.agent.err = nil
	h.reconcile(t)
	applied := h.condition(t, "ManifestApplied")
	// Once it is deployed, the hub says what is missing, and nothing else changes.
	chosen, h.agent.err = missing, missing
	h.change(t, func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: "Configured", Status: metav1.ConditionFalse,
			Reason: "ConfigurationsNotConfigured"})
	})
	h.reconcile(t)
	if c := h.condition(t, "RegistrationApplied"); c.Status != metav1.ConditionTrue || h.condition(t, "ManifestApplied") != applied ||
		len(h.works(t, "c1")) != 1 {
		t.Errorf("when it is gone again: %+v, %+v", c, h.condition(t, "ManifestApplied"))
	}
}

// AM-38: of configurations about which the hub has said something, the hub has said it, and an add-on that is listed only now does not wait
// for long.
func TestSaysNothingOfConfigs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		listed time.Time
		change func(*addonv1beta1.ManagedClusterAddOn)
		back   time.Duration
		says   metav1.ConditionStatus
	}{
		"listed now": {now, func(*addonv1beta1.ManagedClusterAddOn) {}, configuredTimeout, ""},
		"missing": {now.Add(-time.Hour), func(a *addonv1beta1.ManagedClusterAddOn) {
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: "Configured", Status: metav1.ConditionFalse,
				Reason: "ConfigurationsNotConfigured"})
		}, 0, ""},
		// What was said of one that is registered stays.
		"registered": {now.Add(-time.Hour), func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Status.Namespace = "here"
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: "RegistrationApplied", Status: metav1.ConditionTrue,
				Reason: "SetPermissionApplied"})
		}, notYetAgain, metav1.ConditionTrue},
	} {
		entry := listed()
		entry.CreationTimestamp = metav1.NewTime(test.listed)
		h := newHub(t, cluster("c1"), installed(test.change), entry)
		h.agent.options.Configs = someConfigs
		h.agent.options.Registration = &addon.Registration{Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig,
			error) {
			return nil, addon.ErrNotYet
		}}
		result := h.reconcile(t)
		if c := h.condition(t, "RegistrationApplied"); c.Status != test.says || result.RequeueAfter != test.back {
			t.Errorf("%s: %+v, back after %s", name, c, result.RequeueAfter)
		}
	}
}

// AM-04, AF-22: an add-on that nobody configures does not wait for it, nor does one that leaves.
func TestWaitsForNobody(t *testing.T) {
	t.Parallel()
	self := listed()
	self.Annotations = map[string]string{fleet.AnnotationLifecycle: "self"}
	for name, test := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"not in the catalogue":    {[]client.Object{installed()}, true},
		"manages itself":          {[]client.Object{installed(), self}, true},
		"managed by the hub":      {[]client.Object{installed(), listed()}, false},
		"leaves without its turn": {[]client.Object{installed(leaving), listed()}, true},
	} {
		h := newHub(t, append(test.objects, cluster("c1"))...)
		h.agent.options.Configs = someConfigs
		if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if got := h.agent.rendered > 0; got != test.want {
			t.Errorf("%s: rendered %t", name, got)
		}
	}
}

// AF-09: a namespace that is not known yet is not taken for the usual one.
func TestNamespaceNotYet(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	err := fmt.Errorf("config: %w", addon.ErrNotYet)
	h.agent.options.InstallNamespace = func(context.Context, addon.Installation) (string, error) { return "", err }
	h.reconcile(t)
	if status := h.addOn(t).Status; status.Namespace != "" || len(status.Conditions) > 0 || h.agent.rendered > 0 {
		t.Errorf("%+v, rendered %d times", status, h.agent.rendered)
	}
	err = nil
	h.reconcile(t)
	if ns := h.addOn(t).Status.Namespace; ns != "open-cluster-management-agent-addon" || len(h.works(t, "c1")) != 1 {
		t.Errorf("namespace %q, %d works", ns, len(h.works(t, "c1")))
	}
}

// AF-15: while its hooks run, the agent and its access to the hub stay where they are.
func TestNamespaceOfLeaving(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed(leaving, func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Finalizers = append(a.Finalizers, "others.example.com/stay")
		a.Status.Namespace = "here"
	}))
	h.agent.options.InstallNamespace = func(context.Context, addon.Installation) (string, error) { return "there", nil }
	h.reconcile(t)
	if ns := h.addOn(t).Status.Namespace; ns != "here" {
		t.Errorf("namespace %q", ns)
	}
}

// AF-11: without its rights, the agent is not deployed; RG-53: with a token, it is another user.
func TestSubjectNotReady(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	h.agent.options.Registration = &addon.Registration{
		Configs: func(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return []addonv1beta1.RegistrationConfig{addon.KubeClient(i, "a")}, nil
		},
		Permissions: func(_ context.Context, i addon.Installation) ([]client.Object, error) {
			if i.AddOn.Status.Registrations[0].KubeClient.Driver == "" {
				return nil, addon.ErrSubjectNotReady
			}
			binding, err := addon.BindRole(i, "r")
			return []client.Object{binding}, err
		},
	}
	h.reconcile(t)
	if c := h.condition(t, "RegistrationApplied"); c.Status != metav1.ConditionFalse || c.Reason != "PermissionConfigPending" ||
		len(h.works(t, "c1")) > 0 {
		t.Fatalf("%+v", c)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "open-cluster-management:c1:hello:role:r"}}
	for driver, want := range map[addonv1beta1.KubeClientDriver]rbacv1.Subject{
		addonv1beta1.KubeClientDriverCSR: {APIGroup: "rbac.authorization.k8s.io", Kind: "Group",
			Name: "system:open-cluster-management:cluster:c1:addon:hello"},
		addonv1beta1.KubeClientDriverToken: {Kind: "ServiceAccount", Namespace: "c1", Name: "hello-agent"},
	} {
		h.change(t, func(a *addonv1beta1.ManagedClusterAddOn) { a.Status.Registrations[0].KubeClient.Driver = driver })
		h.reconcile(t)
		if !h.exists(t, binding) || len(binding.Subjects) != 1 || binding.Subjects[0] != want || len(h.works(t, "c1")) != 1 {
			t.Errorf("driver %s: %+v", driver, binding.Subjects)
		}
		if got := h.addOn(t).Status.Registrations[0].KubeClient; got.Driver != driver ||
			(got.Subject.User == "system:serviceaccount:c1:hello-agent") != (driver == "token") {
			t.Errorf("driver %s: %+v", driver, got)
		}
	}
}

func leaving(addOn *addonv1beta1.ManagedClusterAddOn) {
	addOn.DeletionTimestamp = &metav1.Time{Time: now}
	addOn.Finalizers = []string{fleet.FinalizerAddOnPreDelete, fleet.DeprecatedFinalizerHostingManifestsCleanup}
}

// An add-on whose cluster does not exist any more is let go, with what is on its hosting cluster.
func TestWithoutCluster(t *testing.T) {
	t.Parallel()
	hosted := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "host", Name: "addon-hello-deploy-hosting-c1-0", UID: "2",
		Labels: map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelAddOnNamespace: "c1"}}}
	h := newHub(t, cluster("host"), hosted, installed(leaving))
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if h.exists(t, installed()) || len(h.works(t, "host")) > 0 || h.agent.rendered > 0 {
		t.Errorf("works left: %d, rendered %d times", len(h.works(t, "host")), h.agent.rendered)
	}
	h = newHub(t, installed())
	h.reconcile(t)
	if len(h.addOn(t).Status.Conditions) > 0 {
		t.Error("something was done without a cluster")
	}
}

// AF-15, gap A6: an add-on whose code fails goes when its hooks are waited for no longer, and says until then what is wrong.
func TestRemovalOfBroken(t *testing.T) {
	t.Parallel()
	broken := errors.New("out of order")
	for name, breaks := range map[string]func(*hello){
		"Manifests": func(a *hello) { a.workload, a.err = nil, broken },
		"InstallNamespace": func(a *hello) {
			a.options.InstallNamespace = func(context.Context, addon.Installation) (string, error) { return "", broken }
		},
		"Configs": func(a *hello) {
			a.options.Registration.Configs = func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
				return nil, broken
			}
		},
		"Permissions": func(a *hello) {
			a.options.Registration.Permissions = func(context.Context, addon.Installation) ([]client.Object, error) { return nil, broken }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			available := cluster("c1")
			meta.SetStatusCondition(&available.Status.Conditions,
				metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue})
			hook := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "last",
				Annotations: map[string]string{fleet.AnnotationAddOnPreDelete: ""}}}
			h := newHub(t, available, installed(leaving, func(a *addonv1beta1.ManagedClusterAddOn) {
				a.Finalizers = append(a.Finalizers, "others.example.com/stay")
			}))
			h.agent.workload.Objects = append(h.agent.workload.Objects, hook)
			h.agent.options.Registration = &addon.Registration{
				Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) { return nil, nil },
			}
			breaks(h.agent)
			pass := func() {
				if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, broken) {
					t.Fatalf("%v, want the error of the add-on: it is to be tried again", err)
				}
			}
			pass()
			if c := h.condition(t, "HookManifestCompleted"); c.Status != metav1.ConditionFalse ||
				!slices.Contains(h.addOn(t).Finalizers, fleet.FinalizerAddOnPreDelete) {
				t.Fatalf("it does not wait for its hooks: %+v, finalizers %v", c, h.addOn(t).Finalizers)
			}
			h.change(t, func(a *addonv1beta1.ManagedClusterAddOn) {
				metav1.SetMetaDataAnnotation(&a.ObjectMeta, fleet.AnnotationPreDeleteTimeout, "0s")
			})
			pass()
			if left := h.addOn(t).Finalizers; !slices.Equal(left, []string{"others.example.com/stay"}) {
				t.Errorf("finalizers left: %v", left)
			}
		})
	}
}

// AM-08, AF-15: an add-on that leaves and has hooks waits for a configuration that is gone, and says which: the hub shows those
// that leave nothing any more.
func TestRemovalMissesConfig(t *testing.T) {
	t.Parallel()
	available := cluster("c1")
	meta.SetStatusCondition(&available.Status.Conditions,
		metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue})
	h := newHub(t, available, installed(leaving, func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: "Configured", Status: metav1.ConditionFalse,
			Reason: "ConfigurationsNotConfigured"})
	}))
	h.agent.options.Configs = someConfigs
	h.agent.workload, h.agent.err = nil, fmt.Errorf("Thing one %w: create it", config.ErrMissing)
	h.reconcile(t)
	if c := h.condition(t, "HookManifestCompleted"); c.Status != metav1.ConditionFalse ||
		!strings.Contains(c.Message, "Thing one does not exist: create it") {
		t.Errorf("%+v", c)
	}
}

// AF-15: an add-on in a namespace that is being deleted is let go without its hooks, which cannot be created there. Any other refusal, and
// that of the namespace of a hosting cluster, which does not wait for the add-on, keeps it.
func TestRemovalInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	refusal := func(causes ...metav1.CauseType) error {
		err := apierrors.NewForbidden(workv1.GroupVersion.WithResource("manifestworks").GroupResource(), "w", errors.New("no"))
		for _, cause := range causes {
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
		}
		return err
	}
	for name, test := range map[string]struct {
		refused string
		err     error
		host    string // of the hooks
		goes    bool
	}{
		"it is being deleted":                    {"c1", refusal(corev1.NamespaceTerminatingCause), "", true},
		"a right is missing":                     {"c1", refusal(), "", false},
		"the hosting cluster's is being deleted": {"host", refusal(corev1.NamespaceTerminatingCause), "host", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, clusterWith("c1", isTrue), clusterWith("host", isTrue), installed(func(a *addonv1beta1.ManagedClusterAddOn) {
				a.DeletionTimestamp = &metav1.Time{Time: now}
				a.Finalizers = []string{"example.com/stay", fleet.FinalizerAddOnPreDelete, fleet.FinalizerHostingAddOnPreDelete}
				if test.host != "" {
					a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: test.host}
				}
			}))
			hook := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "last",
				Annotations: map[string]string{fleet.AnnotationAddOnPreDelete: ""}}}
			if test.host != "" {
				h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
				hook.Annotations[fleet.AnnotationHostedManifestLocation] = "hosting"
			}
			h.agent.workload.Objects = []client.Object{hook}
			h.refuseWorks = map[string]error{test.refused: test.err}
			_, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if (err == nil) != test.goes {
				t.Errorf("error %v", err)
			}
			left := slices.DeleteFunc(h.addOn(t).Finalizers, func(f string) bool { return f == "example.com/stay" })
			if (len(left) == 0) != test.goes {
				t.Errorf("finalizers left: %v", left)
			}
		})
	}
}

// A finalizer stays as long as what it is for could not be cleaned up.
func TestRemovalOfRefusedWork(t *testing.T) {
	t.Parallel()
	hosted := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "host", Name: "addon-hello-deploy-hosting-c1-0", UID: "2",
		Labels: map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelAddOnNamespace: "c1"}}}
	h := newHub(t, cluster("c1"), cluster("host"), hosted, installed(leaving, func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host", fleet.AnnotationPreDeleteTimeout: "0s"}
	}))
	h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
	h.refuseDelete = errors.New("down")
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, h.refuseDelete) {
		t.Fatal(err)
	}
	if left := h.addOn(t).Finalizers; !slices.Contains(left, fleet.DeprecatedFinalizerHostingManifestsCleanup) {
		t.Errorf("finalizers left: %v", left)
	}
}

// AF-16, RG-60: that an add-on is hosted is said with the first word of how it is deployed, and if that fails, too:
// the agent of the cluster would take it to run there otherwise, and have its credentials there.
func TestHostedFromTheFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		addOn    *addonv1beta1.ManagedClusterAddOn
		location string
		mode     func(addon.Installation) string
		fails    bool
		want     metav1.ConditionStatus
	}{
		"deployed":          {installed(), "hosting", addon.AnnotatedHostingCluster, false, metav1.ConditionTrue},
		"refused":           {installed(), "moon", addon.AnnotatedHostingCluster, true, metav1.ConditionTrue},
		"refused elsewhere": {installed(), "moon", nil, true, ""},
		"leaving":           {installed(leaving), "moon", addon.AnnotatedHostingCluster, false, metav1.ConditionTrue},
	} {
		test.addOn.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
		test.addOn.Finalizers = append(test.addOn.Finalizers, "others.example.com/stay")
		h := newHub(t, cluster("c1"), cluster("host"), test.addOn)
		h.agent.options.HostingCluster = test.mode
		h.agent.workload.Objects[0].SetAnnotations(map[string]string{fleet.AnnotationHostedManifestLocation: test.location})
		_, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if got := h.condition(t, "HostingClusterValidity").Status; got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: HostingClusterValidity is %q, want %q: %v", name, got, test.want, err)
		}
	}
}

// A4: an add-on comes after those that it needs, and goes before them.
func TestDependencies(t *testing.T) {
	t.Parallel()
	other := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "base"}}
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "hello",
		Annotations: map[string]string{fleet.AnnotationDependsOn: "base"}}}
	h := newHub(t, cluster("c1"), installed(), other, entry)
	h.reconcile(t)
	if c := h.condition(t, "ManifestApplied"); c.Reason != "WaitingForDependencies" || !strings.HasSuffix(c.Message, ": base") ||
		len(h.works(t, "c1")) > 0 {
		t.Fatalf("%+v, %d works", c, len(h.works(t, "c1")))
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	other.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue}}
	if err := h.Status().Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if len(h.works(t, "c1")) != 1 || h.condition(t, "ManifestApplied").Reason == "WaitingForDependencies" {
		t.Fatalf("%d works", len(h.works(t, "c1")))
	}
	// What is there stays when what it needs fails.
	other.Status.Conditions = nil
	if err := h.Status().Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if len(h.works(t, "c1")) != 1 {
		t.Error("the add-on was taken away")
	}

	needs := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "next",
		Annotations: map[string]string{fleet.AnnotationDependsOn: "hello"}}}
	h = newHub(t, cluster("c1"), installed(), needs)
	h.reconcile(t)
	if err := h.Delete(t.Context(), installed()); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if !h.exists(t, installed()) {
		t.Fatal("the add-on went before one that needs it: nothing holds it")
	}
	if len(h.addOn(t).Finalizers) == 0 {
		t.Error("the add-on went before one that needs it")
	}
	if c := h.condition(t, "HookManifestCompleted"); c.Status != metav1.ConditionFalse ||
		!strings.Contains(c.Message, "delete these, too: next") {
		t.Errorf("it does not say what it waits for: %+v", c)
	}
	if requests := h.controller.waiting(t.Context(), needs); len(requests) != 1 || requests[0].NamespacedName != key {
		t.Errorf("when that goes, %v are asked for", requests)
	}
	if err := h.Delete(t.Context(), needs); err != nil {
		t.Fatal(err)
	}
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if h.exists(t, installed()) {
		t.Errorf("finalizers left: %v", h.addOn(t).Finalizers)
	}

	// One that nobody needs any more is held by nothing.
	h = newHub(t, cluster("c1"), installed(), needs)
	h.reconcile(t)
	needs.Annotations = nil
	if err := h.Delete(t.Context(), needs.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if finalizers := h.addOn(t).Finalizers; len(finalizers) > 0 {
		t.Errorf("finalizers left: %v", finalizers)
	}
}

// A new pass after the one that brings the works has nothing to add: what it says of them is said already.
func TestOneStatusForNewWorks(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	h.agent.options.Health.Mode = addon.HealthManifests
	for pass, want := range []int{2, 0} { // the work, and the status
		h.writes = 0
		if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if h.writes != want {
			t.Errorf("%d writes in pass %d, want %d", h.writes, pass+1, want)
		}
	}
}

// R12: what is left of an add-on that went while no manager ran is removed, and nothing of others.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	binding := func(name, manager, addOn string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: name, Labels: map[string]string{
			fleet.LabelAddOnName: addOn, fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: manager}}}
	}
	left := binding("left", "test", "hello")
	others := []client.Object{binding("manager", "another", "hello"), binding("addon", "test", "other"), binding("nobody", "", "hello")}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everywhere", Labels: left.Labels}}
	h := newHub(t, append(others, left, everywhere)...)
	h.reconcile(t)
	if h.exists(t, left) || h.exists(t, everywhere) {
		t.Error("permissions of an add-on that is gone are left")
	}
	for _, o := range others {
		if !h.exists(t, o) {
			t.Errorf("%s was deleted", o.GetName())
		}
	}
}

// Only RBAC can be given, each object once, and another role takes another binding.
func TestPermissions(t *testing.T) {
	t.Parallel()
	var permissions []client.Object
	h := hubWithPermissions(t, &permissions)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "one"}}
	for what, bad := range map[string][]client.Object{"another kind": {cluster("c2")}, "twice": {binding, binding.DeepCopy()}} {
		permissions = bad
		if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}}}
	permissions = []client.Object{binding, role}
	h.reconcile(t)
	applied := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "b"}}
	if !h.exists(t, applied) || applied.RoleRef.Name != "one" || len(applied.OwnerReferences) != 1 {
		t.Fatalf("%+v", applied)
	}
	if !h.exists(t, role) || len(role.OwnerReferences) > 0 {
		t.Errorf("%+v", role)
	}
	other := binding.DeepCopy()
	other.RoleRef.Name = "two"
	permissions = []client.Object{other}
	h.reconcile(t)
	if !h.exists(t, applied) || applied.RoleRef.Name != "two" || h.exists(t, role) {
		t.Errorf("%+v", applied)
	}
	if !slices.Equal(h.awaited, []string{role.Name}) {
		t.Errorf("reads wait for the end of %v; that of what is made again may go unseen", h.awaited)
	}
}

// hubWithPermissions has an add-on on the cluster c1 whose agent gets these permissions.
func hubWithPermissions(t *testing.T, permissions *[]client.Object) *hub {
	t.Helper()
	h := newHub(t, cluster("c1"), installed())
	h.agent.options.Registration = &addon.Registration{
		Configs:     func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) { return nil, nil },
		Permissions: func(context.Context, addon.Installation) ([]client.Object, error) { return *permissions, nil },
	}
	return h
}

// Rights that are no longer wanted go, and those that are wanted come, even if others can be neither given nor taken.
func TestPermissionsThatAreRefused(t *testing.T) {
	t.Parallel()
	var permissions []client.Object
	h := hubWithPermissions(t, &permissions)
	dropped := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "dropped"}}
	refused := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "refused"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello"}}
	permissions = []client.Object{dropped.DeepCopy()}
	h.reconcile(t)
	if !h.exists(t, dropped.DeepCopy()) {
		t.Fatal("the add-on has no rights")
	}
	h.refuseBindings = errors.New("not reached")
	permissions = []client.Object{refused.DeepCopy()}
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, h.refuseBindings) {
		t.Errorf("error %v", err)
	}
	if !h.exists(t, dropped.DeepCopy()) {
		t.Error("rights go before those that are to replace them can be given")
	}
	h.refuseBindings = apierrors.NewForbidden(rbacv1.Resource("rolebindings"), refused.Name, errors.New("no such rule"))
	permissions = []client.Object{refused.DeepCopy(), role.DeepCopy()}
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, h.refuseBindings) {
		t.Errorf("error %v", err)
	}
	if h.exists(t, dropped.DeepCopy()) || !h.exists(t, role.DeepCopy()) {
		t.Error("a right that is refused keeps the others as they were")
	}
	h.refuseBindings = nil
	h.reconcile(t)
	h.refuseDelete, permissions = errors.New("refused to delete"), nil
	_, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	for _, want := range []string{"delete ClusterRole c1-hello", "delete RoleBinding c1/refused"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, not about %q", err, want)
		}
	}
}

// "Rights gone": the agent of an add-on on a denied cluster is as little to be trusted as that of the cluster. It has its rights back with
// the acceptance of the cluster.
func TestPermissionsOfADeniedCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}}}
	h.agent.options.Registration = &addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) { return nil, nil },
		Permissions: func(context.Context, addon.Installation) ([]client.Object, error) {
			return []client.Object{role.DeepCopy()}, nil
		},
	}
	for _, accepted := range []bool{true, false, true} {
		mc := &clusterv1.ManagedCluster{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, mc); err != nil {
			t.Fatal(err)
		}
		mc.Spec.HubAcceptsClient = accepted
		if err := h.Update(t.Context(), mc); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
		if has := h.exists(t, role.DeepCopy()); has != accepted {
			t.Errorf("the cluster is accepted: %t; the add-on has its rights: %t", accepted, has)
		}
		if c := h.condition(t, "RegistrationApplied"); (c.Status == metav1.ConditionTrue) != accepted {
			t.Errorf("%+v", c)
		}
	}
}

// Another writer writes the status, too, which is tried again like that: nothing is written beside it.
func TestConflict(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	h.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "managedclusteraddons"}, "hello", errors.New("changed"))
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !retry.IsConflict(err) {
		t.Error(err)
	}
}

// A mistake of the author is reported, and tried again.
func TestBrokenManifests(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), installed())
	h.agent.err = errors.New("no template")
	if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error, so it is not tried again")
	}
	if c := h.condition(t, "ManifestApplied"); c.Reason != "ManifestWorkApplyFailed" || !strings.Contains(c.Message, "no template") {
		t.Errorf("%+v", c)
	}
}

// The add-ons of others are left alone, but for the permissions that an add-on had from here before (R12).
func TestForeignAddOn(t *testing.T) {
	t.Parallel()
	binding := func(name, manager string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: name, Labels: map[string]string{
			fleet.LabelAddOnName: "hello", fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: manager}}}
	}
	before, now := binding("before", "test"), binding("now", "another")
	h := newHub(t, cluster("c1"), installed(), before, now)
	h.agent.options.Name = "other"
	h.reconcile(t)
	if len(h.addOn(t).Status.Conditions) > 0 || len(h.works(t, "c1")) > 0 || !h.exists(t, now) {
		t.Error("the add-on of another was touched")
	}
	if h.exists(t, before) {
		t.Error("an add-on that is another manager's by now still has its rights")
	}
}
