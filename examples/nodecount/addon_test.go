package main

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/manager"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

func TestManifests(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := manager.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).Build()
	n, err := newNodeCount(hub)
	if err != nil {
		t.Fatal(err)
	}
	workload, err := n.Manifests(t.Context(), addon.Installation{
		Cluster: &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}},
		AddOn:   &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range workload.Objects {
		if object.GetObjectKind().GroupVersionKind().Kind != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := scheme.Convert(object, deployment, nil); err != nil {
			t.Fatal(err)
		}
		args := deployment.Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "-cluster-name=cluster1") || !slices.Contains(args, "-interval=30s") {
			t.Errorf("the agent is started with %q", args)
		}
		return
	}
	t.Error("there is no Deployment")
}
