package clitest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
)

// Where the API of a hub has its objects; those of namespaces in cluster1, or in team-a.
const (
	ClustersPath   = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	WorksPath      = "/apis/work.open-cluster-management.io/v1/namespaces/cluster1/manifestworks"
	RequestsPath   = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	AddOnAPI       = "/apis/addon.open-cluster-management.io/v1alpha1"
	CataloguePath  = AddOnAPI + "/clustermanagementaddons"
	AddOnsPath     = AddOnAPI + "/namespaces/cluster1/managedclusteraddons"
	SetsPath       = "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets"
	OperatorsPath  = "/apis/apps/v1/namespaces/open-cluster-management/deployments/"
	PlacementsPath = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/team-a/placements"
	DecisionsPath  = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/team-a/placementdecisions"
	BindingsPath   = "/apis/cluster.open-cluster-management.io/v1beta2/namespaces/team-a/managedclustersetbindings"
)

// ConfigMap is a manifest, as users write it.
const ConfigMap = `
# a comment makes no document
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: default
  uid: of-another-cluster
data:
  key: value
`

// Cluster is a cluster with conditions that are true.
func Cluster(name string, labels map[string]string, conditions ...string) *clusterv1.ManagedCluster {
	var set []metav1.Condition
	for _, condition := range conditions {
		set = append(set, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	return &clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status:     clusterv1.ManagedClusterStatus{Conditions: set},
	}
}

// NewHubWithClusters is a hub with the clusters cluster1, cluster2 and idle, which are accepted.
func NewHubWithClusters(t *testing.T) Hub {
	t.Helper()
	h := NewHub(t)
	for _, name := range []string{"cluster1", "cluster2", "idle"} {
		h.Put(t, ClustersPath+"/"+name, AcceptedCluster(name))
	}
	return h
}

// AcceptedCluster is a cluster that the hub has accepted.
func AcceptedCluster(name string, conditions ...string) *clusterv1.ManagedCluster {
	c := Cluster(name, nil, conditions...)
	c.Spec.HubAcceptsClient = true
	return c
}

// PutClusters gives the hub cluster1, which is in the set prod, and cluster2.
func (h Hub) PutClusters(t *testing.T) {
	t.Helper()
	h.Put(t, ClustersPath+"/cluster1", Cluster("cluster1", map[string]string{"cluster.open-cluster-management.io/clusterset": "prod"}))
	h.Put(t, ClustersPath+"/cluster2", Cluster("cluster2", nil))
}

// PutRequest gives the hub a certificate request.
func (h Hub) PutRequest(t *testing.T, csr *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	h.Put(t, RequestsPath+"/"+csr.Name, csr)
}

// Approved reports whether a certificate request has been approved by the command line.
func (h Hub) Approved(t *testing.T, name string) bool {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	h.Get(t, RequestsPath+"/"+name, &csr)
	for _, condition := range csr.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved && condition.Reason == "capstan Approve" {
			return true
		}
	}
	return false
}

// Accepted reports whether a cluster has been accepted.
func (h Hub) Accepted(t *testing.T, name string) bool {
	t.Helper()
	var c clusterv1.ManagedCluster
	h.Get(t, ClustersPath+"/"+name, &c)
	return c.Spec.HubAcceptsClient
}

// WaitForWatch returns once a client watches a collection.
func (h Hub) WaitForWatch(t *testing.T, collection string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.AwaitWatch(ctx, collection); err != nil {
		t.Fatalf("nobody watches %s: %v", collection, err)
	}
}

// PutSet gives the hub a cluster set.
func (h Hub) PutSet(t *testing.T, name string) {
	t.Helper()
	h.Put(t, SetsPath+"/"+name, &clusterv1beta2.ManagedClusterSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		Status: clusterv1beta2.ManagedClusterSetStatus{
			Conditions: []metav1.Condition{{Type: "ClusterSetEmpty", Status: metav1.ConditionFalse, Message: "status of " + name}},
		},
	})
}

// PutNamespace gives the hub a namespace.
func (h Hub) PutNamespace(t *testing.T, name string) {
	t.Helper()
	h.Put(t, "/api/v1/namespaces/"+name, &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	})
}

// PutPlacement gives the hub a placement that has selected clusters, and what makes it possible to select these.
func (h Hub) PutPlacement(t *testing.T, namespace, name string, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		h.makeSelectable(t, namespace, cluster)
	}
	in := func(path string) string { return strings.Replace(path, "team-a", namespace, 1) + "/" + name }
	h.Put(t, in(PlacementsPath), &clusterv1beta1.Placement{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		Status: clusterv1beta1.PlacementStatus{NumberOfSelectedClusters: int32(len(clusters)), Conditions: []metav1.Condition{ //nolint:gosec // there are a few
			{Type: "PlacementSatisfied", Status: metav1.ConditionTrue, Reason: "AllDecisionsScheduled"},
		}},
	})
	decision := &clusterv1beta1.PlacementDecision{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "PlacementDecision"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-decision-1", Labels: map[string]string{"cluster.open-cluster-management.io/placement": name},
		},
	}
	for _, c := range clusters {
		decision.Status.Decisions = append(decision.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
	}
	h.Put(t, in(DecisionsPath)+"-decision-1", decision)
}

// makeSelectable gives the hub a cluster that it has accepted, and binds the set of all clusters to a namespace.
func (h Hub) makeSelectable(t *testing.T, namespace, name string) {
	t.Helper()
	h.Put(t, SetsPath+"/global", &clusterv1beta2.ManagedClusterSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "global"},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{},
		}},
	})
	h.Put(t, strings.Replace(BindingsPath, "team-a", namespace, 1)+"/global", &clusterv1beta2.ManagedClusterSetBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSetBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "global"},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "global"},
	})
	cluster := AcceptedCluster(name)
	if h.Has(ClustersPath + "/" + name) {
		h.Get(t, ClustersPath+"/"+name, cluster)
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue,
		Reason: "HubClusterAdminAccepted"})
	h.Put(t, ClustersPath+"/"+name, cluster)
}

// PutAddOn gives a cluster an add-on.
func (h Hub) PutAddOn(t *testing.T, cluster, name string, conditions ...metav1.Condition) {
	t.Helper()
	h.Put(t, strings.Replace(AddOnsPath, "cluster1", cluster, 1)+"/"+name, &addonv1alpha1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		Status:     addonv1alpha1.ManagedClusterAddOnStatus{Conditions: conditions},
	})
}

// PutCatalogue has the hub offer an add-on.
func (h Hub) PutCatalogue(t *testing.T, name string, change func(*addonv1alpha1.ClusterManagementAddOn)) {
	t.Helper()
	addOn := &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(addOn)
	}
	h.Put(t, CataloguePath+"/"+name, addOn)
}

// WriteCA writes the certificate authority of the hub to a file.
func WriteCA(t *testing.T, h Hub) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, h.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
