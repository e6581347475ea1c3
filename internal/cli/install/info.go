package install

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/components"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// KlusterletInfo reads what the agents in the cluster consist of.
func (c *Cluster) KlusterletInfo(ctx context.Context) (*components.KlusterletInfo, error) {
	info := &components.KlusterletInfo{Klusterlets: []components.Klusterlet{}}
	operators, err := c.running(ctx, fleet.NamespaceOperators)
	if err != nil {
		return nil, err
	}
	for i := range operators {
		if operators[i].Deployment == fleet.NamespaceOperators+"/klusterlet" {
			info.Operator = &operators[i]
		}
	}
	objects, err := c.List(ctx, installation.KindKlusterlet, "", "")
	if err != nil {
		return nil, err
	}
	for i := range objects {
		klusterlet := &operatorv1.Klusterlet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, klusterlet); err != nil {
			return nil, fmt.Errorf("read Klusterlet %s: %w", objects[i].GetName(), err)
		}
		agent, err := c.agent(ctx, klusterlet)
		if err != nil {
			return nil, err
		}
		info.Klusterlets = append(info.Klusterlets, agent)
	}
	for _, name := range []string{installation.CRDKlusterlets, installation.CRDAppliedManifestWorks, installation.CRDClusterClaims} {
		crd, err := components.ReadCRD(ctx, c.hub, name)
		if err != nil {
			return nil, err
		}
		info.CRDs = append(info.CRDs, crd)
	}
	return info, nil
}

func (c *Cluster) agent(ctx context.Context, klusterlet *operatorv1.Klusterlet) (components.Klusterlet, error) {
	mode := cmp.Or(klusterlet.Spec.DeployOption.Mode, operatorv1.InstallModeDefault)
	agent := components.Klusterlet{
		Name: klusterlet.Name, ClusterName: klusterlet.Spec.ClusterName, Mode: string(mode), Conditions: klusterlet.Status.Conditions,
		Namespace: cmp.Or(klusterlet.Spec.Namespace, fleet.NamespaceAgent),
	}
	if mode == operatorv1.InstallModeHosted || mode == operatorv1.InstallModeSingletonHosted {
		agent.Namespace = klusterlet.Name
	}
	var err error
	agent.Components, err = c.running(ctx, agent.Namespace)
	return agent, err
}

// running are the Deployments in a namespace.
func (c *Cluster) running(ctx context.Context, namespace string) ([]components.Running, error) {
	objects, err := c.List(ctx, installation.KindDeployment, namespace, "")
	if err != nil {
		return nil, err
	}
	found := make([]components.Running, len(objects))
	for i := range objects {
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, deployment); err != nil {
			return nil, fmt.Errorf("read Deployment %s/%s: %w", namespace, objects[i].GetName(), err)
		}
		found[i] = components.Running{Deployment: namespace + "/" + deployment.Name, Available: deployment.Status.AvailableReplicas, Desired: 1}
		if deployment.Spec.Replicas != nil {
			found[i].Desired = *deployment.Spec.Replicas
		}
		if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
			found[i].Image = containers[0].Image
		}
	}
	return found, nil
}
