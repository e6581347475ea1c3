package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// hubDeployments are those of a hub by default.
var hubDeployments = []string{"cluster-manager-addon-manager-controller", "cluster-manager-addon-webhook",
	"cluster-manager-placement-controller",
	"cluster-manager-registration-controller", "cluster-manager-registration-webhook", "cluster-manager-work-controller",
	"cluster-manager-work-webhook"}

// installed is a cluster with the operator of ClusterManagers.
type installed struct {
	*env.Server
	client.Client
	operator *env.Process
}

// withOperator starts the operator with the rights that its chart gives it.
func withOperator(t *testing.T, cluster *env.Server, flags ...string) *installed {
	t.Helper()
	c := cluster.Client(t)
	i := &installed{Server: cluster, Client: c}
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceOperators}})
	framework.Create(t, c, operatorRights(t, "cluster-manager")...)
	framework.Create(t, c, operatorCRD(t, "clustermanagers"))
	env.Eventually(t, func(ctx context.Context) error { return c.List(ctx, &operatorv1.ClusterManagerList{}) })
	i.start(t, flags...)
	return i
}

func (i *installed) start(t *testing.T, flags ...string) {
	t.Helper()
	i.operator = env.NewProgram(t, []string{"OPERATOR_IMAGE=example.com/capstan-hub:test"}, "capstan-hub", append([]string{"operator",
		"--kubeconfig", framework.KubeconfigIn(t, i.Server, fleet.NamespaceOperators, fleet.ServiceAccountClusterManager), "--namespace",
		fleet.NamespaceOperators,
		"--listen", "0"}, flags...)...)
	if err := i.operator.Start(); err != nil {
		t.Fatal(err)
	}
	operator := i.operator
	t.Cleanup(func() {
		if strings.Contains(operator.Log(), "forbidden") {
			t.Errorf("a right is missing in the chart:\n%s", operator.Log())
		}
	})
}

// operatorRights are the service account of an operator and its permissions, as the chart has them.
func operatorRights(t *testing.T, chart string) []client.Object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "charts", chart, "files", "operator-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: chart}}
	if err := yaml.UnmarshalStrict(content, &role.Rules); err != nil {
		t.Fatal(err)
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: chart}}, role,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: chart},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: chart},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceOperators, Name: chart}}},
	}
}

func operatorCRD(t *testing.T, plural string) client.Object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "crds", "operator.open-cluster-management.io_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// awaitHub waits until the conditions of the ClusterManager, of its present generation, are as given: each as Type=Status or
// Type=Status/Reason, or with a text of the message after a colon.
func (i *installed) awaitHub(t *testing.T, conditions ...string) *operatorv1.ClusterManager {
	t.Helper()
	cm := &operatorv1.ClusterManager{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, cm); err != nil {
			return err
		}
		return checkConditions(cm.Status.Conditions, cm.Generation, conditions)
	})
	return cm
}

func checkConditions(have []metav1.Condition, generation int64, want []string) error {
	for _, text := range want {
		rest, message, _ := strings.Cut(text, ":")
		kind, rest, _ := strings.Cut(rest, "=")
		status, reason, _ := strings.Cut(rest, "/")
		condition := meta.FindStatusCondition(have, kind)
		if condition == nil || string(condition.Status) != status || reason != "" && condition.Reason != reason ||
			condition.ObservedGeneration != generation || !strings.Contains(condition.Message, message) {
			return fmt.Errorf("want condition %s in generation %d, have %v of %v", text, generation, condition, have)
		}
	}
	return nil
}

var hubIsUp = []string{"Applied=True/ClusterManagerApplied", "Progressing=False/ClusterManagerUpToDate",
	"HubRegistrationDegraded=False/RegistrationFunctional", "HubPlacementDegraded=False/PlacementFunctional"}

// edit changes the spec of the ClusterManager.
func (i *installed) edit(t *testing.T, change func(*operatorv1.ClusterManagerSpec)) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		cm := &operatorv1.ClusterManager{}
		if err := i.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, cm); err != nil {
			return err
		}
		change(&cm.Spec)
		return i.Update(ctx, cm)
	})
}

func (i *installed) awaitDeployments(t *testing.T, namespace string, names ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &appsv1.DeploymentList{}
		if err := i.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var have []string
		for _, deployment := range list.Items {
			have = append(have, deployment.Name)
		}
		if slices.Sort(have); !slices.Equal(have, names) {
			return fmt.Errorf("deployments %v, want %v", have, names)
		}
		return nil
	})
}

// The steps build on each other, as those of a user who changes one installation.
//
// CM-01, CM-02, CM-06, CM-07, CM-09, CM-12, CM-13, CM-14, CM-15, CM-16, CM-17, CM-18, CM-19, CM-20, CM-21, CM-22, CM-23, CM-24, CM-25,
// CM-28, CM-29, CM-30, SD-01
func TestClusterManager(t *testing.T) {
	t.Parallel()
	i := withOperator(t, env.StartSandbox(t), "--deployment-replicas", "2")
	i.migratedDeployment(t)
	framework.Create(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"},
		Spec: operatorv1.ClusterManagerSpec{
			NodePlacement: operatorv1.NodePlacement{NodeSelector: map[string]string{"no": "such"}}}})
	for _, step := range []struct {
		name string
		run  func(*installed, *testing.T)
	}{
		{"before it runs", (*installed).testBeforeItRuns},
		{"what is installed", (*installed).testInstalled},
		{"a migrated Deployment", (*installed).testMigrated},
		{"certificates", (*installed).testCertificates},
		{"a certificate of a user", (*installed).testCertificateOfUser},
		{"drift", (*installed).testDrift},
		{"feature gates", (*installed).testFeatureGates},
		{"pods that do not run", (*installed).testUnavailable},
		{"credentials for images", (*installed).testPullSecret},
		{"TLS profile", (*installed).testTLSProfile},
		{"network policies", (*installed).testNetworkPolicies},
		{"the gRPC server", (*installed).testGRPCServer},
		{"works by a broker", (*installed).testWorkDriver},
		{"a CRD of a newer operator", (*installed).testNewerCRD},
		{"removal", (*installed).testRemoval},
		{"removal without CRDs", (*installed).testRemovalWithoutCRDs},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(i, t) }) { //nolint:paralleltest // see above
			t.FailNow()
		}
	}
}

// migratedDeployment is one of the operator of Open Cluster Management: with another selector, and a container of another name.
func (i *installed) migratedDeployment(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "hub-controller"}
	framework.Create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceHub}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "left-over",
			Labels: map[string]string{fleet.LabelCreatedByClusterManager: "cluster-manager"}}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "cluster-manager-registration-controller"},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "old", Image: "example.com/old"}}}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "cluster-manager-work-webhook"},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "old"}, Ports: []corev1.ServicePort{{Name: "old", Port: 443}}}})
}

// CM-21: as long as a Deployment does not run, nobody could answer the API server, so it is not told to ask.
func (i *installed) testBeforeItRuns(t *testing.T) {
	i.awaitHub(t, "Applied=True/ClusterManagerApplied", "Progressing=True/ClusterManagerDeploymentRolling:cluster-manager-work-webhook")
	mutating, validating := i.webhooks(t)
	if mutating != 0 || validating != 0 {
		t.Errorf("there are %d mutating and %d validating webhook configurations", mutating, validating)
	}
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) { spec.NodePlacement.NodeSelector = nil })
	i.awaitHub(t, hubIsUp...)
	if mutating, validating = i.webhooks(t); mutating == 0 || validating == 0 {
		t.Errorf("there are %d mutating and %d validating webhook configurations", mutating, validating)
	}
}

// webhooks counts the configurations of webhooks.
func (i *installed) webhooks(t *testing.T) (mutating, validating int) {
	t.Helper()
	mutators := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	validators := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := errors.Join(i.List(t.Context(), mutators), i.List(t.Context(), validators)); err != nil {
		t.Fatal(err)
	}
	return len(mutators.Items), len(validators.Items)
}

// CM-01, CM-02, CM-06, CM-17, CM-18, CM-19, CM-21, CM-24, CM-25
func (i *installed) testInstalled(t *testing.T) {
	cm := i.awaitHub(t, append(hubIsUp, "ValidFeatureGates=True/FeatureGatesAllValid", "ConfigurationSupported=True")...)
	if !slices.Contains(cm.Finalizers, fleet.FinalizerClusterManagerCleanup) || cm.Status.ObservedGeneration != cm.Generation {
		t.Errorf("finalizers %v, observed generation %d", cm.Finalizers, cm.Status.ObservedGeneration)
	}
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	for _, name := range hubDeployments {
		deployment := &appsv1.Deployment{}
		if err := i.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceHub, Name: name}, deployment); err != nil {
			t.Fatal(err)
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		if *deployment.Spec.Replicas != 2 || container.Image != "example.com/capstan-hub:test" {
			t.Errorf("%s: %d replicas of %s", name, *deployment.Spec.Replicas, container.Image)
		}
		if !slices.ContainsFunc(cm.Status.Generations, func(g operatorv1.GenerationStatus) bool {
			return g.Name == name && g.Resource == "deployments" && g.LastGeneration == deployment.Generation
		}) {
			t.Errorf("no generation of %s in %v", name, cm.Status.Generations)
		}
	}
	for _, related := range []operatorv1.RelatedResourceMeta{
		{Group: "apps", Version: "v1", Resource: "deployments", Namespace: fleet.NamespaceHub, Name: "cluster-manager-work-webhook"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			Name: "managedclusters.cluster.open-cluster-management.io"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles",
			Name: "open-cluster-management:cluster-manager-placement:controller"},
		{Version: "v1", Resource: "serviceaccounts", Namespace: fleet.NamespaceHub, Name: "work-webhook-sa"},
		{Version: "v1", Resource: "secrets", Namespace: fleet.NamespaceHub, Name: "signer-secret"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
			Name: "managedclustermutators.admission.cluster.open-cluster-management.io"},
	} {
		if !slices.Contains(cm.Status.RelatedResources, related) {
			t.Errorf("%v is not among the related resources", related)
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: "managedclusters.cluster.open-cluster-management.io"}, crd); err != nil {
		t.Fatal(err)
	}
	if crd.Annotations[fleet.AnnotationOperatorVersion] == "" {
		t.Error("the CRD does not say which operator it is of")
	}
}

func (i *installed) testMigrated(t *testing.T) {
	deployment := &appsv1.Deployment{}
	if err := i.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceHub, Name: "cluster-manager-registration-controller"},
		deployment); err != nil {
		t.Fatal(err)
	}
	if n := len(deployment.Spec.Template.Spec.Containers); n != 1 ||
		deployment.Spec.Selector.MatchLabels["app"] != "clustermanager-registration-controller" {
		t.Errorf("%d containers, selector %v", n, deployment.Spec.Selector)
	}
	service := &corev1.Service{}
	if err := i.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceHub, Name: "cluster-manager-work-webhook"},
		service); err != nil {
		t.Fatal(err)
	}
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 9443 || service.Spec.Selector["app"] != "cluster-manager-work-webhook" {
		t.Errorf("the Service is %v", service.Spec)
	}
	i.awaitGone(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "left-over"}})
}

// errThere says that there is an object.
var errThere = errors.New("it is there")

func (i *installed) awaitGone(t *testing.T, objects ...client.Object) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for _, object := range objects {
			if err := i.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is not gone: %w", object, object.GetName(), cmp.Or(err, errThere))
			}
		}
		return nil
	})
}

func (i *installed) awaitThere(t *testing.T, objects ...client.Object) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for _, object := range objects {
			if err := i.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		return nil
	})
}

// CM-23
func (i *installed) testCertificates(t *testing.T) {
	for _, webhook := range []string{"registration", "work", "addon"} {
		secret := &corev1.Secret{}
		if err := i.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceHub, Name: webhook + "-webhook-serving-cert"},
			secret); err != nil {
			t.Fatal(err)
		}
		host := "cluster-manager-" + webhook + "-webhook.open-cluster-management-hub.svc"
		if err := verify(secret.Data[corev1.TLSCertKey], i.caBundle(t, webhook), host); err != nil {
			t.Errorf("%s: %v", webhook, err)
		}
	}
}

func verify(certificate, bundle []byte, host string) error {
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = parsed.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
	return err
}

// caBundle is what the API server verifies a webhook with.
func (i *installed) caBundle(t *testing.T, webhook string) []byte {
	t.Helper()
	name := map[string]string{"registration": "managedclustervalidators.admission.cluster.open-cluster-management.io",
		"work": "manifestworkvalidators.admission.work.open-cluster-management.io"}[webhook]
	if name == "" {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := i.Get(t.Context(), types.NamespacedName{Name: "managedclusteraddons.addon.open-cluster-management.io"}, crd); err != nil {
			t.Fatal(err)
		}
		return crd.Spec.Conversion.Webhook.ClientConfig.CABundle
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: name}, configuration); err != nil {
		t.Fatal(err)
	}
	return configuration.Webhooks[0].ClientConfig.CABundle
}

// A certificate that a user has stored is used as it is.
func (i *installed) testCertificateOfUser(t *testing.T) {
	host := "cluster-manager-work-webhook.open-cluster-management-hub.svc"
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "work-webhook-serving-cert"}}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		delete(secret.Labels, fleet.LabelCreatedByClusterManager)
		secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
		return i.Update(ctx, secret)
	})
	env.Eventually(t, func(context.Context) error { return verify(certificate, i.caBundle(t, "work"), host) })
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil ||
		!bytes.Equal(secret.Data[corev1.TLSCertKey], certificate) {
		t.Errorf("the certificate was replaced: %v", err)
	}
}

// CM-22: what others change or delete comes back, because it is watched: there is no interval at which it would.
func (i *installed) testDrift(t *testing.T) {
	in := metav1.ObjectMeta{Namespace: fleet.NamespaceHub}
	named := func(name string) metav1.ObjectMeta { m := in; m.Name = name; return m }
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: named("cluster-manager-placement-controller")},
		&corev1.Secret{ObjectMeta: named("addon-webhook-serving-cert")},
		&corev1.Service{ObjectMeta: named("cluster-manager-addon-webhook")}, &corev1.ServiceAccount{ObjectMeta: named("placement-controller-sa")},
		&networkingv1.NetworkPolicy{ObjectMeta: named("allow-egress")},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:cluster-manager-work:controller"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:cluster-manager-work:controller"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "managedclustermutators.admission.cluster.open-cluster-management.io"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "rights-of-agents.registration-controller.capstan.io"}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "placements.cluster.open-cluster-management.io"}},
	} {
		if err := i.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		before := object.GetUID()
		if err := i.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(ctx context.Context) error {
			if err := i.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if object.GetUID() == before {
				return fmt.Errorf("%T %s is still being deleted", object, object.GetName())
			}
			return nil
		})
	}
	role := &rbacv1.ClusterRole{}
	name := types.NamespacedName{Name: "open-cluster-management:cluster-manager-work:controller"}
	if err := i.Get(t.Context(), name, role); err != nil {
		t.Fatal(err)
	}
	rules := len(role.Rules)
	role.Rules = role.Rules[1:]
	if err := i.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, name, role); err != nil || len(role.Rules) != rules {
			return fmt.Errorf("%d rules instead of %d: %w", len(role.Rules), rules, err)
		}
		return nil
	})
	i.awaitHub(t, hubIsUp...)
}

// CM-14, CM-15, CM-17, CM-19
func (i *installed) testFeatureGates(t *testing.T) {
	enable := func(name string) operatorv1.FeatureGate {
		return operatorv1.FeatureGate{Feature: name, Mode: operatorv1.FeatureGateModeTypeEnable}
	}
	profiles := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusterprofiles.multicluster.x-k8s.io"}}
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(profiles), profiles); !apierrors.IsNotFound(err) {
		t.Errorf("there is a CRD of a feature that is off: %v", err)
	}
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{FeatureGates: []operatorv1.FeatureGate{
			enable("ClusterProfile"), enable("NoSuchGate")}}
		spec.WorkConfiguration.FeatureGates = []operatorv1.FeatureGate{{Feature: "ManifestWorkReplicaSet"},
			{Feature: "CleanUpCompletedManifestWork"}}
		spec.AddOnManagerConfiguration = &operatorv1.AddOnManagerConfiguration{
			FeatureGates: []operatorv1.FeatureGate{{Feature: "AddonManagement"}}}
	})
	i.awaitHub(t, append(hubIsUp, "ValidFeatureGates=False/InvalidFeatureGatesExisting:registration: NoSuchGate")...)
	i.awaitDeployments(t, fleet.NamespaceHub, slices.DeleteFunc(slices.Clone(hubDeployments), func(name string) bool {
		return name == "cluster-manager-work-controller" || name == "cluster-manager-addon-manager-controller"
	})...)
	const role = "open-cluster-management:cluster-manager-"
	rightsOf := func(name, account string) []client.Object {
		objects := []client.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role + name}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + name}}}
		if account != "" {
			objects = append(objects, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: account}})
		}
		return objects
	}
	off := slices.Concat(rightsOf("work:controller", fleet.ServiceAccountWorkController),
		rightsOf("addon-manager:controller", fleet.ServiceAccountAddOnManager))
	on := rightsOf("clusterprofile:controller", "")
	i.awaitGone(t, off...)
	i.awaitThere(t, on...)
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(profiles), profiles); err != nil {
		t.Error(err)
	}
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.RegistrationConfiguration, spec.WorkConfiguration.FeatureGates, spec.AddOnManagerConfiguration = nil, nil, nil
	})
	i.awaitGone(t, on...)
	i.awaitThere(t, off...)
	i.awaitHub(t, append(hubIsUp, "ValidFeatureGates=True")...)
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(profiles), profiles); err != nil {
		t.Errorf("what is stored under a feature that is off has gone: %v", err)
	}
}

// CM-07, CM-24
func (i *installed) testUnavailable(t *testing.T) {
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.NodePlacement.NodeSelector = map[string]string{"no": "such"}
	})
	// The pods from before still work, so only the new ones are in trouble.
	i.awaitHub(t, "Applied=True", "Progressing=True/ClusterManagerDeploymentRolling:cannot be scheduled",
		"HubRegistrationDegraded=False/RegistrationFunctional", "HubPlacementDegraded=False/PlacementFunctional")
	for _, name := range []string{"cluster-manager-registration-controller", "cluster-manager-placement-controller"} {
		if err := i.Delete(t.Context(),
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	i.awaitHub(t, "Applied=True", "Progressing=True", "HubRegistrationDegraded=True/UnavailableRegistrationPod:cannot be scheduled",
		"HubPlacementDegraded=True/UnavailablePlacementPod:2 of 2 pods of Deployment")
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) { spec.NodePlacement.NodeSelector = nil })
	i.awaitHub(t, hubIsUp...)
}

// CM-28
func (i *installed) testPullSecret(t *testing.T) {
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.SecretImagePullCredentials},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")}}
	framework.Create(t, i, source)
	copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: source.Name}}
	i.awaitPod(t, "cluster-manager-registration-controller", func(pod *corev1.PodSpec) bool {
		return slices.Contains(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: source.Name})
	})
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil || copied.Type != source.Type {
		t.Errorf("%v: %v", copied.Type, err)
	}
	if err := i.Delete(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	i.awaitGone(t, copied)
	i.awaitHub(t, hubIsUp...)
}

func (i *installed) awaitPod(t *testing.T, deployment string, check func(*corev1.PodSpec) bool) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		live := &appsv1.Deployment{}
		if err := i.Get(ctx, types.NamespacedName{Namespace: fleet.NamespaceHub, Name: deployment}, live); err != nil {
			return err
		}
		if !check(&live.Spec.Template.Spec) {
			return fmt.Errorf("pods of %s are %v", deployment, live.Spec.Template.Spec)
		}
		return nil
	})
}

// CM-30, SD-01
func (i *installed) testTLSProfile(t *testing.T) {
	profile := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ConfigMapTLSProfile},
		Data: map[string]string{"minTLSVersion": "VersionTLS13"}}
	framework.Create(t, i, profile)
	for _, name := range hubDeployments {
		i.awaitPod(t, name, func(pod *corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Args, "--tls-min-version=VersionTLS13")
		})
	}
	if err := i.Delete(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	i.awaitPod(t, hubDeployments[0],
		func(pod *corev1.PodSpec) bool {
			return !strings.Contains(strings.Join(pod.Containers[0].Args, " "), "tls")
		})
	i.awaitHub(t, hubIsUp...)
}

// CM-29: they are there unless they are switched off.
func (i *installed) testNetworkPolicies(t *testing.T) {
	all := &networkingv1.NetworkPolicyList{}
	if err := i.List(t.Context(), all, client.InNamespace(fleet.NamespaceHub)); err != nil || len(all.Items) != 5 {
		t.Errorf("%d policies: %v", len(all.Items), err)
	}
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{
			FeatureGates: []operatorv1.FeatureGate{{Feature: "NetworkPolicies"}}}
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.List(ctx, all, client.InNamespace(fleet.NamespaceHub)); err != nil || len(all.Items) != 0 {
			return fmt.Errorf("%d policies: %w", len(all.Items), err)
		}
		return nil
	})
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) { spec.RegistrationConfiguration = nil })
	i.awaitHub(t, append(hubIsUp, "ValidFeatureGates=True")...)
}

// CM-13: the condition says what the driver lacks, until the Secret with the configuration of the broker is there; its changes reach the
// pods.
func (i *installed) testWorkDriver(t *testing.T) {
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.WorkConfiguration.WorkDriver = operatorv1.WorkDriverTypeMQTT
		spec.WorkConfiguration.FeatureGates = []operatorv1.FeatureGate{{
			Feature: "CloudEventsDrivers", Mode: operatorv1.FeatureGateModeTypeEnable}}
	})
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=False/UnsupportedFields:in the Secret work-driver-config")...)
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.SecretWorkDriverConfig},
		StringData: map[string]string{fleet.KeyConfig: "brokerHost: mqtt.example.com:8883\ntopics:\n" +
			"  sourceEvents: sources/mwrsctrl/clusters/+/sourceevents\n  agentEvents: sources/mwrsctrl/clusters/+/agentevents\n"}}
	framework.Create(t, i, source)
	i.awaitPod(t, "cluster-manager-work-controller", func(pod *corev1.PodSpec) bool {
		return slices.Contains(pod.Containers[0].Args, "--work-driver=mqtt")
	})
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=True")...)
	copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: source.Name}}
	source.Data["ca.crt"] = []byte("ca")
	if err := i.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(copied), copied); err != nil || string(copied.Data["ca.crt"]) != "ca" {
			return fmt.Errorf("the copy has the keys %v: %w", slices.Collect(maps.Keys(copied.Data)), err)
		}
		return nil
	})
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.WorkConfiguration.WorkDriver, spec.WorkConfiguration.FeatureGates = operatorv1.WorkDriverTypeKube, nil
	})
	i.awaitGone(t, copied)
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=True")...)
	if err := i.Delete(t.Context(), source); err != nil {
		t.Fatal(err)
	}
}

// CM-19: an older operator leaves CRDs alone.
func (i *installed) testNewerCRD(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	name := types.NamespacedName{Name: "addontemplates.addon.open-cluster-management.io"}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, name, crd); err != nil {
			return err
		}
		crd.Annotations[fleet.AnnotationOperatorVersion], crd.Spec.Names.ShortNames = "99.0.0", []string{"newer"}
		return i.Update(ctx, crd)
	})
	// The fence: the next reconcile, which the change of the label of another object causes, has seen the CRD.
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.ResourceRequirement = &operatorv1.ResourceRequirement{Type: "BestEffort"}
	})
	i.awaitPod(t, hubDeployments[0], func(pod *corev1.PodSpec) bool { return len(pod.Containers[0].Resources.Requests) == 0 })
	i.awaitHub(t, hubIsUp...)
	if err := i.Get(t.Context(), name, crd); err != nil || !slices.Equal(crd.Spec.Names.ShortNames, []string{"newer"}) {
		t.Errorf("the CRD of the newer operator is %v: %v", crd.Spec.Names, err)
	}
}

// CM-20: what is stored goes in order, while the components run.
func (i *installed) testRemoval(t *testing.T) {
	framework.Create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "held"}})
	ofAgents := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleWork}} // as the registration controllers make it
	framework.Create(t, i, ofAgents)
	addOn := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "held", Name: "held",
		Finalizers: []string{"example.com/held"}}}
	framework.Create(t, i, addOn)
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	if err := i.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		return checkConditions(cm.Status.Conditions, cm.Generation,
			[]string{"Progressing=True:ManagedClusterAddOns held/held (finalizers: example.com/held)"})
	})
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	clusters := &apiextensionsv1.CustomResourceDefinition{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: "managedclusters.cluster.open-cluster-management.io"}, clusters); err != nil ||
		!clusters.DeletionTimestamp.IsZero() {
		t.Errorf("clusters do not wait for add-ons: %v, %v", clusters.DeletionTimestamp, err)
	}
	if err := i.Patch(t.Context(), addOn, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	i.awaitGone(t, cm, ofAgents)
	i.checkNothingLeft(t, "clusterprofiles.multicluster.x-k8s.io", "clustermanagers.operator.open-cluster-management.io")
}

// checkNothingLeft holds what is left of the hub against the CRDs that stay.
func (i *installed) checkNothingLeft(t *testing.T, stay ...string) {
	t.Helper()
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := i.List(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, crd := range crds.Items {
		left = append(left, crd.Name)
		if crd.Labels[fleet.LabelCreatedByClusterManager] != "" {
			t.Errorf("%s still has the label", crd.Name)
		}
	}
	slices.Sort(left)
	slices.Sort(stay)
	if !slices.Equal(left, stay) {
		t.Errorf("CRDs are left: %v, want %v", left, stay)
	}
	installed := client.HasLabels{fleet.LabelCreatedByClusterManager}
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{},
		&corev1.ConfigMapList{},
		&corev1.ServiceList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}, &rbacv1.RoleList{},
		&admissionregistrationv1.ValidatingWebhookConfigurationList{}, &admissionregistrationv1.MutatingWebhookConfigurationList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}} {
		if err := i.List(t.Context(), list, installed); err != nil {
			t.Fatal(err)
		}
		if n := meta.LenList(list); n > 0 {
			t.Errorf("%d objects in %T are left", n, list)
		}
	}
	i.awaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceHub}})
}

// CM-20: with --skip-remove-crds, what is stored stays, for another operator.
func (i *installed) testRemovalWithoutCRDs(t *testing.T) {
	if err := i.operator.Stop(); err != nil {
		t.Fatal(err)
	}
	i.start(t, "--skip-remove-crds", "--deployment-replicas", "1")
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	framework.Create(t, i, cm)
	i.awaitHub(t, hubIsUp...)
	if err := i.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	i.awaitGone(t, cm)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: "managedclusters.cluster.open-cluster-management.io"}, crd); err != nil ||
		crd.Annotations[fleet.AnnotationOperatorVersion] != "" || crd.Labels[fleet.LabelCreatedByClusterManager] != "" {
		t.Errorf("annotations %v, labels %v: %v", crd.Annotations, crd.Labels, err)
	}
	i.awaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceHub}})
	i.awaitAddOns(t, apiextensionsv1.NoneConverter, "v1alpha1") // no webhook converts them any more
	if err := i.List(t.Context(), &addonv1alpha1.ManagedClusterAddOnList{}); err != nil {
		t.Error(err)
	}
	framework.Create(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}})
	i.awaitAddOns(t, apiextensionsv1.WebhookConverter, "v1alpha1", "v1beta1")
}

// awaitAddOns waits until add-ons are converted like that, and served in these versions.
func (i *installed) awaitAddOns(t *testing.T, conversion apiextensionsv1.ConversionStrategyType, versions ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := i.Get(ctx, types.NamespacedName{Name: "managedclusteraddons.addon.open-cluster-management.io"}, crd); err != nil {
			return err
		}
		var served []string
		for _, version := range crd.Spec.Versions {
			if version.Served {
				served = append(served, version.Name)
			}
		}
		if crd.Spec.Conversion.Strategy != conversion || !slices.Equal(served, versions) {
			return fmt.Errorf("the conversion is %s, the versions are %v", crd.Spec.Conversion.Strategy, served)
		}
		return nil
	})
}

// CM-03, CM-04, CM-18, CM-24
func TestHostedClusterManager(t *testing.T) {
	t.Parallel()
	hub := env.StartSandbox(t)
	health, metrics := env.FreeAddress(t), env.FreeAddress(t)
	i := withOperator(t, env.StartSandbox(t), "--health-probe-bind-address", health, "--metrics-bind-address", metrics)
	for _, path := range []string{"/healthz", "/readyz"} {
		framework.AwaitAnswer(t, "http://"+health+path, http.StatusOK)
	}
	framework.AwaitAnswer(t, "http://"+metrics+"/metrics", http.StatusOK)
	onHub := hub.Client(t)
	framework.Create(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"},
		Spec: operatorv1.ClusterManagerSpec{DeployOption: operatorv1.ClusterManagerDeployOption{Mode: operatorv1.InstallModeHosted,
			Hosted: &operatorv1.HostedClusterManagerConfiguration{
				RegistrationWebhookConfiguration: operatorv1.HostedWebhookConfiguration{Address: "hub.example.com", Port: 30443},
				WorkWebhookConfiguration:         operatorv1.HostedWebhookConfiguration{Address: "192.0.2.1", Port: 31443},
			}}}})
	i.awaitHub(t, "Applied=False/HubResourceApplyFailed:there is no Secret cluster-manager/external-hub-kubeconfig",
		"HubRegistrationDegraded=True/GetRegistrationDeploymentFailed")

	framework.Create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-manager", Name: fleet.SecretExternalHubKubeconfig},
			Data: map[string][]byte{fleet.KeyKubeconfig: []byte("none")}})
	i.awaitHub(t, "Applied=False/HubResourceApplyFailed:its kubeconfig is no kubeconfig")
	resident := residentOf(t, onHub)
	i.setHubKubeconfig(t, hub)
	i.awaitHub(t, "Applied=False/HubResourceApplyFailed:is that of ClusterManager cluster-manager in the cluster of the hub")
	if err := onHub.Delete(t.Context(), resident); err != nil {
		t.Fatal(err)
	}
	i.awaitHub(t, hubIsUp...)

	i.awaitDeployments(t, "cluster-manager", hubDeployments...)
	deployment := &appsv1.Deployment{}
	if err := i.Get(t.Context(), types.NamespacedName{Namespace: "cluster-manager", Name: hubDeployments[3]}, deployment); err != nil ||
		*deployment.Spec.Replicas != 1 {
		t.Errorf("%v replicas: %v", ptr.Deref(deployment.Spec.Replicas, 1), err)
	}
	i.testHostedAccount(t)
	service, endpoints := &corev1.Service{}, &corev1.Endpoints{} //nolint:staticcheck // the OCM API has them
	registration := types.NamespacedName{Namespace: "cluster-manager", Name: "cluster-manager-registration-webhook"}
	if err := onHub.Get(t.Context(), registration, service); err != nil || service.Spec.ExternalName != "hub.example.com" {
		t.Errorf("%v: %v", service.Spec, err)
	}
	work := types.NamespacedName{Namespace: "cluster-manager", Name: "cluster-manager-work-webhook"}
	if err := onHub.Get(t.Context(), work, endpoints); err != nil || endpoints.Subsets[0].Addresses[0].IP != "192.0.2.1" ||
		endpoints.Subsets[0].Ports[0].Port != 31443 {
		t.Errorf("%v: %v", endpoints.Subsets, err)
	}
	// What changes on the hub comes back, too.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:cluster-manager-placement:controller"}}
	if err := onHub.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error { return onHub.Get(ctx, client.ObjectKeyFromObject(role), role) })

	// The mode of what is installed does not change, and its removal is that of the mode in which it is installed.
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	toDefault := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deployOption":{"mode":"Default"}}}`))
	if err := i.Patch(t.Context(), cm, toDefault); err != nil {
		t.Fatal(err)
	}
	i.awaitHub(t, "Applied=False/HubResourceApplyFailed:spec.deployOption.mode is Default, but the hub is installed in the mode Hosted")
	i.awaitDeployments(t, "cluster-manager", hubDeployments...)
	// What is said of the components is what they do now.
	placement := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-manager", Name: "cluster-manager-placement-controller"}}
	if err := i.Delete(t.Context(), placement); err != nil {
		t.Fatal(err)
	}
	i.awaitHub(t, "Applied=False", "HubRegistrationDegraded=False/RegistrationFunctional",
		"HubPlacementDegraded=True/GetPlacementDeploymentFailed")
	if err := i.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	i.awaitGone(t, cm)
	(&installed{Client: onHub}).awaitGone(t, role, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}})
	i.awaitDeployments(t, "cluster-manager")
	secret := &corev1.Secret{}
	if err := i.Get(t.Context(), types.NamespacedName{Namespace: "cluster-manager", Name: fleet.SecretExternalHubKubeconfig},
		secret); err != nil {
		t.Errorf("what the user stored has gone: %v", err)
	}
}

// residentOf makes a ClusterManager in the cluster of a hub, whose hub that is.
func residentOf(t *testing.T, onHub client.Client) *operatorv1.ClusterManager {
	t.Helper()
	framework.Create(t, onHub, operatorCRD(t, "clustermanagers"))
	env.Eventually(t, func(ctx context.Context) error { return onHub.List(ctx, &operatorv1.ClusterManagerList{}) })
	resident := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	framework.Create(t, onHub, resident)
	return resident
}

func (i *installed) setHubKubeconfig(t *testing.T, hub *env.Server) {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(hub.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-manager", Name: fleet.SecretExternalHubKubeconfig}}
	secret.Data = map[string][]byte{fleet.KeyKubeconfig: content}
	if err := i.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// testHostedAccount uses the kubeconfig of a component as its pod does.
func (i *installed) testHostedAccount(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := i.Get(t.Context(), types.NamespacedName{Namespace: "cluster-manager", Name: "placement-controller-sa-kubeconfig"},
		secret); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, key := range []string{fleet.KeyKubeconfig, fleet.KeyToken} {
		if err := os.WriteFile(filepath.Join(dir, key), secret.Data[key], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"expiration", "serviceaccount_namespace", "serviceaccount_name", "serviceaccount_uid"} {
		if len(secret.Data[key]) == 0 {
			t.Errorf("no key %s", key)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, fleet.KeyKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	as := env.ClientFor(t, config)
	if err := as.List(t.Context(), &clusterv1.ManagedClusterList{}); err != nil {
		t.Error(err)
	}
	if err := as.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the placement controllers list Secrets: %v", err)
	}
}
