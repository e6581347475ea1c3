package argocd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/argoproj/gitops-engine/pkg/health"

	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// argoNamespace is the namespace of Argo CD in the guides of Open Cluster Management, on the hub and on clusters.
const argoNamespace = "argocd"

// What these guides have users apply, word by word.
const (
	generatorOfGuide = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: ocm-placement-generator
  namespace: argocd
data:
  apiVersion: cluster.open-cluster-management.io/v1beta1
  kind: placementdecisions
  statusListKey: decisions
  matchKey: clusterName
`
	rightsOfGuide = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: ocm-placement-consumer
  namespace: argocd
rules:
- apiGroups: ["cluster.open-cluster-management.io"]
  resources: ["placementdecisions"]
  verbs: ["get", "list"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: ocm-placement-consumer:argocd
  namespace: argocd
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: ocm-placement-consumer
subjects:
- kind: ServiceAccount
  namespace: argocd
  name: argocd-applicationset-controller
`
	placementOfGuide = `
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: guestbook-app-placement
  namespace: argocd
spec:
  numberOfClusters: 10
`
	applicationSetOfGuide = `
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: guestbook-app
  namespace: argocd
spec:
  generators:
  - clusterDecisionResource:
      configMapRef: ocm-placement-generator
      labelSelector:
        matchLabels:
          cluster.open-cluster-management.io/placement: guestbook-app-placement
      requeueAfterSeconds: 30
  template:
    metadata:
      name: '{{clusterName}}-guestbook-app'
    spec:
      project: default
      source:
        repoURL: 'https://github.com/argoproj/argocd-example-apps.git'
        targetRevision: HEAD
        path: guestbook
      destination:
        name: '{{clusterName}}'
        namespace: guestbook
      syncPolicy:
        automated:
          prune: true
        syncOptions:
        - CreateNamespace=true
`
)

// AR-01 AR-05 AR-06 AR-07 CA-32: the guide to Argo CD, step by step, and then the tutorial of docs/gitops.md for pull, with what capstan
// create sampleapp makes: each cluster gets its Application from the hub, and tells the hub how it is.
func TestSeedArgoCD(t *testing.T) {
	t.Parallel()
	f := newFleetOfGuides(t)
	f.hub.apply(t, argoNamespace, generatorOfGuide)
	f.hub.apply(t, argoNamespace, rightsOfGuide)
	f.capstan(t, "clusterset", "bind", "global", "--namespace", argoNamespace)
	f.hub.apply(t, argoNamespace, placementOfGuide)
	f.awaitSelected(t, "guestbook-app-placement", "cluster1", "cluster2")
	f.hub.awaitRegistered(t, argoNamespace, "clusters", "cluster1", "cluster2")
	f.hub.apply(t, argoNamespace, applicationSetOfGuide)
	for _, app := range f.hub.awaitApplicationsOf(t, "guestbook-app", "cluster1-guestbook-app", "cluster2-guestbook-app") {
		to := app.Spec.Destination
		if to.Name+"-guestbook-app" != app.Name || to.Namespace != "guestbook" || app.Spec.Source.Path != "guestbook" {
			t.Errorf("Application %s deploys %+v to %+v", app.Name, app.Spec.Source, to)
		}
	}

	f.capstan(t, "create", "placement", "app-placement", "--namespace", argoNamespace)
	f.awaitSelected(t, "app-placement", "cluster1", "cluster2")
	f.hub.apply(t, argoNamespace, f.capstan(t, "create", "sampleapp", "--dry-run"))
	f.hub.awaitApplicationsOf(t, "sampleapp-appset", "sampleapp-cluster1", "sampleapp-cluster2")
	for _, c := range f.clusters {
		f.awaitPulled(t, c, "sampleapp-"+c.name)
	}
	f.hub.awaitReport(t, "sampleapp-appset", 2)
}

// newFleetOfGuides is what the guides begin with: a hub and two clusters, which have an Argo CD in namespace argocd. That of the hub knows
// the clusters, and makes Applications. Tests do what those of the clusters would.
func newFleetOfGuides(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir()}
	t.Cleanup(func() {
		f.stop()
		if t.Failed() {
			t.Log(f.tails())
		}
	})
	if err := f.startHub(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.hub.apply(t, argoNamespace, namespaceOfTest)
	for _, name := range []string{"cluster1", "cluster2"} {
		c, err := f.join(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c.apply(t, argoNamespace, namespaceOfTest)
		f.clusters = append(f.clusters, c)
	}
	installArgo(t, f.hub, argoNamespace)
	f.hub.apply(t, argoNamespace, tutorialOfPull(t))
	runApplicationSets(t, f.hub, argoNamespace)
	return f
}

// tutorialOfPull are the objects that the tutorial for clusters that pull has users apply on the hub.
func tutorialOfPull(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### A tutorial for pull\n")
	section, _, _ = strings.Cut(section, "\n### ")
	_, objects, found := strings.Cut(section, "<<'YAML'\n")
	objects, _, ended := strings.Cut(objects, "\nYAML\n")
	if !found || !ended {
		t.Fatal("docs/gitops.md has no tutorial for pull with objects")
	}
	return objects
}

// capstan runs the command line against the hub, and returns what it prints.
func (f *fleet) capstan(t *testing.T, args ...string) string {
	t.Helper()
	printed, err := capstan(t.Context(), f.hub.kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(printed)
}

// selected are the clusters of a placement in namespace argocd, as capstan get placements shows them.
func (f *fleet) selected(t *testing.T, placement string) []string {
	t.Helper()
	for _, line := range strings.Split(f.capstan(t, "get", "placements", "-n", argoNamespace, "-otable"), "\n") {
		if cells := strings.Fields(line); len(cells) == 5 && cells[0] == placement {
			return strings.Split(cells[3], ",")
		}
	}
	return nil
}

// awaitSelected waits until a placement selects just these clusters.
func (f *fleet) awaitSelected(t *testing.T, placement string, want ...string) {
	t.Helper()
	eventually(t, func(context.Context) error {
		if got := f.selected(t, placement); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			return fmt.Errorf("placement %s selects %q, want %q", placement, got, want)
		}
		return nil
	})
}

// awaitApplicationsOf waits until an ApplicationSet in namespace argocd has just the Applications of these names.
func (s *server) awaitApplicationsOf(t *testing.T, set string, want ...string) (apps []argov1alpha1.Application) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		list := &argov1alpha1.ApplicationList{}
		if err := s.List(ctx, list, client.InNamespace(argoNamespace)); err != nil {
			return err
		}
		apps = slices.DeleteFunc(list.Items, func(app argov1alpha1.Application) bool {
			owner := metav1.GetControllerOf(&app)
			return owner == nil || owner.Name != set
		})
		var got []string
		for i := range apps {
			got = append(got, apps[i].Name)
		}
		if slices.Sort(got); slices.Equal(got, want) {
			return nil
		}
		made := &argov1alpha1.ApplicationSet{}
		err := s.Get(ctx, client.ObjectKey{Namespace: argoNamespace, Name: set}, made)
		return errors.Join(err, fmt.Errorf("the Applications are %q, want %q; %s says %+v", got, want, set, made.Status.Conditions))
	})
	return apps
}

// awaitPulled waits until a cluster has an Application of the hub, by a work, and the hub knows how it is there.
func (f *fleet) awaitPulled(t *testing.T, c *cluster, name string) {
	t.Helper()
	key := client.ObjectKey{Namespace: argoNamespace, Name: name}
	there := &argov1alpha1.Application{}
	eventually(t, func(ctx context.Context) error { return c.Get(ctx, key, there) })
	if to := there.Spec.Destination; to.Server != argov1alpha1.KubernetesInternalAPIServerAddr || to.Name != "" {
		t.Errorf("on %s, Application %s deploys to %+v", c.name, name, to)
	}
	c.patch(t, there, `{"status":{"health":{"status":"Healthy"},"sync":{"status":"Synced"}}}`) // as its Argo CD says
	eventually(t, func(ctx context.Context) error {
		app := &argov1alpha1.Application{}
		if err := f.hub.Get(ctx, key, app); err != nil {
			return err
		}
		if app.Status.Health.Status != health.HealthStatusHealthy || app.Status.Sync.Status != argov1alpha1.SyncStatusCodeSynced {
			return fmt.Errorf("Application %s is %s, %s", name, app.Status.Sync.Status, app.Status.Health.Status)
		}
		return f.hub.expectWork(ctx, c.name, name)
	})
}

// expectWork looks for the work by which a cluster gets an Application.
func (s *server) expectWork(ctx context.Context, cluster, application string) error {
	works := &unstructured.UnstructuredList{}
	works.SetAPIVersion("work.open-cluster-management.io/v1")
	works.SetKind("ManifestWorkList")
	if err := s.List(ctx, works, client.InNamespace(cluster)); err != nil {
		return err
	}
	for _, work := range works.Items {
		if work.GetAnnotations()["apps.open-cluster-management.io/hub-application-name"] == application {
			return nil
		}
	}
	return fmt.Errorf("cluster %s has no work of Application %s", cluster, application)
}

// awaitReport waits until the report of an ApplicationSet counts so many healthy clusters.
func (s *server) awaitReport(t *testing.T, set string, want int) {
	t.Helper()
	report := object("apps.open-cluster-management.io/v1alpha1", "MulticlusterApplicationSetReport", argoNamespace, set)
	eventually(t, func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKeyFromObject(report), report); err != nil {
			return err
		}
		healthy, _, _ := unstructured.NestedString(report.Object, "statuses", "summary", "healthy")
		if healthy != fmt.Sprint(want) {
			return fmt.Errorf("the report is %v, want %d healthy clusters", report.Object["statuses"], want)
		}
		return nil
	})
}
