package argocd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/argoproj/argo-cd/v3/applicationset/controllers"
	"github.com/argoproj/argo-cd/v3/applicationset/generators"
	"github.com/argoproj/argo-cd/v3/applicationset/metrics"
	"github.com/argoproj/argo-cd/v3/applicationset/services"
	"github.com/argoproj/argo-cd/v3/applicationset/utils"
	"github.com/argoproj/argo-cd/v3/common"
	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/util/db"
	"github.com/argoproj/argo-cd/v3/util/github_app"
	"github.com/argoproj/argo-cd/v3/util/settings"
)

// What users write for an ApplicationSet that follows a placement: three clusters without agents, of which the placement selects those in
// Europe, and a GitOpsCluster that makes them known to Argo CD.
const (
	clustersOfSet = `
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: TEST-paris, labels: {region: eu, test: TEST}}
spec: {hubAcceptsClient: true}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: TEST-rome, labels: {region: eu, test: TEST}}
spec: {hubAcceptsClient: true}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: TEST-tokyo, labels: {region: asia, test: TEST}}
spec: {hubAcceptsClient: true}
`
	placementOfSet = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: global}
spec: {clusterSet: global}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: web}
spec:
  predicates:
  - requiredClusterSelector: {labelSelector: {matchLabels: {region: eu, test: TEST}}}
  tolerations: [{key: cluster.open-cluster-management.io/unreachable, operator: Exists}]
---
apiVersion: apps.open-cluster-management.io/v1beta1
kind: GitOpsCluster
metadata: {name: web}
spec:
  argoServer: {}
  placementRef: {apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement, name: web}
  createBlankClusterSecrets: true
`
	// generator is the ConfigMap of those who set up the generator by hand.
	generator = `
apiVersion: v1
kind: ConfigMap
metadata: {name: ocm-placement-generator}
data:
  apiVersion: cluster.open-cluster-management.io/v1beta1
  kind: placementdecisions
  statusListKey: decisions
  matchKey: clusterName
`
	project = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default}
spec: {sourceRepos: ['*'], destinations: [{namespace: '*', server: '*'}]}
`
	applicationSet = `
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: SET}
spec:
  generators:
  - clusterDecisionResource:
      configMapRef: CONFIGMAP
      labelSelector: {matchLabels: {cluster.open-cluster-management.io/placement: web}}
      requeueAfterSeconds: 1
  template:
    metadata: {name: 'SET-{{clusterName}}'}
    spec:
      project: default
      source: {repoURL: https://git.example.com/web.git, targetRevision: HEAD, path: web}
      destination: {name: '{{clusterName}}', namespace: web}
`
)

// AR-01 AR-03 AR-04 AR-05: the ApplicationSet controller of Argo CD makes an Application for each cluster that a placement selects, and
// follows it, with the ConfigMap that the hub makes and with one that users write. It has the rights that Argo CD gives it, and those that
// the hub does. Argo CD knows a cluster that is no longer selected until it has removed what it has deployed there.
func TestApplicationSet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	namespace := f.hub.namespace(t, "set")
	paris, rome, tokyo := namespace+"-paris", namespace+"-rome", namespace+"-tokyo"
	f.hub.apply(t, namespace, strings.Join([]string{clustersOfSet, placementOfSet, generator, project}, "---"))
	f.hub.awaitRegistered(t, namespace, "web", paris, rome)
	installArgo(t, f.hub, namespace)
	runApplicationSets(t, f.hub, namespace)
	for name, configMap := range map[string]string{"made": "acm-placement", "own": "ocm-placement-generator"} {
		f.hub.apply(t, namespace, strings.NewReplacer("SET", name, "CONFIGMAP", configMap).Replace(applicationSet))
	}
	awaitApplications(t, f.hub, namespace, paris, rome)

	cluster := func(name string) client.Object {
		return object("cluster.open-cluster-management.io/v1", "ManagedCluster", "", name)
	}
	f.hub.patch(t, cluster(rome), `{"spec":{"taints":[{"key":"maintenance","effect":"NoSelect"}]}}`)
	undeploy(t, f.hub, namespace, rome)
	awaitApplications(t, f.hub, namespace, paris)
	f.hub.patch(t, cluster(tokyo), `{"metadata":{"labels":{"region":"eu"}}}`)
	awaitApplications(t, f.hub, namespace, paris, tokyo)
	placement := object("cluster.open-cluster-management.io/v1beta1", "Placement", namespace, "web")
	f.hub.patch(t, placement, `{"spec":{"numberOfClusters":0}}`)
	undeploy(t, f.hub, namespace, paris, tokyo)
	awaitApplications(t, f.hub, namespace)
	f.hub.patch(t, cluster(rome), `{"spec":{"taints":null}}`)
	f.hub.patch(t, placement, `{"spec":{"numberOfClusters":null}}`)
	awaitApplications(t, f.hub, namespace, paris, rome, tokyo)
}

// awaitRegistered waits until clusters of a GitOpsCluster are known to the Argo CD of its namespace.
func (s *server) awaitRegistered(t *testing.T, namespace, name string, clusters ...string) {
	t.Helper()
	g := object("apps.open-cluster-management.io/v1beta1", "GitOpsCluster", namespace, name)
	for _, cluster := range clusters {
		eventually(t, func(ctx context.Context) error {
			secrets := &corev1.SecretList{}
			ofCluster := client.MatchingLabels{"argocd.argoproj.io/secret-type": "cluster", "apps.open-cluster-management.io/cluster-name": cluster}
			if err := s.List(ctx, secrets, client.InNamespace(namespace), ofCluster); err != nil || len(secrets.Items) == 1 {
				return err
			}
			err := s.Get(ctx, client.ObjectKeyFromObject(g), g)
			return errors.Join(err, fmt.Errorf("cluster %s is not registered: %v", cluster, g.Object["status"]))
		})
	}
	if err := s.awaitCondition(t.Context(), g, "Ready"); err != nil {
		t.Fatal(err)
	}
}

// awaitApplications waits until each of the two ApplicationSets has just the Applications for the clusters.
func awaitApplications(t *testing.T, s *server, namespace string, clusters ...string) {
	t.Helper()
	var want []string
	for _, set := range []string{"made", "own"} {
		for _, cluster := range clusters {
			want = append(want, fmt.Sprintf("%s-%s of %s for %s", set, cluster, set, cluster))
		}
	}
	eventually(t, func(ctx context.Context) error {
		list := &argov1alpha1.ApplicationList{}
		if err := s.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var got []string
		for _, app := range list.Items {
			owner := metav1.GetControllerOf(&app)
			if owner == nil {
				return fmt.Errorf("application %s has no owner", app.Name)
			}
			got = append(got, fmt.Sprintf("%s of %s for %s", app.Name, owner.Name, app.Spec.Destination.Name))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			sets := &argov1alpha1.ApplicationSetList{}
			err := s.List(ctx, sets, client.InNamespace(namespace))
			said := ""
			for _, set := range sets.Items {
				said += fmt.Sprintf("\n%s: %+v", set.Name, set.Status.Conditions)
			}
			return errors.Join(err, fmt.Errorf("the Applications are %q, want %q; the ApplicationSets say%s", got, want, said))
		}
		return nil
	})
}

// undeploy does what the application controller of Argo CD does with the Applications for clusters that are no longer selected: it removes
// what it has deployed, for which it has to know the cluster, and takes its finalizer off. Then the cluster is no longer known.
func undeploy(t *testing.T, s *server, namespace string, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster + "-application-manager-cluster-secret"}}
		for _, set := range []string{"made", "own"} {
			app := &argov1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set + "-" + cluster}}
			eventually(t, func(ctx context.Context) error {
				if err := s.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
					return err
				}
				if app.DeletionTimestamp.IsZero() || !slices.Contains(app.Finalizers, argov1alpha1.ResourcesFinalizerName) {
					return fmt.Errorf("application %s is not deleted: %v", app.Name, app.Finalizers)
				}
				return nil
			})
			if err := s.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Errorf("Argo CD is to remove what Application %s has deployed, and does not know the cluster: %v", app.Name, err)
			}
			s.patch(t, app, `{"metadata":{"finalizers":null}}`)
		}
		eventually(t, func(ctx context.Context) error {
			if err := s.Get(ctx, client.ObjectKeyFromObject(secret), secret); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the Secret of cluster %s is still there: %w", cluster, err)
			}
			return nil
		})
	}
}

// installArgo makes the settings of an Argo CD, and the account and the rights of its ApplicationSet controller.
func installArgo(t *testing.T, s *server, namespace string) {
	t.Helper()
	files, err := argoFiles(t.Context(), "manifests/base/config/argocd-cm.yaml", "manifests/base/config/argocd-secret.yaml",
		"manifests/base/applicationset-controller/*-sa.yaml", "manifests/base/applicationset-controller/*-role.yaml",
		"manifests/base/applicationset-controller/*-rolebinding.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, namespace, files)
}

// as is the configuration of a service account.
func (s *server) as(t *testing.T, namespace, account string) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := s.SubResource("token").Create(t.Context(), of, request); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = request.Status.Token
	return config
}

// database is that of an Argo CD, with the clusters that it knows.
func database(t *testing.T, config *rest.Config, namespace string) (db.ArgoDB, *kubernetes.Clientset) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return db.NewDB(namespace, settings.NewSettingsManager(t.Context(), c, namespace), c), c
}

// recorded are the metrics of ApplicationSets, which a process has once. Nobody reads them here.
var recorded = sync.OnceValue(func() *metrics.ApplicationsetMetrics {
	made := metrics.NewApplicationsetMetrics(utils.NewAppsetLister(nil), nil, func(*argov1alpha1.ApplicationSet) bool { return true })
	return &made
})

// runApplicationSets runs the ApplicationSet controller of Argo CD, put together as its program does it.
func runApplicationSets(t *testing.T, s *server, namespace string) {
	t.Helper()
	controller := s.as(t, namespace, common.ApplicationSetController)
	if err := argov1alpha1.SetK8SConfigDefaults(controller); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(controller, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // with -count, there is one after another
	})
	if err != nil {
		t.Fatal(err)
	}
	argoDB, k8s := database(t, controller, namespace)
	decisions, err := dynamic.NewForConfig(controller)
	if err != nil {
		t.Fatal(err)
	}
	credentials, ok := argoDB.(db.RepoCredsDB)
	if !ok {
		t.Fatalf("%T has no credentials of repositories", argoDB)
	}
	repositories := services.NewArgoCDService(argoDB, true,
		apiclient.NewRepoServerClientset(common.DefaultRepoServerAddr, 60, apiclient.TLSConfiguration{}), false)
	err = (&controllers.ApplicationSetReconciler{
		Generators: generators.GetGenerators(t.Context(), mgr.GetClient(), k8s, namespace, repositories, decisions,
			generators.NewSCMConfig("", nil, true, false, github_app.NewAuthCredentials(credentials), false)),
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorderFor(common.ApplicationSetController),
		Renderer: &utils.Render{}, Policy: utils.Policies["sync"], EnablePolicyOverride: true, KubeClientset: k8s, ArgoDB: argoDB,
		ArgoCDNamespace: namespace, ApplicationSetNamespaces: []string{namespace}, Metrics: recorded(), MaxResourcesStatusCount: 5000,
	}).SetupWithManager(mgr, false, 10)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }() // which ends before the functions of Cleanup are called
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
