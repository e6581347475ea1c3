package main

import (
	"context"
	"embed"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/manager"
	"github.com/capstan-io/capstan/addon/manifests"
	"github.com/capstan-io/capstan/addon/values"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// addOnName is the name of the add-on, and of its lease.
const addOnName = "helloworld"

//go:embed manifests
var files embed.FS

// helloWorld is the add-on.
type helloWorld struct {
	hub       client.Client
	image     string
	templates *manifests.Templates
}

func newHelloWorld(hub client.Client, image string) (*helloWorld, error) {
	templates, err := manifests.Parse(files, "manifests/*.yaml")
	if err != nil {
		return nil, err
	}
	return &helloWorld{hub: hub, image: image, templates: templates}, nil
}

// Options implements addon.Agent. The agent reports by its lease that it works: that is the default.
func (h *helloWorld) Options() addon.Options {
	return addon.Options{
		Name:             addOnName,
		Registration:     &addon.Registration{Configs: h.configs, Permissions: h.permissions},
		InstallNamespace: config.InstallNamespace(h.hub),
		Configs:          []schema.GroupVersionResource{config.DeploymentConfigs},
	}
}

// Manifests implements addon.Agent. An administrator may set another image or registry in an AddOnDeploymentConfig, and any value in
// the annotation with values.
func (h *helloWorld) Manifests(ctx context.Context, i addon.Installation) (*addon.Workload, error) {
	with, err := values.Collect(ctx, i, values.AgentImage(h.hub, "Image", h.image), values.FromAnnotation)
	if err != nil {
		return nil, err
	}
	objects, err := h.templates.Render(i, with)
	if err != nil {
		return nil, err
	}
	return &addon.Workload{Objects: objects}, nil
}

// configs returns the registration for access to the hub, with the groups of the agent on its API server: those of add-ons, and the one
// that the API server gives to all users.
func (h *helloWorld) configs(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	access := addon.KubeClient(i, addOnName)
	access.KubeClient.Subject.Groups = append(access.KubeClient.Subject.Groups, "system:authenticated")
	return []addonv1beta1.RegistrationConfig{access}, nil
}

// permissions returns the right to read the ConfigMaps in the namespace of the cluster, and nothing else.
func (h *helloWorld) permissions(_ context.Context, i addon.Installation) ([]client.Object, error) {
	role := addon.NewRole(i, "helloworld-agent", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"},
	})
	binding, err := addon.BindRole(i, role.Name)
	if err != nil {
		return nil, err
	}
	return []client.Object{role, binding}, nil
}

func newControllerCommand() *cobra.Command {
	image := "helloworld-addon:latest"
	command := &cobra.Command{
		Use:   "controller",
		Short: "Install the add-on on the clusters of a hub",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			hub, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			return runController(command.Context(), hub, image)
		},
	}
	command.Flags().StringVar(&image, "agent-image", image, "Image of the agent.")
	return command
}

func runController(ctx context.Context, hub *rest.Config, image string) error {
	mgr, err := manager.New(hub, manager.Options{Name: "helloworld-controller"})
	if err != nil {
		return err
	}
	hello, err := newHelloWorld(mgr.Client(), image)
	if err != nil {
		return err
	}
	mgr.Add(hello)
	return mgr.Start(ctx)
}
