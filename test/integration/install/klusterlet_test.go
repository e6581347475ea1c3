package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// klusterlets is a cluster with a Klusterlet operator. All tests with Klusterlets of their own names share it.
var klusterlets struct {
	once sync.Once
	err  error
	*env.Server
	operator *env.Process
}

// klusterletCluster returns the cluster with a Klusterlet operator, which has the rights that the chart gives it.
func klusterletCluster(t *testing.T) *env.Server {
	t.Helper()
	klusterlets.once.Do(func() {
		klusterlets.Server, klusterlets.err = framework.NewSandbox("klusterlets")
		if klusterlets.err == nil {
			klusterlets.operator, klusterlets.err = startKlusterletOperator(klusterlets.Server)
		}
	})
	if klusterlets.err != nil {
		t.Fatal(klusterlets.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The operator wrote:\n%s", klusterlets.operator.Log())
		}
	})
	return klusterlets.Server
}

// startKlusterletOperator installs what the chart does, and runs the operator as its service account.
func startKlusterletOperator(cluster *env.Server, flags ...string) (*env.Process, error) {
	ctx := context.Background()
	if err := errors.Join(cluster.Start(), cluster.AwaitReady(ctx)); err != nil {
		return nil, err
	}
	config, err := cluster.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "klusterlet"}}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := errors.Join(readYAML("../../../deploy/charts/klusterlet/files/operator-rules.yaml", &role.Rules),
		readYAML("../../../deploy/crds/operator.open-cluster-management.io_klusterlets.yaml", crd)); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountKlusterlet}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceOperators}}
	for _, object := range []client.Object{crd, role, namespace, account,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "klusterlet"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "klusterlet"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}},
	} {
		if err := c.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	served, cancel := context.WithTimeout(ctx, env.WaitTimeout)
	defer cancel()
	if err := env.Poll(served, func(ctx context.Context) (bool, error) {
		return c.List(ctx, &operatorv1.KlusterletList{}) == nil, nil // the kind is served
	}); err != nil {
		return nil, err
	}
	kubeconfig, err := framework.KubeconfigOfAccount(ctx, c, config, account)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(cluster.Dir, "operator.kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	operator := env.NewProcess(filepath.Join(cluster.Dir, "operator.log"), "capstan-agent",
		append([]string{"operator", "--kubeconfig", file, "--listen", "0"}, flags...)...)
	framework.Share(operator)
	return operator, operator.Start()
}

func readYAML(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(content, into)
}

// bootstrapSecret is what an agent registers with on the hub of the tests.
func bootstrapSecret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return bootstrapSecretWith(t, namespace, name, framework.Hub.BootstrapToken(t))
}

// bootstrapSecretWith is the same with another token.
func bootstrapSecretWith(t *testing.T, namespace, name, token string) *corev1.Secret {
	t.Helper()
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := framework.KubeconfigWith(config, clientcmdapi.AuthInfo{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{fleet.KeyKubeconfig: kubeconfig},
	}
}

// newKlusterlet is a Klusterlet whose agents run in a namespace of its own.
func newKlusterlet(name string, mode operatorv1.InstallMode) *operatorv1.Klusterlet {
	k := &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	k.Spec.Namespace, k.Spec.ClusterName, k.Spec.DeployOption.Mode = "open-cluster-management-"+name, name, mode
	k.Spec.RegistrationImagePullSpec, k.Spec.WorkImagePullSpec, k.Spec.ImagePullSpec = "registration:test", "work:test", "agent:test"
	return k
}

// awaitKlusterlet waits for conditions, each given as Type=Status/Reason, and returns the Klusterlet.
func awaitKlusterlet(t *testing.T, c client.Client, name string, conditions ...string) *operatorv1.Klusterlet {
	t.Helper()
	k := &operatorv1.Klusterlet{}
	env.Eventually(t, func(ctx context.Context) error {
		*k = operatorv1.Klusterlet{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
			return err
		}
		var have []string
		for _, condition := range k.Status.Conditions {
			if condition.ObservedGeneration == k.Generation {
				have = append(have, fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason))
			}
		}
		for _, want := range conditions {
			if !slices.Contains(have, want) {
				return fmt.Errorf("Klusterlet %s: want %s, have %+v", name, want, k.Status.Conditions)
			}
		}
		return nil
	})
	return k
}

func conditionOf(k *operatorv1.Klusterlet, kind string) *metav1.Condition {
	if condition := meta.FindStatusCondition(k.Status.Conditions, kind); condition != nil {
		return condition
	}
	return &metav1.Condition{}
}

// runPod runs the agent of a Deployment as a pod of it would run: with its arguments, its volumes, and the rights of its service account. A
// volume of a Secret is what that is now. Variables, as NAME=VALUE, are those that only this pod has.
func runPod(t *testing.T, cluster *env.Server, namespace, name string, variables ...string) *env.Process {
	t.Helper()
	c := cluster.Client(t)
	config, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, deployment); err != nil {
		t.Fatal(err)
	}
	pod, root := deployment.Spec.Template.Spec, t.TempDir()
	for i, mount := range pod.Containers[0].VolumeMounts {
		dir := filepath.Join(root, mount.MountPath)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, content := range volumeContent(t, c, namespace, pod.Volumes[i].VolumeSource) {
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.ServiceAccountName}}
	kubeconfig, err := framework.KubeconfigOfAccount(t.Context(), c, config, account)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, "in-cluster")
	if err := os.WriteFile(own, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Clone(pod.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/spoke/", root+"/spoke/")
	}
	args = append(args, "--namespace", namespace, "--kubeconfig", own, "--listen", "0")
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--spoke-kubeconfig=") }) {
		args = append(args, "--spoke-kubeconfig", own)
	}
	agent := env.NewProgram(t, variables, "capstan-agent", args...)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	return agent
}

func volumeContent(t *testing.T, c client.Client, namespace string, source corev1.VolumeSource) map[string][]byte {
	t.Helper()
	content := map[string][]byte{}
	switch {
	case source.Secret != nil:
		secret := &corev1.Secret{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: source.Secret.SecretName}, secret)
		if err != nil && (!apierrors.IsNotFound(err) || source.Secret.Optional == nil) {
			t.Fatal(err)
		}
		maps.Copy(content, secret.Data)
	case source.ConfigMap != nil:
		cm := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: source.ConfigMap.Name}, cm); err != nil {
			t.Fatal(err)
		}
		for key, value := range cm.Data {
			content[key] = []byte(value)
		}
	}
	return content
}

// KL-01, KL-02, KL-07, KL-08, KL-24, KL-25, KL-29 to KL-33: an agent in two parts is installed, joins with the rights that it was given,
// applies works, and goes without a trace.
func TestKlusterletDefault(t *testing.T) {
	t.Parallel()
	const name = "kl-default"
	cluster := klusterletCluster(t)
	c, namespace := cluster.Client(t), "open-cluster-management-"+name
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeDefault))
	k := awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied", "ValidFeatureGates=True/FeatureGatesAllValid",
		"HubConnectionDegraded=True/BootstrapSecretMissing,HubKubeConfigSecretMissing", "RegistrationDesiredDegraded=False/DeploymentsFunctional",
		"WorkDesiredDegraded=False/DeploymentsFunctional", "Available=False/NoAvailablePods")
	if k.Status.ObservedGeneration != k.Generation || len(k.Status.Generations) != 2 || len(k.Status.RelatedResources) == 0 {
		t.Errorf(
			"the status has generation %d of %d, generations %v, resources %v",
			k.Status.ObservedGeneration,
			k.Generation,
			k.Status.Generations,
			k.Status.RelatedResources,
		)
	}

	// The condition says what to do about a token that the hub does not know.
	bootstrap := bootstrapSecretWith(t, namespace, fleet.SecretBootstrapHubKubeconfig, "abcdef.0123456789abcdef")
	framework.Create(t, c, bootstrap)
	awaitKlusterletMessage(t, c, name, fleet.ConditionHubConnectionDegraded, "BootstrapSecretError,HubKubeConfigSecretMissing",
		"wrong or has expired. Put a new one there, with the token of capstan get token")
	bootstrap.Data = bootstrapSecret(t, namespace, bootstrap.Name).Data
	if err := c.Update(t.Context(), bootstrap); err != nil {
		t.Fatal(err)
	}
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=True/BootstrapSecretFunctional,HubKubeConfigSecretMissing")
	runPod(t, cluster, namespace, name+"-registration-agent")
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=False/HubConnectionFunctional", "Available=True/KlusterletAvailable")

	runPod(t, cluster, namespace, name+"-work-agent")
	w := framework.Work(
		name,
		"first",
		framework.ConfigMap("default", name, "x"),
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"`+name+`"},
		"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]}`,
	)
	framework.Create(t, framework.Hub.Client(t), w)
	framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionApplied, metav1.ConditionTrue)
	if err := framework.Hub.Client(t).Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, framework.Hub.Client(t), w)
	removeKlusterlet(t, c, name)
}

// removeKlusterlet deletes a Klusterlet, and expects nothing to be left of it.
func removeKlusterlet(t *testing.T, c client.Client, name string) {
	t.Helper()
	k := &operatorv1.Klusterlet{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, k); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, k)
	expectNothingLeft(t, c, name)
}

// expectNothingLeft looks at all kinds that Klusterlets consist of.
func expectNothingLeft(t *testing.T, c client.Client, name string) {
	t.Helper()
	for _, list := range []client.ObjectList{&corev1.NamespaceList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{},
		&corev1.ConfigMapList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &appsv1.DeploymentList{}} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			o, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(o.GetName()+o.GetNamespace(), name) || o.GetLabels()[fleet.LabelCreatedByKlusterlet] == name {
				kind, _ := apiutil.GVKForObject(object, env.Scheme())
				t.Errorf("%s %s/%s is left", kind.Kind, o.GetNamespace(), o.GetName())
			}
		}
	}
}
