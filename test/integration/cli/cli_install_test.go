package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// urlOf is the URL of a server.
func urlOf(t *testing.T, server *env.Server) string {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config.Host
}

// comeAndGo are kinds of which a cluster creates objects by itself.
var comeAndGo = []string{"ComponentStatus", "Endpoints", "EndpointSlice", "Event", "IPAddress", "Lease", "Service"}

// everything is what a cluster has, without what comes and goes by itself.
func everything(t *testing.T, server *env.Server) []string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	c := server.Client(t)
	var all []string
	for _, list := range kinds {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(comeAndGo, resource.Kind) {
				continue
			}
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(version.WithKind(resource.Kind + "List"))
			if err := c.List(t.Context(), objects); err != nil {
				t.Fatalf("list %s: %v", resource.Kind, err)
			}
			for j := range objects.Items {
				all = append(all, fmt.Sprintf("%s %s/%s", resource.Kind, objects.Items[j].GetNamespace(), objects.Items[j].GetName()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// wantSame fails the test unless a cluster has what it had before.
func wantSame(t *testing.T, before, after []string) {
	t.Helper()
	for _, object := range after {
		if !slices.Contains(before, object) {
			t.Errorf("left: %s", object)
		}
	}
	for _, object := range before {
		if !slices.Contains(after, object) {
			t.Errorf("gone: %s", object)
		}
	}
}

// setConditions says what an operator would: this package runs none.
func setConditions(t *testing.T, c client.Client, object client.Object, conditions *[]metav1.Condition,
	statuses map[string]metav1.ConditionStatus) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	*conditions = nil
	for name, status := range statuses {
		*conditions = append(*conditions, metav1.Condition{
			Type: name, Status: status, Reason: "ByHand", Message: "set by hand", LastTransitionTime: metav1.Now(),
			ObservedGeneration: object.GetGeneration(),
		})
	}
	if err := c.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// CA-06, CA-10, CA-11, CA-12, CA-13, CA-20, CA-41: a hub is installed and taken out again, and nothing is left.
func TestInit(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	c := server.Client(t)
	before := everything(t, server)

	server.Capstan(t, "", "init", "--dry-run").Succeeds(t, "kind: ClusterManager", "kind: CustomResourceDefinition")
	wantSame(t, before, everything(t, server))

	dir := t.TempDir()
	script, file := filepath.Join(dir, "join.sh"), filepath.Join(dir, "applied.yaml")
	first := server.Capstan(t, "", "init", "--output-file", file, "--output-join-command-file", script)
	first.Succeeds(t, "initialized successfully", "capstan join --hub-token ", "--ca-cert-hash sha256:", "--cluster-name <cluster_name>")
	if !strings.Contains(first.ErrOut, "no ConfigMap kube-public/cluster-info") {
		t.Errorf("nothing says that cluster-info is created: %s", first.ErrOut)
	}
	content, err := os.ReadFile(script)
	if info, statErr := os.Stat(script); err != nil || statErr != nil || info.Mode().Perm() != 0o700 ||
		!strings.Contains(string(content), `--cluster-name "$1"`) {
		t.Errorf("the script is %q: %v, %v", content, err, statErr)
	}
	if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), "kind: ClusterManager") {
		t.Errorf("the output file is %q: %v", content, err)
	}
	again := server.Capstan(t, "", "init", "-o", "json")
	var info map[string]any
	if err := json.Unmarshal([]byte(again.Out), &info); err != nil || info["hub-token"] == "" || info["hub-apiserver"] != urlOf(t, server) {
		t.Errorf("JSON %q: %v", again.Out, err)
	}
	if !strings.Contains(again.ErrOut, "0 objects created, 0 changed") {
		t.Errorf("a second run changes something: %s", again.ErrOut)
	}
	server.Interrupted(t, "clustermanagers", "init", "--wait").
		Ends(t, env.CodeInterrupted, "Error: ClusterManager cluster-manager", "Applied is not reported yet")
	manager := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	setConditions(t, c, manager, &manager.Status.Conditions, map[string]metav1.ConditionStatus{
		"Applied": metav1.ConditionTrue, "Progressing": metav1.ConditionFalse, "HubRegistrationDegraded": metav1.ConditionTrue,
		"HubPlacementDegraded": metav1.ConditionFalse,
	})
	server.Interrupted(t, "clustermanagers", "init", "--wait").
		Ends(t, env.CodeInterrupted, "HubRegistrationDegraded is True (ByHand): set by hand")
	setConditions(t, c, manager, &manager.Status.Conditions, map[string]metav1.ConditionStatus{
		"Applied": metav1.ConditionTrue, "Progressing": metav1.ConditionFalse, "HubRegistrationDegraded": metav1.ConditionFalse,
		"HubPlacementDegraded": metav1.ConditionFalse,
	})
	server.Capstan(t, "", "init", "--wait").Succeeds(t, "capstan join", " --wait --cluster-name")
	server.Capstan(t, "", "init", "--use-bootstrap-token").Succeeds(t, "--hub-token ocmhub.")
	token := server.Capstan(t, "", "init", "--use-bootstrap-token", "-o", "json").Out
	if again := server.Capstan(t, "", "init", "--use-bootstrap-token", "-o", "json").Out; again != token {
		t.Errorf("the bootstrap token was %s and is %s", token, again)
	}

	testUpgrade(t, server, c)
	server.Capstan(t, "", "clean", "--dry-run").Succeeds(t, "would delete ClusterManager cluster-manager",
		"would delete Deployment open-cluster-management/cluster-manager")
	testCleanFinalizer(t, server, c, manager)
	wantSame(t, before, everything(t, server))
	server.Capstan(t, "", "clean").Succeeds(t, "There is no hub")
}

// CA-41: an upgrade changes the images and nothing else of the configuration.
func testUpgrade(t *testing.T, server *env.Server, c client.Client) {
	t.Helper()
	manager := &operatorv1.ClusterManager{}
	key := client.ObjectKey{Name: "cluster-manager"}
	if err := c.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	manager.Spec.RegistrationConfiguration.AutoApproveUsers = []string{"me"}
	if err := c.Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	overrides := filepath.Join(t.TempDir(), "bundle.json")
	if err := os.WriteFile(overrides, []byte(`{"ocm":"v77.0.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Capstan(t, "", "upgrade", "clustermanager", "--bundle-version-overrides", overrides, "--image-registry", "r.example.com").
		Succeeds(t, "upgraded completed successfully")
	if err := c.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	if image := manager.Spec.RegistrationImagePullSpec; !strings.HasPrefix(image, "r.example.com/") || !strings.HasSuffix(image, ":v77.0.0") {
		t.Errorf("the image is %s", image)
	}
	if users := manager.Spec.RegistrationConfiguration.AutoApproveUsers; !slices.Equal(users, []string{"me"}) {
		t.Errorf("the configuration is lost: %v", users)
	}
	server.Capstan(t, "", "upgrade", "clustermanager").Succeeds(t) // devel is no version to compare
}

// CA-20, O18: a finalizer that nobody takes off is named, and taken off by force.
func testCleanFinalizer(t *testing.T, server *env.Server, c client.Client, manager *operatorv1.ClusterManager) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(manager), manager); err != nil {
		t.Fatal(err)
	}
	manager.Finalizers = []string{"operator.open-cluster-management.io/cluster-manager-cleanup"}
	if err := c.Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	server.Interrupted(t, "clustermanagers", "clean").Ends(t, env.CodeInterrupted, "ClusterManager cluster-manager is not gone",
		"finalizer operator.open-cluster-management.io/cluster-manager-cleanup", "Its operator runs")
	deployment := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "open-cluster-management", Name: "cluster-manager"}, deployment); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	got := server.Capstan(t, "", "clean", "--force")
	got.Succeeds(t, "cleaned up successfully")
	if !strings.Contains(got.ErrOut, "took the finalizers operator.open-cluster-management.io/cluster-manager-cleanup off") {
		t.Errorf("nothing says that finalizers were taken off: %s", got.ErrOut)
	}
}

// CA-20, O18: a hub with clusters that are available stays, and so does a namespace that has something of others in it.
func TestCleanRefuses(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	c := server.Client(t)
	definition := applyCRD(t, c, crds.Hub(), "managedclusters")
	server.Capstan(t, "", "init").Succeeds(t)
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	available := map[string]metav1.ConditionStatus{"ManagedClusterConditionAvailable": metav1.ConditionTrue}
	setConditions(t, c, cluster, &cluster.Status.Conditions, available)
	server.Capstan(t, "", "clean").Ends(t, 1, "available: c1", "capstan unjoin", "--wait", "--force")
	server.Interrupted(t, "managedclusters", "clean", "--wait").Ends(t, env.CodeInterrupted, "wait until no cluster is available", "These are: c1")
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management", Name: "mine"}}
	framework.Create(t, c, mine)
	ofClusters := map[string]bool{"c1": false, "c2": true} // whether they stay
	for name := range ofClusters {
		framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"open-cluster-management.io/cluster-name": name}}})
	}
	framework.Create(t, c, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "c2", Name: "mine"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}})
	done := make(chan env.Result)
	go func() { done <- server.Capstan(t, "", "clean", "--wait") }()
	if err := c.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cleaned := env.Receive(t, done)
	cleaned.Succeeds(t, "cleaned up successfully")
	if !strings.Contains(cleaned.ErrOut, "Namespace open-cluster-management stays: it has ") {
		t.Errorf("nothing says that the namespace stays: %s", cleaned.ErrOut)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil {
		t.Errorf("what is in the namespace does not stay: %v", err)
	}
	for name, stays := range ofClusters {
		err := c.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{})
		if (err == nil) != stays || client.IgnoreNotFound(err) != nil {
			t.Errorf("namespace %s: %v", name, err)
		}
	}
	if err := c.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
}

// applyCRD makes a cluster serve a kind.
func applyCRD(t *testing.T, c client.Client, definitions []*apiextensionsv1.CustomResourceDefinition, plural string) client.Object {
	t.Helper()
	at := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Spec.Names.Plural == plural })
	definition := definitions[at]
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return served(ctx, c, definition)
			}
		}
		return errors.New("not established")
	})
	return definition
}

// served returns an error until the kind of an established definition is discovered and listed, which comes a moment later.
func served(ctx context.Context, c client.Client, definition *apiextensionsv1.CustomResourceDefinition) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group: definition.Spec.Group, Version: definition.Spec.Versions[0].Name, Kind: definition.Spec.Names.ListKind,
	})
	return c.List(ctx, list)
}

// CA-06: what clusteradm has applied is taken over, with the fields that are not applied any more.
func TestInitAdopts(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	c := server.Client(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}}); err != nil {
		t.Fatal(err)
	}
	old := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "cluster-manager",
			Labels:      map[string]string{"of-clusteradm": "true"},
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"kind":"ClusterRole"}`},
		},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"old.example.com"}, Resources: []string{"*"}, Verbs: []string{"get"}}},
	}
	if err := c.Create(t.Context(), old, client.FieldOwner("clusteradm")); err != nil {
		t.Fatal(err)
	}
	toAnother := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	if err := c.Create(t.Context(), toAnother); err != nil {
		t.Fatal(err)
	}
	mayAll(t, server, "keeps-all", "get", "list", "watch", "create", "update", "patch").Capstan(t, "", "init").Ends(t, 1, "may not do all that it takes",
		"delete clusterrolebindings.rbac.authorization.k8s.io")
	server.Capstan(t, "", "init").Succeeds(t)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(toAnother), toAnother); err != nil || toAnother.RoleRef.Name != "cluster-manager" {
		t.Errorf("the binding is of %s: %v", toAnother.RoleRef.Name, err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	if old.Labels["of-clusteradm"] != "" || old.Annotations[corev1.LastAppliedConfigAnnotation] != "" ||
		slices.ContainsFunc(old.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.APIGroups, "old.example.com") }) {
		t.Errorf("fields that are not applied any more stay: %+v", old)
	}
	for _, entry := range old.ManagedFields {
		if entry.Manager == "clusteradm" {
			t.Errorf("clusteradm still owns %s", entry.FieldsV1)
		}
	}
}

// mayAll is the server for a user who may do this with everything, and give roles and bind them.
func mayAll(t *testing.T, server *env.Server, user string, verbs ...string) *env.Server {
	t.Helper()
	c, name := server.Client(t), metav1.ObjectMeta{Name: user}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: append(verbs, "escalate", "bind")}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name.Name}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name.Name}}
	for _, object := range []client.Object{account, role, binding} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	weak := *server
	weak.Kubeconfig = framework.KubeconfigIn(t, server, "default", name.Name)
	return &weak
}

// CA-11: all permissions that are missing are listed, and nothing is changed. Who may create and update need not patch.
func TestInitWithoutRights(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	c := server.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "weak"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "weak"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "weak"}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	before := everything(t, server)
	weak := *server
	weak.Kubeconfig = framework.KubeconfigIn(t, server, "default", "weak")
	weak.Capstan(t, "", "init").Ends(t, 1, "may not do all that it takes", "create clusterroles.rbac.authorization.k8s.io",
		"patch customresourcedefinitions.apiextensions.k8s.io", "create namespaces", "create clustermanagers.operator.open-cluster-management.io")
	wantSame(t, before, everything(t, server))

	updates := mayAll(t, server, "updates", "get", "list", "watch", "create", "update")
	updates.Capstan(t, "", "init").Succeeds(t)
	updates.Capstan(t, "", "init", "--image-registry", "registry.example.com/updated").Succeeds(t)
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management", Name: "cluster-manager"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(operator), operator); err != nil {
		t.Fatal(err)
	}
	if image := operator.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.com/updated/") {
		t.Errorf("the image of the operator is %s", image)
	}
	updates.Capstan(t, "", "upgrade", "clustermanager", "--image-registry", "registry.example.com/upgraded").Succeeds(t)
	hub := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(hub), hub); err != nil {
		t.Fatal(err)
	}
	if image := hub.Spec.RegistrationImagePullSpec; !strings.HasPrefix(image, "registry.example.com/upgraded/") {
		t.Errorf("the image of the hub is %s", image)
	}
}

// CA-15, CA-16, CA-17, CA-19, CA-28, CA-41: an agent is installed in a cluster and taken out again, and nothing is left.
func TestJoinInCluster(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	c, onHub := server.Client(t), framework.Hub.Client(t)
	before := everything(t, server)
	var info struct {
		Token  string   `json:"hub-token"`
		Server string   `json:"hub-apiserver"`
		Pins   []string `json:"ca-cert-hash"`
	}
	if err := json.Unmarshal([]byte(framework.Hub.Capstan(t, "", "get", "token", "-o", "json").Out), &info); err != nil {
		t.Fatal(err)
	}
	const name = "joins-in-cluster"
	joinCommand := func(flags ...string) []string {
		return append([]string{"join", "--hub-token", info.Token, "--hub-apiserver", info.Server, "--cluster-name", name,
			"--ca-cert-hash", strings.Join(info.Pins, ",")}, flags...)
	}
	join := func(flags ...string) env.Result { return server.Capstan(t, "", joinCommand(flags...)...) }
	join("--dry-run").Succeeds(t, "kind: Klusterlet", "kind: Deployment")
	wantSame(t, before, everything(t, server))
	join().Succeeds(t, "capstan accept --clusters "+name)
	secret := &corev1.Secret{}
	bootstrap := client.ObjectKey{Namespace: "open-cluster-management-agent", Name: "bootstrap-hub-kubeconfig"}
	if err := c.Get(t.Context(), bootstrap, secret); err != nil {
		t.Fatal(err)
	}
	if config, err := clientcmd.Load(secret.Data["kubeconfig"]); err != nil || config.Clusters["hub"].Server != info.Server ||
		config.AuthInfos["bootstrap"].Token != info.Token {
		t.Errorf("the bootstrap kubeconfig is %s: %v", secret.Data["kubeconfig"], err)
	}
	if again := join(); !strings.Contains(again.ErrOut, "0 objects created, 0 changed") {
		t.Errorf("a second run changes something: %s", again.ErrOut)
	}
	server.Capstan(t, "", "join", "--hub-token", info.Token, "--hub-apiserver", info.Server, "--cluster-name", "another", "--ca-cert-hash",
		info.Pins[0]).Ends(t, 1, "has joined a hub as "+name+" already", "capstan unjoin --cluster-name "+name)

	klusterlet := &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "klusterlet"}}
	setConditions(t, c, klusterlet, &klusterlet.Status.Conditions, map[string]metav1.ConditionStatus{
		"Applied": metav1.ConditionTrue, "RegistrationDesiredDegraded": metav1.ConditionFalse, "WorkDesiredDegraded": metav1.ConditionFalse,
		"HubConnectionDegraded": metav1.ConditionTrue,
	})
	server.Interrupted(t, "managedclusters", joinCommand("--wait")...).
		Ends(t, env.CodeInterrupted, "no connection to the hub (ByHand): set by hand")
	if err := onHub.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	server.Interrupted(t, "certificatesigningrequests", joinCommand("--wait")...).
		Ends(t, env.CodeInterrupted, "the hub has not heard of system:open-cluster-management:"+name+":"+string(klusterlet.UID))
	request := fakehub.JoinRequest(t, name, name, string(klusterlet.UID))
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
	if err := onHub.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	join("--wait").Succeeds(t, "capstan accept --clusters "+name)
	server.Capstan(t, "", "get", "klusterlet-info").Succeeds(t, "ClusterName: "+name, "Mode: Default",
		"HubConnectionDegraded: True (ByHand): set by hand")
	join("--singleton").Succeeds(t)
	server.Capstan(t, "", "upgrade", "klusterlet", "--image-registry", "r.example.com").Succeeds(t, "upgraded completed successfully")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(klusterlet), klusterlet); err != nil {
		t.Fatal(err)
	}
	mode, image := klusterlet.Spec.DeployOption.Mode, klusterlet.Spec.ImagePullSpec
	if mode != operatorv1.InstallModeSingleton || !strings.HasPrefix(image, "r.example.com/") {
		t.Errorf("mode %s, image %s", mode, image)
	}
	testUnjoin(t, server, c, klusterlet, name)
	wantSame(t, before, everything(t, server))
}

// CA-19, O18: unjoin refuses while there are works, and names what keeps the Klusterlet.
func testUnjoin(t *testing.T, server *env.Server, c client.Client, klusterlet *operatorv1.Klusterlet, name string) {
	t.Helper()
	applyCRD(t, c, crds.ManagedCluster(), "appliedmanifestworks")
	applied := &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"cluster.open-cluster-management.io/applied-manifest-work-cleanup"}},
		Spec:       workv1.AppliedManifestWorkSpec{ManifestWorkName: "web", AgentID: string(klusterlet.UID), HubHash: "h"},
	}
	if err := c.Create(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	klusterlet.Finalizers = []string{"operator.open-cluster-management.io/klusterlet-cleanup"}
	if err := c.Update(t.Context(), klusterlet); err != nil {
		t.Fatal(err)
	}
	server.Capstan(t, "", "unjoin", "--cluster-name", "another").Ends(t, 1, "no Klusterlet for cluster another", name)
	server.Capstan(t, "", "unjoin", "--cluster-name", name).Ends(t, 1, "work web", "--wait", "--force")
	server.Interrupted(t, "appliedmanifestworks", "unjoin", "--cluster-name", name, "--wait").
		Ends(t, env.CodeInterrupted, "These are left:\n  work web")
	applied.Finalizers = nil
	if err := c.Update(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	server.Interrupted(t, "klusterlets", "unjoin", "--cluster-name", name).Ends(t, env.CodeInterrupted, "Klusterlet klusterlet is not gone",
		"finalizer operator.open-cluster-management.io/klusterlet-cleanup")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(klusterlet), klusterlet); err != nil {
		t.Fatal(err)
	}
	klusterlet.Finalizers = nil
	if err := c.Update(t.Context(), klusterlet); err != nil {
		t.Fatal(err)
	}
	server.Capstan(t, "", "unjoin", "--cluster-name", name).Succeeds(t, "Applied resources have been deleted during the "+name+" joined stage")
}

// CA-16, CA-17, CA-19: a hosted agent has names of its own, which stay when it joins again.
func TestJoinHosted(t *testing.T) {
	t.Parallel()
	hosting := env.StartSandbox(t)
	c := hosting.Client(t)
	var info struct {
		Token  string   `json:"hub-token"`
		Server string   `json:"hub-apiserver"`
		Pins   []string `json:"ca-cert-hash"`
	}
	if err := json.Unmarshal([]byte(framework.Hub.Capstan(t, "", "get", "token", "-o", "json").Out), &info); err != nil {
		t.Fatal(err)
	}
	join := func() {
		hosting.Capstan(t, "", "join", "--hub-token", info.Token, "--hub-apiserver", info.Server, "--cluster-name", "is-hosted", "--ca-cert-hash",
			info.Pins[0], "--mode", "hosted", "--managed-cluster-kubeconfig", framework.Managed.Kubeconfig).Succeeds(t)
	}
	join()
	join()
	list := &operatorv1.KlusterletList{}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d Klusterlets: %v", len(list.Items), err)
	}
	klusterlet := &list.Items[0]
	if klusterlet.Spec.DeployOption.Mode != operatorv1.InstallModeHosted || !strings.HasPrefix(klusterlet.Name, "klusterlet-hosted-") ||
		klusterlet.Spec.Namespace != "open-cluster-management-"+klusterlet.Name {
		t.Errorf("%s: %+v", klusterlet.Name, klusterlet.Spec)
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: klusterlet.Name, Name: "external-managed-kubeconfig"}, secret); err != nil {
		t.Fatal(err)
	}
	if config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]); err != nil || config.Host != urlOf(t, framework.Managed) {
		t.Errorf("the kubeconfig leads to %+v: %v", config, err)
	}
	operator := client.ObjectKey{Namespace: "open-cluster-management", Name: "klusterlet"}
	if err := c.Get(t.Context(), operator, &appsv1.Deployment{}); err != nil {
		t.Errorf("the operator of hosted agents: %v", err)
	}
	hosting.Capstan(t, "", "unjoin", "--cluster-name", "is-hosted").Succeeds(t, "Applied resources have been deleted")
	if err := c.Get(t.Context(), client.ObjectKey{Name: klusterlet.Name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace of the agent stays: %v", err)
	}
}
