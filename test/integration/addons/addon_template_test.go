package addons

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// templated is the example helloworld-template.
const templated = "helloworld-template"

// exampleObjects are those of a file of an example.
func exampleObjects(t *testing.T, example, file string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "examples", example, file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// templateCluster is a managed cluster with a real agent.
type templateCluster struct {
	name    string
	managed client.WithWatch
}

// joinForTemplates joins a cluster that the placement of the example selects.
func joinForTemplates(t *testing.T, on *env.Server, name string) templateCluster {
	t.Helper()
	env.Join(t, framework.Hub, on, name)
	c := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		cluster := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		metav1.SetMetaDataLabel(&cluster.ObjectMeta, templated, "yes")
		return c.Update(ctx, cluster)
	})
	return templateCluster{name: name, managed: on.Client(t)}
}

// await waits until the add-on is there, available, and up to date with its configurations.
func (c templateCluster) await(t *testing.T) {
	t.Helper()
	hubClient := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		if err := hubClient.Get(ctx, client.ObjectKey{Namespace: c.name, Name: templated}, addOn); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionRegistrationApplied, fleet.ConditionConfigured, fleet.ConditionManifestApplied,
			fleet.ConditionAvailable} {
			if !meta.IsStatusConditionTrue(addOn.Status.Conditions, kind) {
				return fmt.Errorf("%s is not True: %+v", kind, addOn.Status)
			}
		}
		if progressing := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing); progressing == nil ||
			progressing.Reason != fleet.ReasonCompleted {
			return fmt.Errorf("not completed: %+v", addOn.Status)
		}
		return nil
	})
}

// deployment waits until the agent's Deployment is as wanted.
func (c templateCluster) deployment(t *testing.T, check func(pod *corev1.PodSpec, container *corev1.Container) error) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := c.managed.Get(ctx, client.ObjectKey{Namespace: templated, Name: "helloworld-agent"}, d); err != nil {
			return err
		}
		if len(d.Spec.Template.Spec.Containers) != 1 {
			return fmt.Errorf("containers %v", d.Spec.Template.Spec.Containers)
		}
		return check(&d.Spec.Template.Spec, &d.Spec.Template.Spec.Containers[0])
	})
}

func (c templateCluster) awaitGreeting(t *testing.T, want string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		greeting := &corev1.ConfigMap{}
		if err := c.managed.Get(ctx, client.ObjectKey{Namespace: templated, Name: "greeting"}, greeting); err != nil {
			return err
		}
		if greeting.Data["greeting"] != want {
			return fmt.Errorf("%q, want %q", greeting.Data["greeting"], want)
		}
		return nil
	})
}

// awaitValue waits until an environment variable of the agent has the value.
func (c templateCluster) awaitValue(t *testing.T, name, value string) {
	t.Helper()
	c.deployment(t, func(_ *corev1.PodSpec, container *corev1.Container) error {
		if !slices.Contains(container.Env, corev1.EnvVar{Name: name, Value: value}) {
			return fmt.Errorf("no %s=%s in %v", name, value, container.Env)
		}
		return nil
	})
}

// AM-30 to AM-34, AM-36 to AM-38, R12, A5: the example helloworld-template on two clusters with real agents, from its installation over
// configurations and an upgrade to its removal.
func TestAddOnTemplate(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	for _, file := range []string{"hub.yaml", "addondeploymentconfig.yaml", "addontemplate.yaml", "clustermanagementaddon.yaml",
		"placement.yaml"} {
		for _, object := range exampleObjects(t, templated, file) {
			framework.Create(t, c, object)
		}
	}
	one, two := joinForTemplates(t, framework.Managed, "template-one"), joinForTemplates(t, env.StartSandbox(t), "template-two")
	both := []templateCluster{one, two}
	for _, cluster := range both {
		cluster.await(t)
		cluster.awaitGreeting(t, "Hello from "+cluster.name)
		cluster.awaitValue(t, "CLUSTER_NAME", cluster.name)
		cluster.awaitValue(t, "INSTALL_NAMESPACE", templated)
		cluster.awaitValue(t, "HUB_KUBECONFIG", "/managed/hub-kubeconfig/kubeconfig")
		awaitAccessOfTemplate(t, cluster)
	}

	// One cluster has a configuration of its own: another greeting, registry and proxy, as in the documentation. The other one has its images
	// elsewhere, whatever the add-on.
	one.configure(t, "Good \"morning\"\n")
	two.annotate(t, fleet.AnnotationImageRegistries,
		`{"registries": [{"source": "docker.io/library", "mirror": "registry.example.com/team"}]}`)
	one.awaitGreeting(t, "Good \"morning\"\n from template-one")
	one.awaitProxy(t)
	one.awaitImage(t, "mirror.example.com/library/busybox:1.37")
	two.awaitImage(t, "registry.example.com/team/busybox:1.37")
	one.await(t)
	two.await(t)
	two.awaitGreeting(t, "Hello from template-two")

	// The next version is another template, which becomes the default.
	upgrade(t, c)
	one.awaitImage(t, "mirror.example.com/library/busybox:1.38")
	two.awaitImage(t, "registry.example.com/team/busybox:1.38")
	for _, cluster := range both {
		cluster.await(t)
	}

	removeTemplated(t, both)
}

// awaitAccessOfTemplate waits until the agent has its kubeconfig, and its rights on the hub.
func awaitAccessOfTemplate(t *testing.T, cluster templateCluster) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := cluster.managed.Get(ctx, client.ObjectKey{Namespace: templated, Name: templated + "-hub-kubeconfig"}, secret); err != nil {
			return err
		}
		if len(secret.Data["kubeconfig"]) == 0 {
			return fmt.Errorf("no kubeconfig among %d keys", len(secret.Data))
		}
		for _, namespace := range []string{cluster.name, templated} {
			bindings, err := bindingsOfTemplate(ctx, framework.Hub.Client(t), namespace, cluster.name)
			if err != nil {
				return err
			}
			if len(bindings) != 1 || bindings[0].RoleRef.Name != templated+"-reader" {
				return fmt.Errorf("bindings in %s: %v", namespace, bindings)
			}
		}
		return nil
	})
}

func bindingsOfTemplate(ctx context.Context, c client.Client, namespace, cluster string) ([]rbacv1.RoleBinding, error) {
	bindings := &rbacv1.RoleBindingList{}
	err := c.List(ctx, bindings, client.InNamespace(namespace),
		client.MatchingLabels{fleet.LabelAddOnName: templated, fleet.LabelClusterName: cluster})
	return bindings.Items, err
}

// configure gives the add-on on a cluster a configuration of its own, that of the example addon-proxy-settings with another greeting.
func (c templateCluster) configure(t *testing.T, greeting string) {
	t.Helper()
	hubClient := framework.Hub.Client(t)
	for _, object := range exampleObjects(t, "addon-proxy-settings", "addondeploymentconfig.yaml") {
		object.SetNamespace(c.name)
		variable := map[string]any{"name": "GREETING", "value": greeting}
		if err := unstructured.SetNestedSlice(object.Object, []any{variable}, "spec", "customizedVariables"); err != nil {
			t.Fatal(err)
		}
		framework.Create(t, hubClient, object)
	}
	for _, object := range exampleObjects(t, "addon-proxy-settings", "managedclusteraddon.yaml") {
		object.SetNamespace(c.name)
		configs, _, err := unstructured.NestedSlice(object.Object, "spec", "configs")
		if err != nil {
			t.Fatal(err)
		}
		configs[0].(map[string]any)["namespace"] = c.name
		if err := unstructured.SetNestedSlice(object.Object, configs, "spec", "configs"); err != nil {
			t.Fatal(err)
		}
		if err := hubClient.Patch(t.Context(), object, client.Merge); err != nil {
			t.Fatal(err)
		}
	}
}

// annotate sets an annotation of the cluster.
func (c templateCluster) annotate(t *testing.T, name, value string) {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
	if err := framework.Hub.Client(t).Patch(t.Context(), cluster, framework.Merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name,
		value))); err != nil {
		t.Fatal(err)
	}
}

func (c templateCluster) awaitImage(t *testing.T, image string) {
	t.Helper()
	c.deployment(t, func(_ *corev1.PodSpec, container *corev1.Container) error {
		if container.Image != image {
			return fmt.Errorf("image %s, want %s", container.Image, image)
		}
		return nil
	})
}

// awaitProxy waits until the agent has the proxy of the example, with the certificates to verify it.
func (c templateCluster) awaitProxy(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"HTTP_PROXY": "http://10.0.109.153:3128", "HTTPS_PROXY": "https://10.0.109.153:3129", "NO_PROXY": ".cluster.local,.svc,10.96.0.1",
	} {
		c.awaitValue(t, name, value)
		c.awaitValue(t, strings.ToLower(name), value)
	}
	c.awaitValue(t, "CA_BUNDLE_FILE_PATH", "/managed/proxy-ca/ca-bundle.crt")
	c.deployment(t, func(pod *corev1.PodSpec, container *corev1.Container) error {
		at := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/managed/proxy-ca" })
		if at < 0 || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == container.VolumeMounts[at].Name && v.ConfigMap != nil && v.ConfigMap.Name == templated+"-proxy-ca"
		}) {
			return fmt.Errorf("volumes %v, mounts %v", pod.Volumes, container.VolumeMounts)
		}
		return nil
	})
	bundle := &corev1.ConfigMap{}
	if err := c.managed.Get(t.Context(), client.ObjectKey{Namespace: templated, Name: templated + "-proxy-ca"}, bundle); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(bundle.Data["ca-bundle.crt"]))
	if block == nil {
		t.Fatalf("no certificate in %q", bundle.Data)
	}
	if certificate, err := x509.ParseCertificate(block.Bytes); err != nil || certificate.Subject.CommonName != "proxy-ca" {
		t.Errorf("%v, %v", certificate, err)
	}
}

// upgrade makes a second version the default.
func upgrade(t *testing.T, c client.Client) {
	t.Helper()
	for _, object := range exampleObjects(t, templated, "addontemplate.yaml") {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		next := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("busybox:1.37", "busybox:1.38", templated+"-v1", templated+
			"-v2").Replace(string(text))), &next.Object); err != nil {
			t.Fatal(err)
		}
		framework.Create(t, c, next)
	}
	env.Eventually(t, func(ctx context.Context) error {
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := c.Get(ctx, client.ObjectKey{Name: templated}, entry); err != nil {
			return err
		}
		for i := range entry.Spec.DefaultConfigs {
			if entry.Spec.DefaultConfigs[i].Resource == "addontemplates" {
				entry.Spec.DefaultConfigs[i].Name = templated + "-v2"
			}
		}
		return c.Update(ctx, entry)
	})
}

// removeTemplated deletes the add-on from the catalogue, and waits until nothing of it is left anywhere.
func removeTemplated(t *testing.T, clusters []templateCluster) {
	t.Helper()
	c := framework.Hub.Client(t)
	if err := c.Delete(t.Context(), &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: templated}}); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range clusters {
		env.Eventually(t, func(ctx context.Context) error {
			if err := gone(ctx, c, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.name,
				Name: templated}}); err != nil {
				return err
			}
			works := &workv1.ManifestWorkList{}
			if err := c.List(ctx, works, client.InNamespace(cluster.name)); err != nil {
				return err
			}
			if len(works.Items) > 0 {
				return fmt.Errorf("%d works", len(works.Items))
			}
			for _, namespace := range []string{cluster.name, templated} {
				bindings, err := bindingsOfTemplate(ctx, c, namespace, cluster.name)
				if err != nil {
					return err
				}
				if len(bindings) > 0 {
					return fmt.Errorf("bindings in %s: %v", namespace, bindings)
				}
			}
			return gone(ctx, cluster.managed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: templated}})
		})
	}
}

// gone fails as long as the object is there.
func gone(ctx context.Context, c client.Client, o client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
	if err == nil {
		return fmt.Errorf("%T %s is still there", o, client.ObjectKeyFromObject(o))
	}
	return client.IgnoreNotFound(err)
}
