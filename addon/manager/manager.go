// Package manager runs add-ons: it does for each of them what package addon describes.
//
// The user that it runs as needs on the hub, in all namespaces:
//
//   - get, list and watch of ManagedClusters, ClusterManagementAddOns, CertificateSigningRequests, Roles, RoleBindings, ClusterRoles and
//     ClusterRoleBindings, whether the add-ons register or not, and of the types in their Configs;
//   - get, list, watch and patch of ManagedClusterAddOns, patch of their status, update of their finalizers;
//   - get, list, watch, create, patch and delete of ManifestWorks;
//   - create and patch of events, in the API groups "" and events.k8s.io.
//
// If an add-on registers:
//
//   - update of certificatesigningrequests/approval, and approve of the signer kubernetes.io/kube-apiserver-client and of those of the
//     add-on;
//   - where it signs, update of certificatesigningrequests/status, and sign of its signers;
//   - if it has permissions, create, patch and delete of what these are, and every right that they give.
//
// And with leader election, get, create and update of leases in its namespace. deploy/examples/helloworld/rights.yaml in the
// repository is an example.
//
// On a hosted hub whose agents register by gRPC, the environment variable CAPSTAN_HUB_NAMESPACE has to be the name of its ClusterManager:
// in the namespace of this name is the account of the gRPC server, which requests certificates for them.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/engine"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/requeue"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
)

// Options configure a Manager. Name is required.
type Options struct {
	// Name of the manager, such as hello-manager. It is a DNS label that no other manager on the hub has, and it has to stay the same:
	// the permissions that the manager applies for agents have a label with it, and the manager's Lease has this name.
	Name string
	// LeaderElection makes only one of several replicas work, with a Lease in LeaderElectionNamespace; empty means the namespace of the
	// pod.
	LeaderElection          bool
	LeaderElectionNamespace string
	// MetricsAddress is the address at which metrics are served over HTTP, such as :8080. Empty means that they are not served.
	MetricsAddress string
	// HealthAddress is the address at which /healthz and /readyz are served, such as :8081. Empty means that they are not served.
	HealthAddress string
}

// Manager runs add-ons.
type Manager struct {
	name   string
	mgr    ctrl.Manager
	agents []addon.Agent
	addOns *requeue.AddOns
}

// New returns a Manager for the hub. It fails if an option is invalid or the hub cannot be reached.
func New(hub *rest.Config, o Options) (*Manager, error) {
	if err := checkName(o.Name); err != nil {
		return nil, err
	}
	if err := forwardproxy.CheckCredential(hub); err != nil {
		return nil, fmt.Errorf("prepare the manager %s: %w", o.Name, err)
	}
	mgr, err := ctrl.NewManager(hub, o.controllers())
	if err != nil {
		return nil, fmt.Errorf("prepare the manager %s: %w", o.Name, err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, err
	}
	return &Manager{name: o.Name, mgr: mgr, addOns: &requeue.AddOns{}}, nil
}

// Client returns a client that reads from the manager's cache, which is filled once the manager has started, and writes to the hub. It
// knows the kinds of Kubernetes, clusters, works and add-ons; add others to its Scheme.
//
// Of Roles, ClusterRoles and their bindings, the cache has those that this manager has applied; of ManifestWorks and
// CertificateSigningRequests, those of add-ons. The client does not find any others. The first use of another kind, such as Secrets,
// makes the manager watch and keep all objects of that kind, for which it needs the rights. For single objects, and for what the cache
// lacks, use APIReader, or a client of your own.
func (m *Manager) Client() client.Client { return m.mgr.GetClient() }

// APIReader returns a reader that sends each request to the hub. It reads everything that the manager's user may read, and works before
// the manager has started.
func (m *Manager) APIReader() client.Reader { return m.mgr.GetAPIReader() }

// Add adds add-ons to the manager. It has no effect after Start.
func (m *Manager) Add(agents ...addon.Agent) { m.agents = append(m.agents, agents...) }

// Start runs the add-ons until the context is done. It fails if there are none, or if the hub lacks what they need.
func (m *Manager) Start(ctx context.Context) error {
	if err := setup(m.mgr, m.name, m.addOns, m.agents); err != nil { //nolint:contextcheck // adding an index waits for nothing
		return err
	}
	return m.mgr.Start(ctx)
}

// Trigger makes the manager call an add-on again for its manifests on a cluster, and for a decision on the cluster's certificate
// requests that wait. It is for changes that the manager does not watch. It returns at once, and may be called from any goroutine.
// Before the manager works, it has no effect: the manager calls all add-ons when it starts to work.
func (m *Manager) Trigger(cluster, addOn string) { m.addOns.Add(cluster, addOn) }

// Setup adds add-ons to an existing manager of controller-runtime, all of them in one call. name is as in [Options]. The manager's
// scheme needs what AddToScheme adds, and its client should read its own writes. Setup returns a function like [Manager.Trigger].
func Setup(mgr ctrl.Manager, name string, agents ...addon.Agent) (func(cluster, addOn string), error) {
	addOns := &requeue.AddOns{}
	if err := setup(mgr, name, addOns, agents); err != nil {
		return nil, err
	}
	return addOns.Add, nil
}

func setup(mgr ctrl.Manager, name string, addOns *requeue.AddOns, agents []addon.Agent) error {
	if err := checkName(name); err != nil {
		return err
	}
	fixed, err := catalogue.Of(agents...)
	if err != nil {
		return fmt.Errorf("the manager %s: %w", name, err)
	}
	return engine.Register(mgr, engine.Options{Manager: name, Catalogue: fixed, Configs: configsOf(agents), Requeue: addOns,
		GRPCServer: fleet.GRPCServerUser(cmp.Or(os.Getenv(fleet.EnvHubNamespace), fleet.NamespaceHub)), Clock: clock.RealClock{}})
}

// AddToScheme adds the kinds that a manager works with to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(kubernetesscheme.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme, addonv1beta1.AddToScheme)
	return builder.AddToScheme(scheme)
}

func checkName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is no name for a manager: %s", name, problems[0])
	}
	return nil
}

// configsOf returns the types that the add-ons read, each in all versions in which one of them does.
func configsOf(agents []addon.Agent) (all []schema.GroupVersionResource) {
	for _, agent := range agents {
		for _, kind := range agent.Options().Configs {
			if !slices.Contains(all, kind) {
				all = append(all, kind)
			}
		}
	}
	return all
}

// controllers returns the options of a manager whose caches hold only objects of its add-ons.
func (o Options) controllers() ctrl.Options {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		panic(err) // two kinds have the same name: a mistake of the program
	}
	ofAddOns := cache.ByObject{Label: hasLabel(fleet.LabelAddOnName)}
	granted := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{fleet.LabelAddOnManager: o.Name})}
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&workv1.ManifestWork{}:                      ofAddOns,
				&certificatesv1.CertificateSigningRequest{}: ofAddOns,
				&rbacv1.Role{}:                              granted,
				&rbacv1.RoleBinding{}:                       granted,
				&rbacv1.ClusterRole{}:                       granted,
				&rbacv1.ClusterRoleBinding{}:                granted,
			},
		},
		NewClient: repairclient.NewClient,
		Client:    client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		// A process may run several managers.
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:                       metricsserver.Options{BindAddress: cmp.Or(o.MetricsAddress, "0")},
		HealthProbeBindAddress:        cmp.Or(o.HealthAddress, "0"),
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              o.Name,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
	}
}

func hasLabel(key string) labels.Selector {
	exists, err := labels.NewRequirement(key, selection.Exists, nil)
	if err != nil {
		panic(err) // the key is a constant
	}
	return labels.NewSelector().Add(*exists)
}
