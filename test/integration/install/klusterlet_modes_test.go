package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// awaitExists waits until an object exists, and returns it.
func awaitExists[T client.Object](t *testing.T, c client.Client, object T) T {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(object), object) })
	return object
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func changeKlusterlet(t *testing.T, c client.Client, name string, change func(*operatorv1.Klusterlet)) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		k := &operatorv1.Klusterlet{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
			return err
		}
		change(k)
		return c.Update(ctx, k)
	})
}

// KL-03, KL-28, KL-32, KL-33: one process has both parts with the account of the work agent; what is changed or deleted is restored; a
// change of the mode and of the namespace leaves nothing behind, once the agent has a credential in the new one; works stay when the agent
// goes.
func TestKlusterletSingleton(t *testing.T) {
	t.Parallel()
	const name, applied = "kl-singleton", "applied-by-singleton"
	cluster := klusterletCluster(t)
	c, namespace := cluster.Client(t), "open-cluster-management-"+name
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeSingleton))
	awaitKlusterlet(
		t,
		c,
		name,
		"Applied=True/KlusterletApplied",
		"Available=True/KlusterletAvailable",
		"WorkDesiredDegraded=False/DeploymentsFunctional",
	)
	framework.Create(t, c, bootstrapSecret(t, namespace, fleet.SecretBootstrapHubKubeconfig))
	agent := runPod(t, cluster, namespace, name+"-agent")
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=False/HubConnectionFunctional")
	w := framework.Work(name, name, framework.ConfigMap("default", applied, "x"))
	framework.Create(t, framework.Hub.Client(t), w)
	framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionApplied, metav1.ConditionTrue)
	// It could not renew its Lease any more once its account is deleted.
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}

	deployment := awaitExists(t, c, &appsv1.Deployment{ObjectMeta: named(namespace, name+"-agent")})
	scaled := deployment.DeepCopy()
	scaled.Spec.Replicas = ptr.To(int32(5))
	role := awaitExists(t, c, &rbacv1.ClusterRole{ObjectMeta: named("", "open-cluster-management:"+name+"-work:execution")})
	weakened := role.DeepCopy()
	weakened.Rules = weakened.Rules[1:]
	account := awaitExists(t, c, &corev1.ServiceAccount{ObjectMeta: named(namespace, name+"-work-sa")})
	if err := errors.Join(
		c.Update(t.Context(), scaled),
		c.Update(t.Context(), weakened),
		c.Delete(t.Context(), account.DeepCopy()),
	); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		d, r, a := &appsv1.Deployment{}, &rbacv1.ClusterRole{}, &corev1.ServiceAccount{}
		if err := errors.Join(c.Get(ctx, client.ObjectKeyFromObject(deployment), d), c.Get(ctx, client.ObjectKeyFromObject(role), r),
			c.Get(ctx, client.ObjectKeyFromObject(account), a)); err != nil {
			return err
		}
		if *d.Spec.Replicas != *deployment.Spec.Replicas || len(r.Rules) != len(role.Rules) || a.UID == account.UID {
			return fmt.Errorf("%d replicas, %d rules, account %s", *d.Spec.Replicas, len(r.Rules), a.UID)
		}
		return nil
	})

	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = operatorv1.InstallModeDefault })
	framework.AwaitGone(t, c, deployment)
	awaitExists(t, c, &appsv1.Deployment{ObjectMeta: named(namespace, name+"-registration-agent")})
	awaitExists(t, c, &appsv1.Deployment{ObjectMeta: named(namespace, name+"-work-agent")})
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) {
		k.Spec.DeployOption.Mode, k.Spec.Namespace = operatorv1.InstallModeSingleton, namespace+"-2"
	})
	awaitExists(t, c, &appsv1.Deployment{ObjectMeta: named(namespace+"-2", name+"-agent")})
	awaitKlusterletMessage(t, c, name, fleet.ConditionApplied, fleet.ReasonKlusterletApplied, "its namespace was "+namespace+", ")
	credential := awaitExists(t, c, &corev1.Secret{ObjectMeta: named(namespace, fleet.SecretHubKubeconfig)})
	framework.Create(t, c, &corev1.Secret{ObjectMeta: named(namespace+"-2", fleet.SecretHubKubeconfig), Data: credential.Data})
	framework.AwaitGone(t, c, &corev1.Namespace{ObjectMeta: named("", namespace)})

	k := awaitKlusterlet(t, c, name)
	removeKlusterlet(t, c, name)
	framework.AwaitConfigMap(t, c, "default", applied, "x")
	records := &workv1.AppliedManifestWorkList{}
	if err := c.List(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, w := range records.Items {
		if w.Spec.AgentID == string(k.UID) {
			found = true
			if len(w.Finalizers) > 0 {
				t.Errorf("AppliedManifestWork %s is held by %v", w.Name, w.Finalizers)
			}
		}
	}
	if !found {
		t.Errorf("there is no AppliedManifestWork of agent %s", k.UID)
	}
}

// managedKubeconfig is the Secret that leads a hosted Klusterlet to its cluster.
func managedKubeconfig(t *testing.T, namespace string, cluster *env.Server) *corev1.Secret {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		t.Fatal(err)
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: named(namespace, fleet.SecretExternalManagedKubeconfig),
		Data:       map[string][]byte{fleet.KeyKubeconfig: content},
	}
}

// KL-04, KL-07, KL-25, KL-30: an agent runs away from the cluster that it manages, with rights and a token that the operator gives it
// there.
func TestKlusterletHosted(t *testing.T) {
	t.Parallel()
	const name = "kl-hosted"
	cluster := klusterletCluster(t)
	c, remote := cluster.Client(t), framework.Managed.Client(t)
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeHosted))
	k := awaitKlusterlet(
		t,
		c,
		name,
		"ReadyToApply=False/KlusterletPrepareFailed",
		"Applied=False/ManagedClusterResourceApplyFailed",
		"Available=False/GetDeploymentFailed",
		"RegistrationDesiredDegraded=True/GetDeploymentFailed",
		"WorkDesiredDegraded=True/GetDeploymentFailed",
	)
	if message := conditionOf(
		k,
		fleet.ConditionReadyToApply,
	).Message; !strings.Contains(
		message,
		"Secret "+name+"/external-managed-kubeconfig",
	) {
		t.Errorf("the condition does not say what is missing: %s", message)
	}
	framework.Create(t, c, managedKubeconfig(t, name, framework.Managed), bootstrapSecret(t, name, fleet.SecretBootstrapHubKubeconfig))
	k = awaitKlusterlet(t, c, name, "ReadyToApply=True/KlusterletPrepared", "Applied=True/KlusterletApplied")
	if !slices.Contains(k.Finalizers, fleet.FinalizerKlusterletHostedCleanup) {
		t.Errorf("it has the finalizers %v", k.Finalizers)
	}
	runPod(t, cluster, name, name+"-registration-agent")
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=False/HubConnectionFunctional", "Available=True/KlusterletAvailable")
	agent := runPod(t, cluster, name, name+"-work-agent")
	w := framework.Work(name, name, framework.ConfigMap("default", name, "x"))
	framework.Create(t, framework.Hub.Client(t), w)
	framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, remote, "default", name, "x")

	token := awaitExists(t, c, &corev1.Secret{ObjectMeta: named(name, fleet.SecretExternalManagedKubeconfigWork)})
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: named("", "open-cluster-management:"+name+"-work:agent")}
	if err := errors.Join(c.Delete(t.Context(), token.DeepCopy()), remote.Delete(t.Context(), binding.DeepCopy())); err != nil {
		t.Fatal(err)
	}
	awaitExists(t, c, &corev1.Secret{ObjectMeta: named(name, token.Name)})
	awaitExists(t, remote, binding)

	if err := framework.Hub.Client(t).Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, framework.Hub.Client(t), w)
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	removeKlusterlet(t, c, name)
	expectNothingLeft(t, remote, name)
}

// KL-05: both parts in one process away from the cluster, which may be the operator's own; and the way from there to Singleton, which takes
// away what only hosted agents have.
func TestKlusterletSingletonHosted(t *testing.T) {
	t.Parallel()
	const name = "kl-single-hosted"
	cluster := klusterletCluster(t)
	c := cluster.Client(t)
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: named("", name)}, managedKubeconfig(t, name, cluster),
		newKlusterlet(name, operatorv1.InstallModeSingletonHosted))
	awaitKlusterlet(t, c, name, "ReadyToApply=True/KlusterletPrepared", "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable")
	awaitExists(t, c, &corev1.Secret{ObjectMeta: named(name, fleet.SecretExternalManagedKubeconfigAgent)})
	awaitExists(t, c, &corev1.ServiceAccount{ObjectMeta: named("open-cluster-management-"+name, name+"-work-sa")})
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = operatorv1.InstallModeSingleton })
	framework.AwaitGone(t, c, &corev1.Namespace{ObjectMeta: named("", name)})
	k := awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable")
	if slices.Contains(k.Finalizers, fleet.FinalizerKlusterletHostedCleanup) || conditionOf(k, fleet.ConditionReadyToApply).Type != "" {
		t.Errorf("it has the finalizers %v and the conditions %v", k.Finalizers, k.Status.Conditions)
	}
	removeKlusterlet(t, c, name)
}

// KL-04, KL-32: hosted agents do not run in the namespace of a managed cluster of a hub. One that becomes that while they run in it stays
// when they leave, and when the Klusterlet goes.
func TestKlusterletLeavesUsedNamespace(t *testing.T) {
	t.Parallel()
	const name = "kl-used"
	cluster := klusterletCluster(t)
	c := cluster.Client(t)
	used := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterName: name}}}
	framework.Create(t, c, used, managedKubeconfig(t, name, cluster), newKlusterlet(name, operatorv1.InstallModeSingletonHosted))
	awaitKlusterletMessage(t, c, name, fleet.ConditionApplied, fleet.ReasonKlusterletApplyFailed,
		"which has another use: it is that of ManagedCluster "+name)
	framework.MergePatch(t, c, used, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, fleet.LabelClusterName))
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Labels = map[string]string{"look": "again"} })
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied")

	framework.MergePatch(t, c, used, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, fleet.LabelClusterName, name))
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = operatorv1.InstallModeSingleton })
	k := awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable")
	framework.AwaitGone(t, c, &appsv1.Deployment{ObjectMeta: named(name, name+"-agent")})
	framework.AwaitGone(t, c, &corev1.ServiceAccount{ObjectMeta: named(name, name+"-work-sa")})
	if err := c.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, k)
	framework.Get(t, c, client.ObjectKeyFromObject(used), used)
	if used.DeletionTimestamp != nil || used.Labels[fleet.LabelKlusterlet] != "" || used.Labels[fleet.LabelCreatedByKlusterlet] != "" {
		t.Errorf("the namespace is deleted since %v, and has the labels %v", used.DeletionTimestamp, used.Labels)
	}
	framework.AwaitGone(t, c, &corev1.Namespace{ObjectMeta: named("", "open-cluster-management-"+name)})
}

// KL-32: what a hosted Klusterlet has on a cluster that is lost is given up after five minutes.
func TestKlusterletUnreachable(t *testing.T) {
	t.Parallel()
	const name = "kl-lost"
	cluster, lost := klusterletCluster(t), env.StartSandbox(t)
	c := cluster.Client(t)
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: named("", name)}, managedKubeconfig(t, name, lost),
		newKlusterlet(name, operatorv1.InstallModeHosted))
	k := awaitKlusterlet(t, c, name, "ReadyToApply=True/KlusterletPrepared", "Applied=True/KlusterletApplied")
	lost.Kill()
	if err := c.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(k), k); err != nil {
			return err
		}
		message := conditionOf(k, fleet.ConditionApplied).Message
		if k.Annotations[fleet.AnnotationEvictionTimestamp] == "" || !strings.Contains(message, "the managed cluster, which cannot be reached") {
			return fmt.Errorf("annotations %v, message %s", k.Annotations, message)
		}
		return nil
	})
	earlier := fmt.Sprintf(
		`{"metadata":{"annotations":{%q:%q}}}`,
		fleet.AnnotationEvictionTimestamp,
		time.Now().Add(-6*time.Minute).UTC().Format(time.RFC3339),
	)
	if err := c.Patch(t.Context(), k, framework.Merge(earlier)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, k)
	expectNothingLeft(t, c, name)
}

// KL-06, KL-30, KL-36, O6: what is invalid is refused whole, and two Klusterlets do not share a namespace.
func TestKlusterletInvalid(t *testing.T) {
	t.Parallel()
	c := klusterletCluster(t).Client(t)
	invalid := newKlusterlet("kl-invalid", "Detached")
	invalid.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{ClientCertExpirationSeconds: 60,
		FeatureGates: []operatorv1.FeatureGate{{Feature: "NoSuchGate", Mode: operatorv1.FeatureGateModeTypeEnable}}}
	framework.Create(t, c, invalid)
	k := awaitKlusterlet(t, c, invalid.Name, "Applied=False/KlusterletApplyFailed", "ValidFeatureGates=False/InvalidFeatureGatesExisting")
	for _, part := range []string{`spec.deployOption.mode is "Detached"`, "clientCertExpirationSeconds is 60"} {
		if message := conditionOf(k, fleet.ConditionApplied).Message; !strings.Contains(message, part) {
			t.Errorf("the message lacks %s: %s", part, message)
		}
	}
	if len(k.Finalizers) > 0 {
		t.Errorf("it has the finalizers %v", k.Finalizers)
	}
	expectNothingLeft(t, c, invalid.Name)

	first, second := newKlusterlet("kl-first", operatorv1.InstallModeSingleton), newKlusterlet("kl-second", operatorv1.InstallModeSingleton)
	const shared = "open-cluster-management-kl-shared" // no name of either, as the second takes it as soon as the first is gone
	first.Spec.Namespace, second.Spec.Namespace = shared, shared
	framework.Create(t, c, first)
	awaitKlusterlet(t, c, first.Name, "Applied=True/KlusterletApplied")
	second.CreationTimestamp = metav1.Time{}
	framework.Create(t, c, second)
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(second), second); err != nil {
			return err
		}
		message := conditionOf(second, fleet.ConditionApplied).Message
		if !strings.Contains(message, "is that of Klusterlet kl-first: choose another spec.namespace") {
			return errors.New(message)
		}
		return nil
	})
	removeKlusterlet(t, c, first.Name)
	awaitKlusterlet(t, c, second.Name, "Applied=True/KlusterletApplied")
	removeKlusterlet(t, c, second.Name)
	expectNothingLeft(t, c, shared)
}

// KL-30, KL-31: while the spec of a Klusterlet is refused, its conditions go on to say how the agent does that runs, and whether it reaches
// the hub. Its Deployment has another name than that of the mode that an unknown one is like.
func TestKlusterletReportsWhileRefused(t *testing.T) {
	t.Parallel()
	const name = "kl-refused"
	c, namespace := klusterletCluster(t).Client(t), "open-cluster-management-"+name
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeSingleton))
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable",
		"HubConnectionDegraded=True/BootstrapSecretMissing,HubKubeConfigSecretMissing")
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = "Detached" })
	awaitKlusterlet(t, c, name, "Applied=False/KlusterletApplyFailed", "Available=True/KlusterletAvailable",
		"RegistrationDesiredDegraded=False/DeploymentsFunctional", "WorkDesiredDegraded=False/DeploymentsFunctional")
	framework.Create(t, c, bootstrapSecret(t, namespace, fleet.SecretBootstrapHubKubeconfig))
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=True/BootstrapSecretFunctional,HubKubeConfigSecretMissing")
	if err := c.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: named(namespace, name+"-agent")}); err != nil {
		t.Fatal(err)
	}
	awaitKlusterlet(t, c, name, "Applied=False/KlusterletApplyFailed", "Available=False/GetDeploymentFailed")
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = operatorv1.InstallModeSingleton })
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable")
	removeKlusterlet(t, c, name)
}

// KL-02: the name of a Klusterlet may have dots: its agents run in a namespace of another name.
func TestKlusterletWithDots(t *testing.T) {
	t.Parallel()
	c := klusterletCluster(t).Client(t)
	k := newKlusterlet("kl-dots", operatorv1.InstallModeSingleton)
	k.Name = "kl.with.dots"
	framework.Create(t, c, k)
	awaitKlusterlet(t, c, k.Name, "Applied=True/KlusterletApplied", "Available=True/KlusterletAvailable")
	removeKlusterlet(t, c, k.Name)
}

// KL-11, KL-12, KL-23, KL-30, O5: every failure becomes a condition with its reason, and goes again: of pods, of the CRDs, and of each
// stage.
func TestKlusterletFailures(t *testing.T) {
	t.Parallel()
	const name, crd = "kl-failures", "clusterproperties.about.k8s.io"
	c := klusterletCluster(t).Client(t)
	k := newKlusterlet(name, operatorv1.InstallModeDefault)
	k.Spec.PriorityClassName = "no-such-class"
	framework.Create(t, c, k)
	awaitKlusterletMessage(t, c, name, fleet.ConditionRegistrationDesiredDegraded, fleet.ReasonUnavailablePods, "no-such-class")
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) {
		k.Spec.PriorityClassName, k.Spec.NodePlacement.NodeSelector = "", map[string]string{"nowhere": "true"}
	})
	awaitKlusterletMessage(t, c, name, fleet.ConditionRegistrationDesiredDegraded, fleet.ReasonUnavailablePods, "it cannot be scheduled")
	awaitKlusterletMessage(t, c, name, fleet.ConditionAvailable, fleet.ReasonNoAvailablePods, "it cannot be scheduled")
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.NodePlacement = operatorv1.NodePlacement{} })
	awaitKlusterlet(t, c, name, "RegistrationDesiredDegraded=False/DeploymentsFunctional", "Applied=True/KlusterletApplied")

	// A new pod that does not start leaves that of before running.
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) {
		k.Spec.NodePlacement.NodeSelector = map[string]string{"nowhere": "true"}
	})
	awaitKlusterletMessage(t, c, name, fleet.ConditionRegistrationDesiredDegraded, fleet.ReasonUnavailablePods,
		"has not rolled out: pod")
	changeKlusterlet(t, c, name, func(k *operatorv1.Klusterlet) { k.Spec.NodePlacement = operatorv1.NodePlacement{} })
	awaitKlusterlet(t, c, name, "RegistrationDesiredDegraded=False/DeploymentsFunctional", "Applied=True/KlusterletApplied")

	namespace := "open-cluster-management-" + name
	clusterRole := "open-cluster-management:" + name + "-work:agent"
	for _, test := range []struct {
		resource, reason string
		object           client.Object
	}{
		{"networkpolicies", fleet.ReasonManagementClusterResourceApplyFailed,
			&networkingv1.NetworkPolicy{ObjectMeta: named(namespace, "klusterlet-agent")}},
		{"clusterroles", fleet.ReasonManagedClusterResourceApplyFailed, &rbacv1.ClusterRole{ObjectMeta: named("", clusterRole)}},
		{"deployments", fleet.ReasonKlusterletApplyFailed, &appsv1.Deployment{ObjectMeta: named(namespace, name+"-work-agent")}},
	} {
		policy := refuse(t, c, name+"-"+test.resource, test.resource, test.object.GetName())
		if err := c.Delete(t.Context(), test.object); err != nil {
			t.Fatal(err)
		}
		awaitKlusterletMessage(t, c, name, fleet.ConditionApplied, test.reason, "refused by a test")
		if err := c.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied")
	}

	policy := refuse(t, c, name+"-crd", "customresourcedefinitions", crd)
	gate := func(mode operatorv1.FeatureGateModeType) func(*operatorv1.Klusterlet) {
		return func(k *operatorv1.Klusterlet) {
			k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
				FeatureGates: []operatorv1.FeatureGate{{Feature: "ClusterProperty", Mode: mode}}}
		}
	}
	changeKlusterlet(t, c, name, gate(operatorv1.FeatureGateModeTypeEnable))
	awaitKlusterletMessage(t, c, name, fleet.ConditionApplied, fleet.ReasonCRDApplyFailed, "refused by a test")
	if err := c.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied")
	removeKlusterlet(t, c, name)
	awaitExists(t, c, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", crd)}) // CRDs stay
}

// awaitKlusterletMessage waits for a condition with the reason and the text.
func awaitKlusterletMessage(t *testing.T, c client.Client, name, kind, reason, text string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		k := &operatorv1.Klusterlet{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
			return err
		}
		if condition := conditionOf(k, kind); condition.Reason != reason || !strings.Contains(condition.Message, text) {
			return fmt.Errorf("want %s for %s with %q, have %+v", kind, reason, text, k.Status.Conditions)
		}
		return nil
	})
}

// refuse has the API server refuse to create or change objects of that name. It returns when it does.
func refuse(t *testing.T, c client.Client, name, resource, object string) client.Object {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("", name)}
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}}}}}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "name", Expression: fmt.Sprintf("object.metadata.name == %q", object)}},
		Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: "refused by a test"}},
	}
	framework.Create(t, c, policy, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("", name),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}})
	t.Cleanup(func() { _ = c.Delete(context.Background(), policy) })
	probe := map[string]client.Object{
		"networkpolicies":           &networkingv1.NetworkPolicy{ObjectMeta: named("default", object)},
		"clusterroles":              &rbacv1.ClusterRole{ObjectMeta: named("", object)},
		"deployments":               &appsv1.Deployment{ObjectMeta: named("default", object), Spec: minimalDeployment()},
		"customresourcedefinitions": minimalCRD(object),
	}[resource]
	env.Eventually(t, func(ctx context.Context) error {
		err := c.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
		if err == nil || apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "refused by a test") {
			return fmt.Errorf("it is not refused: %w", err)
		}
		return nil
	})
	return policy
}

func minimalDeployment() appsv1.DeploymentSpec {
	labels := map[string]string{"a": "b"}
	return appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}}
}

func minimalCRD(name string) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, a test"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}},
			},
		}}
}

// KL-23, KL-26, KL-27, SD-01: namespaces of add-ons get the Secret to pull images with and the TLS profile, and the agents the flags of
// that. The last Klusterlet takes the namespace of add-ons with it, and leaves the CRDs and what was copied to other namespaces.
func TestKlusterletCopies(t *testing.T) {
	t.Parallel()
	cluster, err := framework.NewSandbox("copies")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startKlusterletOperator(cluster); err != nil {
		t.Fatal(err)
	}
	const name, addOn = "kl-copies", "addon-with-copies"
	c := cluster.Client(t)
	framework.Create(
		t,
		c,
		newKlusterlet(name, operatorv1.InstallModeSingleton),
		&corev1.Secret{ObjectMeta: named(fleet.NamespaceOperators, fleet.SecretImagePullCredentials), Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}},
		&corev1.ConfigMap{
			ObjectMeta: named(fleet.NamespaceOperators, fleet.ConfigMapTLSProfile),
			Data:       map[string]string{fleet.KeyTLSProfileMinVersion: "VersionTLS13"},
		},
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: addOn, Labels: map[string]string{fleet.LabelAddOnAgentNamespace: "true"}},
		},
	)
	namespace := "open-cluster-management-" + name
	for _, in := range []string{namespace, addOn, fleet.NamespaceAgentAddOn} {
		awaitExists(t, c, &corev1.Secret{ObjectMeta: named(in, fleet.SecretImagePullCredentials)})
	}
	profile := awaitExists(t, c, &corev1.ConfigMap{ObjectMeta: named(addOn, fleet.ConfigMapTLSProfile)})
	env.Eventually(t, func(ctx context.Context) error {
		deployment := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-agent"}, deployment); err != nil {
			return err
		}
		if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--tls-min-version=VersionTLS13") {
			return fmt.Errorf("the arguments are %v", args)
		}
		return nil
	})
	if err := c.Delete(t.Context(), profile.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		restored := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(profile), restored); err != nil {
			return err
		}
		if restored.UID == profile.UID {
			return errors.New("it is not deleted yet")
		}
		return nil
	})
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "appliedmanifestworks.work.open-cluster-management.io")}
	if version := awaitExists(t, c, crd).Annotations[fleet.AnnotationOperatorVersion]; version == "" {
		t.Errorf("the CRD has the annotations %v", crd.Annotations)
	}
	removeKlusterlet(t, c, name)
	if _, has := awaitExists(t, c, crd).Annotations[fleet.AnnotationOperatorVersion]; has || crd.DeletionTimestamp != nil {
		t.Errorf("the CRD has the annotations %v", crd.Annotations)
	}
	framework.AwaitGone(t, c, &corev1.Namespace{ObjectMeta: named("", fleet.NamespaceAgentAddOn)})
	awaitExists(t, c, &corev1.Secret{ObjectMeta: named(addOn, fleet.SecretImagePullCredentials)})
}

// KL-09, KL-15: addresses are published with the CA that is given with them, and labels where the hub lets the agent set them.
func TestKlusterletAddresses(t *testing.T) {
	t.Parallel()
	cluster := klusterletCluster(t)
	c := cluster.Client(t)
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	bundle := config.CAData // any other than that of the managed cluster
	for name, test := range map[string]struct {
		secret func(namespace string) *corev1.Secret
		labels map[string]string
	}{
		"kl-token": {func(namespace string) *corev1.Secret {
			return bootstrapSecret(t, namespace, fleet.SecretBootstrapHubKubeconfig)
		}, nil},
		"kl-admin": {func(namespace string) *corev1.Secret {
			secret := managedKubeconfig(t, namespace, framework.Hub)
			secret.Name = fleet.SecretBootstrapHubKubeconfig
			return secret
		}, map[string]string{"region": "eu"}},
	} {
		k := newKlusterlet(name, operatorv1.InstallModeSingleton)
		k.Spec.ExternalServerURLs = []operatorv1.ServerURL{{URL: "https://a.example.com"}, {URL: "https://b.example.com:6443", CABundle: bundle}}
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{ClusterLabels: map[string]string{"region": "eu"}}
		framework.Create(t, c, k)
		awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied")
		framework.Create(t, c, test.secret(k.Spec.Namespace))
		runPod(t, cluster, k.Spec.Namespace, name+"-agent")
		mc := awaitExists(t, framework.Hub.Client(t), &clusterv1.ManagedCluster{ObjectMeta: named("", name)})
		if configs := mc.Spec.ManagedClusterClientConfigs; len(configs) != 2 || configs[1].URL != "https://b.example.com:6443" ||
			!bytes.Equal(configs[1].CABundle, bundle) || bytes.Equal(configs[0].CABundle, bundle) {
			t.Errorf("%s: the addresses are %v", name, configs)
		}
		if mc.Labels["region"] != test.labels["region"] {
			t.Errorf("%s: the labels are %v", name, mc.Labels)
		}
		removeKlusterlet(t, c, name)
	}
}

// KL-02: a Deployment that the operator of Open Cluster Management has made is taken over in place: it stays, and loses what only that
// operator has set, also if that has come back meanwhile.
func TestKlusterletTakesOver(t *testing.T) {
	t.Parallel()
	const name = "kl-taken-over"
	c, namespace := klusterletCluster(t).Client(t), "open-cluster-management-"+name
	theirs := &appsv1.Deployment{ObjectMeta: named(namespace, name+"-registration-agent"), Spec: minimalDeployment()}
	labels := map[string]string{"app": "klusterlet-registration-agent"}
	theirs.Spec.Selector.MatchLabels, theirs.Spec.Template.Labels = labels, labels
	theirs.Spec.Template.Spec.Containers[0].Name = "registration-controller"
	theirs.Spec.Template.Spec.HostNetwork = true
	if err := errors.Join(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: named("", namespace)}),
		c.Create(t.Context(), theirs, client.FieldOwner("registration-operator"))); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeDefault))
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "RegistrationDesiredDegraded=False/DeploymentsFunctional")
	key := client.ObjectKeyFromObject(theirs)
	isOurs := func(ctx context.Context) error {
		ours := &appsv1.Deployment{}
		if err := c.Get(ctx, key, ours); err != nil {
			return err
		}
		pod := ours.Spec.Template.Spec
		if ours.UID != theirs.UID || len(pod.Containers) != 1 || pod.Containers[0].Image != "registration:test" || pod.HostNetwork {
			return fmt.Errorf("the Deployment was replaced: %t; its pods are %+v", ours.UID != theirs.UID, pod)
		}
		return nil
	}
	if err := isOurs(t.Context()); err != nil {
		t.Error(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		again := &appsv1.Deployment{}
		if err := c.Get(ctx, key, again); err != nil {
			return err
		}
		again.Spec.Template.Spec = *theirs.Spec.Template.Spec.DeepCopy()
		return c.Update(ctx, again, client.FieldOwner("registration-operator"))
	})
	env.Eventually(t, isOurs)
	removeKlusterlet(t, c, name)
}
