package registration

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/agent/addon/single"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-60: while it is not known which Secrets an add-on is to have, those that there are stay as they are: the agent has no credential of
// its own at the moment, or it is not known yet where the agent of the add-on runs. RG-62: its driver is reported all the same, as whoever
// is to say that may wait for it.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hosting string
		waits   []time.Duration
	}{
		"without a credential": {"", []time.Duration{driverTimeout, lastRetry, lastRetry}},
		"somewhere":            {"host", []time.Duration{driverTimeout, install.ModeTimeout - driverTimeout}},
	} {
		hosting := test.hosting
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := addonv1beta1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
			metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationHostingClusterName, hosting)
			addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient}}
			addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue}}
			clock, c := clocktesting.NewFakeClock(start), newController(addonv1beta1.KubeClientDriverCSR)
			c.Clock = clock
			c.hub = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(addOn).WithObjects(addOn).Build()
			c.Store = &hubkubeconfig.Store{Dir: t.TempDir()}
			if hosting != "" {
				for _, file := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey} {
					if err := os.WriteFile(filepath.Join(c.Store.Dir, file), []byte(bootstrap), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			one := id{addOn: "hello", cluster: fleet.AddOnCredentialManaged, namespace: "ns", name: "hello-hub-kubeconfig"}
			marks := c.marks(one.addOn, one.cluster)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: one.name, Labels: marks.Labels,
				Annotations: marks.Annotations}}
			managed := &agentCluster{
				name: one.cluster, client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret).Build(),
				watched: single.New(nil, "secrets", &corev1.Secret{}),
			}
			c.clusters, c.requests = map[string]*agentCluster{one.cluster: managed}, &requests{}
			c.inventory = &secretInventory{ids: map[id]struct{}{one: {}}}

			for _, wait := range test.waits {
				result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)})
				if err != nil || result.RequeueAfter != wait {
					t.Errorf("%+v, %v, want it back in %s", result, err, wait)
				}
				clock.Step(wait)
			}
			if err := managed.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || len(c.inventory.of("hello")) != 1 {
				t.Errorf("the Secret: %v; held: %v", err, c.inventory.of("hello"))
			}
			if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil ||
				meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionCertificateRotated) == nil {
				t.Errorf("%v: %+v", err, addOn.Status)
			}
			if k := addOn.Status.Registrations[0].KubeClient; k == nil || k.Driver != addonv1beta1.KubeClientDriverCSR {
				t.Errorf("the driver is not told: %+v", k)
			}
		})
	}
}

// RG-60: where the agent of an add-on runs is reported by its manager, and is not waited for longer than it takes one to say so.
func TestPlace(t *testing.T) {
	t.Parallel()
	clock, c := clocktesting.NewFakeClock(start), newController(addonv1beta1.KubeClientDriverCSR)
	c.Clock = clock
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello", UID: "1"}}
	expect := func(step time.Duration, want string, wait time.Duration) {
		t.Helper()
		clock.Step(step)
		if got, left := c.clusterOf(addOn); got != want || left != wait {
			t.Errorf("%q, to be known in %s; want %q, %s", got, left, want, wait)
		}
	}
	expect(0, fleet.AddOnCredentialManaged, 0)
	metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationHostingClusterName, "host")
	expect(0, "", install.ModeTimeout)
	expect(time.Hour, "", install.ModeTimeout) // as long as it registers for nothing
	addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient}}
	expect(0, "", install.ModeTimeout)
	expect(install.ModeTimeout-1, "", 1)
	expect(1, fleet.AddOnCredentialManaged, 0)
	addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHostingClusterValidity, Status: metav1.ConditionFalse}}
	expect(0, fleet.AddOnCredentialHosted, 0)
}

// RG-62: the driver is reported with the first report on a certificate, and soon if there are none. A driver that changes is reported at
// once.
func TestDriver(t *testing.T) {
	t.Parallel()
	const csr, token = addonv1beta1.KubeClientDriverCSR, addonv1beta1.KubeClientDriverToken
	undeclared := addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient}
	declared := func(driver addonv1beta1.KubeClientDriver) addonv1beta1.RegistrationConfig {
		return addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{Driver: driver}}
	}
	for name, test := range map[string]struct {
		driver       addonv1beta1.KubeClientDriver
		registration addonv1beta1.RegistrationConfig
		reported     bool
		wait         time.Duration
	}{
		"on the way":      {csr, undeclared, false, driverTimeout},
		"with its report": {csr, undeclared, true, 0},
		"by token":        {token, undeclared, false, 0},
		"no longer":       {csr, declared(token), false, 0},
		"said":            {csr, declared(csr), false, 0},
		"another signer":  {csr, addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner}, false, 0},
	} {
		clock, c := clocktesting.NewFakeClock(start), newController(test.driver)
		c.Clock = clock
		addOn := &addonv1beta1.ManagedClusterAddOn{
			Status: addonv1beta1.ManagedClusterAddOnStatus{Registrations: []addonv1beta1.RegistrationConfig{test.registration}}}
		driver := func() addonv1beta1.KubeClientDriver {
			if k := addOn.Status.Registrations[0].KubeClient; k != nil {
				return k.Driver
			}
			return ""
		}
		if test.wait > 0 {
			for _, at := range []time.Duration{0, test.wait - 1} {
				clock.SetTime(start.Add(at))
				if due := c.declareDriver(addOn, test.reported); !due.Equal(start.Add(test.wait)) || driver() != "" {
					t.Errorf("%s, after %s: %q, again at %s", name, at, driver(), due)
				}
			}
			clock.SetTime(start.Add(test.wait))
		}
		due := c.declareDriver(addOn, test.reported)
		if want := test.registration.Type == addonv1beta1.KubeClient; !due.IsZero() || (driver() == test.driver) != want || len(c.silent) > 0 {
			t.Errorf("%s: %q, again at %s", name, driver(), due)
		}
	}
}

// RG-60: the usual namespace of agents is made, and made again after it was deleted, also for add-ons without a Secret. One that is
// being deleted is not taken for it.
func TestNamespace(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(start)
	going := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAgentAddOn, DeletionTimestamp: &deleted,
		Finalizers: []string{"test/keep"}}}
	clock, c := clocktesting.NewFakeClock(start), newController(addonv1beta1.KubeClientDriverCSR)
	c.Clock, c.ready = clock, map[string]time.Time{}
	managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(going).Build()
	c.clusters = map[string]*agentCluster{fleet.AddOnCredentialManaged: {name: fleet.AddOnCredentialManaged, client: managed}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	addOn.Status.Namespace = fleet.NamespaceAgentAddOn
	prepare := func() error { return c.prepare(t.Context(), addOn, fleet.AddOnCredentialManaged) }
	there := func() error { return managed.Get(t.Context(), client.ObjectKeyFromObject(going), &corev1.Namespace{}) }

	if err := prepare(); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("while it is being deleted: %v", err)
	}
	if err := managed.Patch(t.Context(), going,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(prepare(), there()); err != nil {
		t.Errorf("when it has gone: %v", err)
	}
	if err := managed.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAgentAddOn}}); err != nil {
		t.Fatal(err)
	}
	clock.Step(resync)
	if err := errors.Join(prepare(), there()); err != nil {
		t.Errorf("some time after it was deleted: %v", err)
	}
}

// An agent that may make the namespace of add-ons' agents, and not look at it, takes an existing one to stay.
func TestNamespaceThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAgentAddOn}}
	blind := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(there).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(corev1.Resource("namespaces"), there.Name, errors.New("no right"))
		},
	}).Build()
	if err := (&agentCluster{client: blind}).ensureNamespace(t.Context(), there.Name); err != nil {
		t.Error(err)
	}
}
