package addons

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/manager"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const engineSigner = "example.com/engine"

// engineAgent is an add-on of a namespace with what a test puts there. It has an identity of its own on the hub.
type engineAgent struct {
	options addon.Options

	mu      sync.Mutex
	objects []client.Object
	roles   []string // bound in the namespace of the cluster
	shared  string   // a namespace in which the ClusterRole view is bound, too
	broken  error    // of Manifests
}

func (a *engineAgent) set(change func(*engineAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *engineAgent) Options() addon.Options { return a.options }

func (a *engineAgent) Manifests(context.Context, addon.Installation) (*addon.Workload, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &addon.Workload{Objects: slices.Clone(a.objects)}, a.broken
}

func (a *engineAgent) register(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	return []addonv1beta1.RegistrationConfig{
		addon.KubeClient(i, i.AddOn.Name),
		{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
			SignerName: engineSigner, Subject: addonv1beta1.Subject{User: i.AddOn.Name, Groups: []string{"engines"}}}},
	}, nil
}

func (a *engineAgent) permissions(_ context.Context, i addon.Installation) (objects []client.Object, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.roles {
		binding, err := addon.BindRole(i, name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, binding,
			addon.NewRole(i, name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}))
	}
	if a.shared != "" {
		binding, err := addon.BindClusterRoleIn(i, a.shared, "view")
		if err != nil {
			return nil, err
		}
		objects = append(objects, binding)
	}
	return objects, nil
}

// newEngineAgent is an add-on that registers, with the objects.
func newEngineAgent(name string, objects ...client.Object) *engineAgent {
	a := &engineAgent{objects: objects, options: addon.Options{Name: name}}
	a.options.Registration = &addon.Registration{Configs: a.register, Permissions: a.permissions}
	return a
}

// runEngine runs the manager of an add-on.
func runEngine(t *testing.T, a *engineAgent) *manager.Manager {
	t.Helper()
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(config, manager.Options{Name: a.options.Name + "-manager"})
	if err != nil {
		t.Fatal(err)
	}
	m.Add(a)
	framework.Create(t, framework.Hub.Client(t), &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: a.options.Name}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := env.Receive(t, ended); err != nil {
			t.Errorf("the manager of the add-on: %v", err)
		}
	})
	return m
}

// installEngine creates the add-on on a cluster.
func installEngine(t *testing.T, cluster, name string) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	framework.Create(t, framework.Hub.Client(t), addOn)
	return addOn
}

// awaitEngine waits until a condition of the add-on has the status and the reason, and returns the add-on in addOn.
func awaitEngine(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, kind string, status metav1.ConditionStatus,
	reason string) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	c := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		found = meta.FindStatusCondition(addOn.Status.Conditions, kind)
		if found == nil || found.Status != status || found.Reason != reason {
			return fmt.Errorf("condition %s of %s is %+v, of %+v; want %s, %s", kind, addOn.Name, found, addOn.Status.Conditions, status, reason)
		}
		return nil
	})
	return found
}

func engineDeployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}}}},
	}}
}

func engineConfigMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"key": value}}
}

// touchEngine brings the add-on to its manager's attention.
func touchEngine(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, annotation, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	if err := framework.Hub.Client(t).Patch(t.Context(), addOn.DeepCopy(), framework.Merge(patch)); err != nil {
		t.Fatal(err)
	}
}

// AF-07 AF-09 AF-10 AF-12 AF-14 AF-23 AF-24: the life of an add-on, from installation to removal.
func TestEngineLife(t *testing.T) {
	t.Parallel()
	const cluster, name = "engine-life", "engine-life"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	a := newEngineAgent(name, engineConfigMap(ns, "first", "1"), engineDeployment(ns, "agent"))
	a.options.Health.Mode = addon.HealthDeployments
	a.options.Configs = []schema.GroupVersionResource{{Group: "addon.open-cluster-management.io", Version: "v1beta1",
		Resource: "addondeploymentconfigs"}}
	a.roles = []string{"engine-reader"}
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)

	awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied")
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	awaitEngine(t, addOn, "Available", metav1.ConditionTrue, "ProbeAvailable")
	status := addOn.Status
	if status.Namespace != "open-cluster-management-agent-addon" || status.HealthCheck.Mode != "Customized" ||
		len(status.SupportedConfigs) != 1 || status.SupportedConfigs[0].Resource != "addondeploymentconfigs" || len(status.Registrations) != 2 ||
		status.Registrations[0].KubeClient.Subject.User != fleet.AddOnUser(cluster, name, name) ||
		status.Registrations[1].CustomSigner.SignerName != engineSigner {
		t.Errorf("status: %+v", status)
	}
	work := &workv1.ManifestWork{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: "addon-" + name + "-deploy-0"}, work); err != nil {
		t.Fatal(err)
	}
	if work.Labels["open-cluster-management.io/addon-name"] != name || !metav1.IsControlledBy(work, addOn) &&
		(len(work.OwnerReferences) != 1 || work.OwnerReferences[0].UID != addOn.UID) {
		t.Errorf("work: labels %v, owners %+v", work.Labels, work.OwnerReferences)
	}

	// What a user changes on the hub is put right.
	if err := h.Patch(t.Context(), work.DeepCopy(), framework.Merge(`{"spec":{"workload":{"manifests":[`+framework.ConfigMap(ns, "first", "0")+
		`]}}}`)); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
			return err
		}
		if len(work.Spec.Workload.Manifests) != 2 {
			return fmt.Errorf("the work has %d manifests", len(work.Spec.Workload.Manifests))
		}
		return nil
	})

	// Another version, elsewhere.
	a.set(func(a *engineAgent) { a.objects[0] = engineConfigMap(ns, "first", "2") })
	touchEngine(t, addOn, "addon.open-cluster-management.io/v1alpha1-install-namespace", "engine-elsewhere")
	framework.AwaitConfigMap(t, m, ns, "first", "2")
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil || addOn.Status.Namespace == "engine-elsewhere" {
			return err
		}
		return fmt.Errorf("namespace %q", addOn.Status.Namespace)
	})

	// A mistake of the add-on's author leaves what is there, and is told.
	a.set(func(a *engineAgent) { a.broken = errors.New("no template for this cluster") })
	touchEngine(t, addOn, "example.com/attempt", "1")
	if cond := awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionFalse, "ManifestWorkApplyFailed"); !strings.Contains(cond.Message,
		"no template for this cluster") {
		t.Errorf("message: %s", cond.Message)
	}
	framework.AwaitConfigMap(t, m, ns, "first", "2")
	a.set(func(a *engineAgent) { a.broken = nil })
	touchEngine(t, addOn, "example.com/attempt", "2")
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")

	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{addOn, work, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "engine-reader"}}} {
		framework.AwaitGone(t, h, o)
	}
	framework.AwaitGone(t, m, engineConfigMap(ns, "first", ""))
	framework.AwaitGone(t, m, engineDeployment(ns, "agent"))
}

// AF-15: before an add-on is removed, its hook runs, and the rest stays meanwhile.
func TestEngineHook(t *testing.T) {
	t.Parallel()
	const cluster, name = "engine-hook", "engine-hook"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	hook := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hook",
		Annotations: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""}}}
	hook.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "hook", Image: "example.com/hook:1"}}}
	a := newEngineAgent(name, engineConfigMap(ns, "stays", "1"), hook)
	a.options.Health.Mode = addon.HealthManifests
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "Available", metav1.ConditionTrue, "WorkApplied")
	if !slices.Contains(addOn.Finalizers, "addon.open-cluster-management.io/addon-pre-delete") {
		t.Errorf("finalizers: %v", addOn.Finalizers)
	}
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(hook), &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hook runs before the add-on is removed: %v", err)
	}

	// Without the agent nothing runs the hook.
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	awaitEngine(t, addOn, "HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted")
	framework.AwaitConfigMap(t, m, ns, "stays", "1")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, m, engineConfigMap(ns, "stays", ""))
}

// AF-10 R12: permissions are applied, kept, replaced and pruned, and nothing of them is left when the add-on is gone.
func TestEnginePermissions(t *testing.T) {
	t.Parallel()
	const cluster, name, shared = "engine-rights", "engine-rights", "engine-rights-shared"
	framework.AcceptAll(t, cluster)
	h := framework.Hub.Client(t)
	framework.Namespace(t, h, shared)
	a := newEngineAgent(name)
	a.roles, a.shared = []string{"one", "two"}, shared
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied")

	outside := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: "open-cluster-management:" + cluster + ":" + name +
		":clusterrole:view"}}
	inside := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "open-cluster-management:" + cluster + ":" + name +
		":role:one"}}
	group := fleet.AddOnGroup(cluster, name)
	for _, binding := range []*rbacv1.RoleBinding{outside, inside} {
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
			t.Fatal(err)
		}
		if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != "Group" || binding.Subjects[0].Name != group ||
			binding.Labels["open-cluster-management.io/addon-name"] != name || binding.Labels["open-cluster-management.io/cluster-name"] != cluster {
			t.Errorf("binding %+v", binding)
		}
	}
	if !metav1.IsControlledBy(inside, addOn) || len(outside.OwnerReferences) > 0 {
		t.Errorf("owners: inside %+v, outside %+v", inside.OwnerReferences, outside.OwnerReferences)
	}

	// To delete or change them changes nothing.
	if err := h.Delete(t.Context(), outside); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		return h.Get(ctx, client.ObjectKeyFromObject(outside), &rbacv1.RoleBinding{})
	})
	inside.Subjects = append(inside.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"})
	if err := h.Update(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(inside), inside); err != nil || len(inside.Subjects) == 1 {
			return err
		}
		return fmt.Errorf("subjects %+v", inside.Subjects)
	})

	// What is no longer wanted goes.
	a.set(func(a *engineAgent) { a.roles = []string{"two"} })
	touchEngine(t, addOn, "example.com/attempt", "1")
	framework.AwaitGone(t, h, inside)
	framework.AwaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "one"}})

	// What another user has made is not taken.
	foreign := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "foreign"}}
	framework.Create(t, h, foreign)
	a.set(func(a *engineAgent) { a.roles = []string{"two", "foreign"} })
	touchEngine(t, addOn, "example.com/attempt", "2")
	if cond := awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionFalse, "SetPermissionFailed"); !strings.Contains(cond.Message,
		cluster+`/foreign: roles.rbac.authorization.k8s.io "foreign" already exists`) {
		t.Errorf("message: %s", cond.Message)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || len(foreign.Rules) > 0 {
		t.Errorf("a role that is not ours: %v, rules %+v", err, foreign.Rules)
	}
	a.set(func(a *engineAgent) { a.roles = []string{"two"} })
	touchEngine(t, addOn, "example.com/attempt", "3")
	awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied")

	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, outside)
	framework.AwaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "two"}})
}

// engineAuthority is a certification authority of its own.
func engineAuthority(t *testing.T) (certificate, key []byte) {
	t.Helper()
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "engine"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	key = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signer)})
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), key
}

// engineRequest is a certificate request as the agent of a cluster makes them for an add-on.
func engineRequest(t *testing.T, cluster, name, signer string, subject pkix.Name) (*certificatesv1.CertificateSigningRequest, []byte) {
	t.Helper()
	labels := framework.OfCluster(cluster)
	labels[fleet.LabelAddOnName] = name
	csr, key := framework.NewRequest(t, subject, labels, fleet.AddOnDNSName(name))
	csr.Spec.SignerName, csr.Spec.ExpirationSeconds = signer, ptr.To[int32](3600)
	return csr, key
}

func engineSubject(cluster, name string) pkix.Name {
	return pkix.Name{CommonName: fleet.AddOnUser(cluster, name, name), Organization: fleet.AddOnGroups(cluster, name)}
}

func awaitEngineIssued(t *testing.T, csr *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	admin := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil || len(csr.Status.Certificate) > 0 {
			return err
		}
		return fmt.Errorf("CertificateSigningRequest %s for %s has no certificate: %+v", csr.Name, csr.Spec.SignerName, csr.Status)
	})
}

// AF-05 AF-06 AF-28 RG-60 A2 AF-24: an agent gets the certificates that its add-ons register for, with the rights of these on its own
// cluster; and nobody gets anything else.
func TestEngineCertificates(t *testing.T) {
	t.Parallel()
	const cluster, other, name = "engine-certs", "engine-certs-other", "engine-certs"
	framework.AcceptAll(t, cluster, other)
	h := framework.Hub.Client(t)
	a := newEngineAgent(name)
	a.roles = []string{"engine-certs-reader"}
	caCert, caKey := engineAuthority(t)
	sign, err := addon.SignWith(caCert, caKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.options.Registration.Sign = sign
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	installEngine(t, other, name)
	awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied")
	framework.Create(t, h, engineConfigMap(cluster, "own", "1"), engineConfigMap(other, "own", "1"))
	agent := framework.AsAgent(t, framework.Hub, cluster)

	own, _ := engineRequest(t, cluster, name, engineSigner, pkix.Name{CommonName: name, Organization: []string{"engines"}})
	csr, key := engineRequest(t, cluster, name, fleet.SignerKubeAPIServerClient, engineSubject(cluster, name))
	framework.Create(t, agent, own, csr)
	awaitEngineIssued(t, own)
	awaitEngineIssued(t, csr)
	if c := csr.Status.Conditions[0]; c.Reason != "AutoApprovedByHubCSRApprovingController" ||
		c.Message != "Auto approving addon agent certificate." {
		t.Errorf("approved with %+v", c)
	}
	config := framework.AnonymousConfig(t, framework.Hub)
	config.CertData, config.KeyData = csr.Status.Certificate, key
	identity := env.ClientFor(t, config)
	if err := identity.Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: "own"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the add-on's own ConfigMap: %v", err)
	}
	if err := identity.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "own"}, &corev1.ConfigMap{}); !apierrors.IsForbidden(err) {
		t.Errorf("the ConfigMap of another cluster: %v", err)
	}

	for what, forged := range map[string]struct {
		as      client.Client
		signer  string
		subject pkix.Name
	}{
		"requester who is no agent": {h, fleet.SignerKubeAPIServerClient, engineSubject(cluster, name)},
		"add-on of another cluster": {agent, fleet.SignerKubeAPIServerClient, engineSubject(other, name)},
		"another add-on":            {agent, fleet.SignerKubeAPIServerClient, engineSubject(cluster, "other")},
		"one group more": {agent, fleet.SignerKubeAPIServerClient, pkix.Name{CommonName: fleet.AddOnUser(cluster, name, name),
			Organization: append(fleet.AddOnGroups(cluster, name), "admins")}},
		"the agent of the cluster":     {agent, fleet.SignerKubeAPIServerClient, framework.AgentSubject(cluster, "agent2")},
		"signer of another user":       {agent, "example.com/other", engineSubject(cluster, name)},
		"identity by the wrong signer": {agent, engineSigner, engineSubject(cluster, name)},
	} {
		csr, _ := engineRequest(t, cluster, name, forged.signer, forged.subject)
		if err := forged.as.Create(t.Context(), csr); apierrors.IsForbidden(err) {
			continue // the hub does not even take it
		} else if err != nil {
			t.Fatal(err)
		}
		awaitEngineWithheld(t, addOn, csr.Name)
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil || len(csr.Status.Conditions) > 0 {
			t.Errorf("%s: %v, %+v", what, err, csr.Status.Conditions)
		}
	}

	// What is withheld is issued once an administrator does what the event says.
	meant, _ := engineRequest(t, cluster, name, fleet.SignerKubeAPIServerClient, engineSubject(cluster, name))
	framework.Create(t, h, meant)
	framework.FollowAdvice(t, h, awaitEngineWithheld(t, addOn, meant.Name), "certificate approve")
	awaitEngineIssued(t, meant)

	// Whoever could rewrite the status of the add-on would gain nothing.
	status := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"subject":{"user":"admin","groups":["admins"]}}}]}}`
	if err := h.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(status)); err != nil {
		t.Fatal(err)
	}
	admin, _ := engineRequest(t, cluster, name, fleet.SignerKubeAPIServerClient,
		pkix.Name{CommonName: "admin", Organization: []string{"admins"}})
	framework.Create(t, agent, admin)
	awaitEngineWithheld(t, addOn, admin.Name)
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil || len(addOn.Status.Registrations) == 2 {
			return err
		}
		return fmt.Errorf("registrations %+v", addOn.Status.Registrations)
	})

	// RG-60: as long as the add-on is there it has its access, for its hooks.
	hold := func(text string) {
		t.Helper()
		if err := h.Patch(t.Context(), addOn.DeepCopy(), framework.Merge(text)); err != nil {
			t.Fatal(err)
		}
	}
	hold(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	own, _ = engineRequest(t, cluster, name, engineSigner, pkix.Name{CommonName: name, Organization: []string{"engines"}})
	csr, _ = engineRequest(t, cluster, name, fleet.SignerKubeAPIServerClient, engineSubject(cluster, name))
	framework.Create(t, agent, own, csr)
	awaitEngineIssued(t, own)
	awaitEngineIssued(t, csr)
	hold(`{"metadata":{"finalizers":null}}`)
	framework.AwaitGone(t, h, addOn)
}

// awaitEngineWithheld waits for the event that says why a request is not approved, and returns what it says.
func awaitEngineWithheld(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, csr string) (note string) {
	t.Helper()
	return awaitAddOnEvent(t, addOn, "AddOnCertificateApprovalWithheld", csr)
}

// awaitAddOnEvent waits for an event about an add-on whose note has the text, and returns the note.
func awaitAddOnEvent(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, reason, text string) (note string) {
	t.Helper()
	h := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := h.List(ctx, events, client.InNamespace(addOn.Namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Name == addOn.Name && strings.Contains(e.Note, text) {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("no event %s about %s among %d", reason, text, len(events.Items))
	})
	return note
}

// AF-16: the agent of an add-on in hosted mode is on the hosting cluster, as soon as there is one, and goes from there with the
// add-on.
func TestEngineHosted(t *testing.T) {
	t.Parallel()
	const cluster, hosting, name = "engine-hosted", "engine-hosting", "engine-hosted"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	at := func(place string) *corev1.ConfigMap {
		o := engineConfigMap(ns, place, "1")
		o.Annotations = map[string]string{"addon.open-cluster-management.io/hosted-manifest-location": place}
		return o
	}
	a := newEngineAgent(name, at("managed"), at("hosting"), at("none"))
	a.options.HostingCluster, a.options.Health.Mode = addon.AnnotatedHostingCluster, addon.HealthManifests
	runEngine(t, a)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name,
		Annotations: map[string]string{"addon.open-cluster-management.io/hosting-cluster-name": hosting}}}
	framework.Create(t, h, addOn)
	awaitEngine(t, addOn, "HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid")
	env.Join(t, framework.Hub, framework.Managed, hosting)
	awaitEngine(t, addOn, "HostingClusterValidity", metav1.ConditionTrue, "HostingClusterValid")
	awaitEngine(t, addOn, "HostingManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	for place, namespace := range map[string]string{"managed": cluster, "hosting": hosting} {
		works := &workv1.ManifestWorkList{}
		if err := h.List(t.Context(), works, client.InNamespace(namespace), client.MatchingLabels{fleet.LabelAddOnName: name}); err != nil {
			t.Fatal(err)
		}
		if len(works.Items) != 1 || len(works.Items[0].Spec.Workload.Manifests) != 1 {
			t.Errorf("%d works in %s", len(works.Items), namespace)
		}
		framework.AwaitConfigMap(t, m, ns, place, "1")
	}
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "none"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("a manifest that is to be nowhere: %v", err)
	}
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, m, at("hosting"))
	framework.AwaitGone(t, m, at("managed"))
}

// A cluster that leaves takes its add-ons with it, whether they have hooks or not.
func TestEngineLeavingCluster(t *testing.T) {
	t.Parallel()
	const cluster, name, shared = "engine-leaves", "engine-leaves", "engine-leaves-shared"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	framework.Namespace(t, h, shared)
	ns := framework.Namespace(t, m, cluster)
	hook := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hook",
		Annotations: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""}}}
	hook.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "hook", Image: "example.com/hook:1"}}}
	a := newEngineAgent(name, engineConfigMap(ns, "object", "1"), hook)
	a.options.Health.Mode, a.shared = addon.HealthManifests, shared
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "Available", metav1.ConditionTrue, "WorkApplied")
	mc := framework.AcceptedCluster(cluster)
	if err := h.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, h, mc)
	framework.AwaitGone(t, m, engineConfigMap(ns, "object", ""))
	framework.AwaitGone(t, h, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: shared,
		Name: "open-cluster-management:" + cluster + ":" +
			name + ":clusterrole:view"}})
}
