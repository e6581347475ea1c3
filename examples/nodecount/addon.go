package main

import (
	"context"
	"embed"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/manager"
	"github.com/capstan-io/capstan/addon/manifests"
	"github.com/capstan-io/capstan/addon/values"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

const (
	name  = "nodecount"
	image = "example.com/nodecount:latest"
)

//go:embed manifests
var files embed.FS

// nodeCount is the add-on.
type nodeCount struct {
	hub       client.Client
	templates *manifests.Templates
}

func newNodeCount(hub client.Client) (*nodeCount, error) {
	templates, err := manifests.Parse(files, "manifests/*.yaml")
	if err != nil {
		return nil, err
	}
	return &nodeCount{hub: hub, templates: templates}, nil
}

// Options returns how the hub treats the add-on.
func (n *nodeCount) Options() addon.Options {
	return addon.Options{
		Name:             name,
		Registration:     &addon.Registration{Configs: n.registration, Permissions: n.permissions},
		InstallNamespace: config.InstallNamespace(n.hub),
		Configs:          []schema.GroupVersionResource{config.DeploymentConfigs},
	}
}

// Manifests returns the objects of the add-on for a cluster.
func (n *nodeCount) Manifests(ctx context.Context, i addon.Installation) (*addon.Workload, error) {
	with, err := values.Collect(ctx, i,
		func(context.Context, addon.Installation) (values.Values, error) {
			return values.Values{"INTERVAL": "30s"}, nil
		},
		values.AgentImage(n.hub, "Image", image),
		values.FromDeploymentConfig(n.hub, values.Variables),
	)
	if err != nil {
		return nil, err
	}
	objects, err := n.templates.Render(i, with)
	if err != nil {
		return nil, err
	}
	return &addon.Workload{Objects: objects}, nil
}

// registration returns the registration for access to the API server of the hub.
func (n *nodeCount) registration(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	return []addonv1beta1.RegistrationConfig{addon.KubeClient(i, name)}, nil
}

// permissions returns the right to write ConfigMaps in the namespace of the cluster on the hub.
func (n *nodeCount) permissions(_ context.Context, i addon.Installation) ([]client.Object, error) {
	role := addon.NewRole(i, "nodecount-agent", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update"},
	})
	binding, err := addon.BindRole(i, role.Name)
	if err != nil {
		return nil, err
	}
	return []client.Object{role, binding}, nil
}

func runController(ctx context.Context) error {
	hub, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	m, err := manager.New(hub, manager.Options{Name: "nodecount-controller"})
	if err != nil {
		return err
	}
	n, err := newNodeCount(m.Client())
	if err != nil {
		return err
	}
	m.Add(n)
	return m.Start(ctx)
}
