package argocd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
)

const (
	// accountOfPush is who Argo CD is on the cluster.
	accountOfPush = `
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {name: TEST, namespace: cluster1}
spec: {rotation: {validity: 24h}}
`
	// userOfPush is a user of the hub who enters the cluster.
	userOfPush = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: argocd, namespace: TEST}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: TEST}
rules:
- {apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters/proxy], resourceNames: [cluster1], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: TEST}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: TEST}
subjects: [{kind: ServiceAccount, name: argocd, namespace: TEST}]
`
	// permissionOfPush is what the applications take on the cluster.
	permissionOfPush = `
apiVersion: rbac.open-cluster-management.io/v1alpha1
kind: ClusterPermission
metadata: {name: TEST, namespace: cluster1}
spec:
  clusterRole:
    rules:
    - {apiGroups: [""], resources: [namespaces, configmaps], verbs: ['*']}
    - {apiGroups: [apps], resources: [deployments], verbs: ['*']}
    - {apiGroups: [""], resources: [services], verbs: [get, list, watch]}
  clusterRoleBinding:
    subject: SUBJECT
`
	placementOfPush = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: default}
spec: {clusterSet: default}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: web}
spec:
  predicates:
  - requiredClusterSelector: {labelSelector: {matchLabels: {push: "true"}}}
---
apiVersion: apps.open-cluster-management.io/v1beta1
kind: GitOpsCluster
metadata: {name: web}
spec:
  argoServer: {}
  placementRef: {apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement, name: web}
  managedServiceAccountRef: TEST
`
	// web is what is in Git.
	web = `
apiVersion: v1
kind: Namespace
metadata: {name: TEST, labels: {app.kubernetes.io/instance: TEST}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {app.kubernetes.io/instance: TEST}}
data: {greeting: GREETING}
`
	deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app.kubernetes.io/instance: TEST}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example.com/web}]}
`
	service = `
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app.kubernetes.io/instance: TEST}}
spec: {selector: {app: web}, ports: [{port: 80}]}
`
	secret = `
apiVersion: v1
kind: Secret
metadata: {name: web, labels: {app.kubernetes.io/instance: TEST}}
`
)

// AR-02 AR-03: Argo CD finds a cluster by its name in the Secret that the hub has made, and its engine deploys there through the tunnel, as
// the account that was given rights on the cluster: it applies, follows, changes and prunes what it may, and is refused what it may not.
func TestPush(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	namespace := f.hub.namespace(t, "push")
	f.hub.patch(t, object("cluster.open-cluster-management.io/v1", "ManagedCluster", "", member), `{"metadata":{"labels":{"push":"true"}}}`)
	f.hub.apply(t, namespace, accountOfPush+"---"+placementOfPush)
	f.permit(t, namespace, "{apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: TEST}")
	f.hub.awaitRegistered(t, namespace, "web", member)
	installArgo(t, f.hub, namespace)
	argoCD := newPusher(t, f.hub, namespace)

	argoCD.sync(t, strings.ReplaceAll(web, "GREETING", "hello")+"---"+deployment).expect(t, common.ResultCodeSynced, 3)
	f.cluster.awaitGreeting(t, namespace, "hello")
	eventually(t, func(ctx context.Context) error {
		on := &appsv1.Deployment{}
		if err := f.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, on); err != nil {
			return err
		}
		if on.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%d replicas are ready", on.Status.ReadyReplicas)
		}
		return nil
	})

	argoCD.sync(t, strings.ReplaceAll(web, "GREETING", "good evening"))
	f.cluster.awaitGreeting(t, namespace, "good evening")
	eventually(t, func(ctx context.Context) error {
		err := f.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, &appsv1.Deployment{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the Deployment is not pruned: %w", err)
	})

	argoCD.sync(t, strings.ReplaceAll(web, "GREETING", "good evening")+"---"+service).expectFailure(t, "Service", "forbidden")
	if _, err := argoCD.trySync(t, secret); err == nil || !strings.Contains(err.Error(), "cannot get resource \"secrets\"") {
		t.Errorf("Argo CD deploys a Secret, of which the account may read none: %v", err)
	}
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Secret{}} {
		if err := f.cluster.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, o); !apierrors.IsNotFound(err) {
			t.Errorf("there is a %T, which the account may not make: %v", o, err)
		}
	}
}

// CA-02: Argo CD deploys to a cluster that was added to it with what the kubeconfig of capstan has: the server, and the token of a user of
// the hub.
func TestPushByKubeconfig(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	namespace := f.hub.namespace(t, "kubeconfig")
	if err := f.hub.applyAll(t.Context(), "", strings.ReplaceAll(userOfPush, "TEST", namespace)); err != nil {
		t.Fatal(err)
	}
	f.permit(t, namespace, `{apiGroup: rbac.authorization.k8s.io, kind: User, name: "cluster:hub:system:serviceaccount:TEST:argocd"}`)
	config := f.kubeconfigOf(t, f.hub.as(t, namespace, "argocd").BearerToken)
	f.awaitRights(t, config)
	installArgo(t, f.hub, namespace)
	clusters, _ := database(t, f.hub.config, namespace)
	if _, err := clusters.CreateCluster(t.Context(), &argov1alpha1.Cluster{Name: member, Server: config.Host,
		Config: argov1alpha1.ClusterConfig{BearerToken: config.BearerToken, TLSClientConfig: argov1alpha1.TLSClientConfig{CAData: config.CAData}},
	}); err != nil {
		t.Fatal(err)
	}
	argoCD := newPusher(t, f.hub, namespace)
	argoCD.sync(t, strings.ReplaceAll(web, "GREETING", "hello")).expect(t, common.ResultCodeSynced, 2)
	f.cluster.awaitGreeting(t, namespace, "hello")
	argoCD.sync(t, strings.ReplaceAll(web, "GREETING", "good evening"))
	f.cluster.awaitGreeting(t, namespace, "good evening")
}

// permit gives somebody on the cluster what the applications take.
func (f *fleet) permit(t *testing.T, namespace, subject string) {
	t.Helper()
	f.hub.apply(t, namespace, strings.ReplaceAll(permissionOfPush, "SUBJECT", subject))
	permission := object("rbac.open-cluster-management.io/v1alpha1", "ClusterPermission", member, namespace)
	if err := f.hub.awaitCondition(t.Context(), permission, "AppliedRBACManifestWork"); err != nil {
		t.Fatal(err)
	}
}

// kubeconfigOf is what capstan writes for the cluster and a user with a token for the hub.
func (f *fleet) kubeconfigOf(t *testing.T, token string) *rest.Config {
	t.Helper()
	user := filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := f.writeKubeconfig(user, token); err != nil {
		t.Fatal(err)
	}
	written, err := capstan(t.Context(), user, "kubeconfig", member)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(written)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// awaitRights waits until the authorizers of hub and cluster know the rights of a user.
func (f *fleet) awaitRights(t *testing.T, user *rest.Config) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		through, err := newClient(user)
		if err != nil {
			return err
		}
		return through.List(ctx, &corev1.ConfigMapList{})
	})
}

// awaitGreeting waits for what is in the ConfigMap.
func (s *server) awaitGreeting(t *testing.T, namespace, greeting string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		if err := s.Get(ctx, client.ObjectKeyFromObject(on), on); err != nil {
			return err
		}
		if on.Data["greeting"] != greeting {
			return fmt.Errorf("the greeting is %q, want %q", on.Data["greeting"], greeting)
		}
		return nil
	})
}

// pusher is an Argo CD that deploys one application to a namespace of a cluster. Both have the name of the namespace on the hub.
type pusher struct {
	name   string
	engine engine.GitOpsEngine
}

// newPusher connects as an Argo CD does to deploy an Application with the cluster as its destination.
func newPusher(t *testing.T, hub *server, namespace string) *pusher {
	t.Helper()
	clusters, _ := database(t, hub.config, namespace)
	destination, err := argo.GetDestinationCluster(t.Context(), argov1alpha1.ApplicationDestination{Name: member}, clusters)
	if err != nil {
		t.Fatal(err)
	}
	config, err := destination.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := destination.RawRestConfig()
	if err != nil {
		t.Fatal(err)
	}
	p := &pusher{name: namespace}
	// Argo CD reads no more than it may: resource.respectRBAC in its settings.
	live := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetRespectRBAC(cache.RespectRbacStrict),
		cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) { return nil, p.owns(o) }))
	p.engine = engine.NewEngine(raw, live, engine.WithLogr(logr.Discard()))
	stop, err := p.engine.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return p
}

// owns tells whether an object belongs to the application.
func (p *pusher) owns(o *unstructured.Unstructured) bool {
	return o.GetLabels()["app.kubernetes.io/instance"] == p.name
}

// outcome is what became of each object.
type outcome []common.ResourceSyncResult

// sync deploys what is in Git, and prunes what no longer is.
func (p *pusher) sync(t *testing.T, manifests string) outcome {
	t.Helper()
	o, err := p.trySync(t, manifests)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (p *pusher) trySync(t *testing.T, manifests string) (outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	objects, err := decode(strings.ReplaceAll(manifests, "TEST", p.name))
	if err != nil {
		t.Fatal(err)
	}
	managed := func(r *cache.Resource) bool { return r.Resource != nil && p.owns(r.Resource) }
	return p.engine.Sync(ctx, objects, managed, "revision", p.name, sync.WithPrune(true), sync.WithLogr(logr.Discard()))
}

// expect fails the test unless so many objects have a result, and no others.
func (o outcome) expect(t *testing.T, want common.ResultCode, count int) {
	t.Helper()
	if len(o) != count {
		t.Errorf("%d objects are synced, want %d", len(o), count)
	}
	for _, result := range o {
		if result.Status != want {
			t.Errorf("%s: %s, %s; want %s", result.ResourceKey, result.Status, result.Message, want)
		}
	}
}

// expectFailure fails the test unless objects of a kind could not be synced, with some words in their message.
func (o outcome) expectFailure(t *testing.T, kind, words string) {
	t.Helper()
	for _, result := range o {
		if result.ResourceKey.Kind == kind && result.Status == common.ResultCodeSyncFailed && strings.Contains(result.Message, words) {
			return
		}
	}
	t.Errorf("no %s fails with %q: %+v", kind, words, o)
}
