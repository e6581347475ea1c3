package manager_test

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/manager"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// greeter is an add-on that puts a greeting on each cluster, and gives its agent the right to read ConfigMaps in the
// namespace of its cluster on the hub.
type greeter struct{}

func (greeter) Options() addon.Options {
	return addon.Options{
		Name:   "greeter",
		Health: addon.Health{Mode: addon.HealthManifests},
		Registration: &addon.Registration{
			Configs: func(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
				return []addonv1beta1.RegistrationConfig{addon.KubeClient(i, "greeter")}, nil
			},
			Permissions: func(_ context.Context, i addon.Installation) ([]client.Object, error) {
				binding, err := addon.BindClusterRole(i, "view")
				return []client.Object{binding}, err
			},
		},
	}
}

func (greeter) Manifests(_ context.Context, i addon.Installation) (*addon.Workload, error) {
	return &addon.Workload{Objects: []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Namespace()}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace(), Name: "greeting"},
			Data:       map[string]string{"greeting": "Hello, " + i.Cluster.Name},
		},
	}}, nil
}

func Example() {
	m, err := manager.New(ctrl.GetConfigOrDie(), manager.Options{Name: "greeter-manager", LeaderElection: true})
	if err != nil {
		log.Fatal(err)
	}
	m.Add(greeter{})
	if err := m.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
