package main

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/addontest"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

func TestManifests(t *testing.T) {
	config := &addonv1beta1.AddOnDeploymentConfig{}
	config.Namespace, config.Name = "default", "often"
	config.Spec.CustomizedVariables = []addonv1beta1.CustomizedVariable{{Name: "INTERVAL", Value: "5s"}}
	for want, configs := range map[string][]client.Object{"-interval=30s": nil, "-interval=5s": {config}} {
		n, err := newNodeCount(addontest.Client(configs...))
		if err != nil {
			t.Fatal(err)
		}
		workload, err := n.Manifests(t.Context(), addontest.Installation("cluster1", name, configs...))
		if err != nil {
			t.Fatal(err)
		}
		args := agentArgs(t, workload.Objects)
		if !slices.Contains(args, "-cluster-name=cluster1") || !slices.Contains(args, want) {
			t.Errorf("the agent is started with %q, want %s", args, want)
		}
	}
}

func agentArgs(t *testing.T, objects []client.Object) []string {
	t.Helper()
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := addontest.Scheme().Convert(object, deployment, nil); err != nil {
			t.Fatal(err)
		}
		return deployment.Spec.Template.Spec.Containers[0].Args
	}
	t.Fatal("there is no Deployment")
	return nil
}
