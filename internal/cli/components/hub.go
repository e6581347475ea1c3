// Package components says what a hub, and the agents in a cluster, consist of.
package components

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// HubInfo is what a hub consists of.
type HubInfo struct {
	// Standalone is the process of a standalone hub; nil for a hub in a Kubernetes cluster.
	Standalone *Standalone `json:"standalone,omitempty"`
	// Operator installs hubs in Kubernetes clusters.
	Operator   Component   `json:"operator"`
	Components []Component `json:"components"`
	// FeatureGates are those that are known to be on or off.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// Standalone is a hub in one process.
type Standalone struct {
	Version     string   `json:"version"`
	Controllers []string `json:"controllers"`
}

// Component is a part of a hub: what runs, and the kinds it is for.
type Component struct {
	Name       string   `json:"name"`
	Controller *Running `json:"controller,omitempty"`
	Webhook    *Running `json:"webhook,omitempty"`
	CRDs       []CRD    `json:"customResourceDefinitions"`
}

// Running is a program of a hub: a Deployment, the holder of a Lease, or a part of a standalone hub, which has neither.
type Running struct {
	Deployment string `json:"deployment,omitempty"`
	Image      string `json:"image,omitempty"`
	Available  int32  `json:"available,omitempty"`
	Desired    int32  `json:"desired,omitempty"`
	Holder     string `json:"holder,omitempty"`
}

// CRD is a kind that the hub serves, or should.
type CRD struct {
	Name      string   `json:"name"`
	Installed bool     `json:"installed"`
	Versions  []string `json:"versions,omitempty"` // those served
	Storage   string   `json:"storage,omitempty"`
}

// part is what a component of a hub is found by.
type part struct {
	name, group string
	// Without the name of the ClusterManager and a dash.
	controller, webhook string
	crds                []string
}

var parts = []part{
	{"Registration", "registration", "registration-controller", "registration-webhook", []string{
		"managedclusters.cluster.open-cluster-management.io", "managedclustersets.cluster.open-cluster-management.io",
		"managedclustersetbindings.cluster.open-cluster-management.io",
	}},
	{"Placement", "placement", "placement-controller", "", []string{
		"placements.cluster.open-cluster-management.io", "placementdecisions.cluster.open-cluster-management.io",
		"addonplacementscores.cluster.open-cluster-management.io",
	}},
	{"Work", "work", "work-controller", "work-webhook", []string{
		"manifestworks.work.open-cluster-management.io", "manifestworkreplicasets.work.open-cluster-management.io",
	}},
	{"AddOn", "addon", "addon-manager-controller", "addon-webhook", []string{
		"clustermanagementaddons.addon.open-cluster-management.io", "managedclusteraddons.addon.open-cluster-management.io",
		"addondeploymentconfigs.addon.open-cluster-management.io", "addontemplates.addon.open-cluster-management.io",
	}},
}

const (
	// clusterManager is the name of a ClusterManager, and of the Deployment of its operator.
	clusterManager    = "cluster-manager"
	clusterManagerCRD = "clustermanagers.operator.open-cluster-management.io"
)

// deployment is what is read of a Deployment.
type deployment struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
	Status struct {
		AvailableReplicas int32 `json:"availableReplicas"`
	} `json:"status"`
}

func (d deployment) running() *Running {
	r := &Running{Deployment: d.Metadata.Namespace + "/" + d.Metadata.Name, Available: d.Status.AvailableReplicas, Desired: 1}
	if d.Spec.Replicas != nil {
		r.Desired = *d.Spec.Replicas
	}
	if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
		r.Image = containers[0].Image
	}
	return r
}

// featureGates is what is read of the configuration of a component of a ClusterManager.
type featureGates struct {
	FeatureGates []struct{ Feature, Mode string } `json:"featureGates"`
}

// hubObjects are the objects that describe a hub.
type hubObjects struct {
	info            *corev1.ConfigMap
	operators       []deployment
	deployments     []deployment
	leases          []coordinationv1.Lease
	clusterManagers []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Registration featureGates `json:"registrationConfiguration"`
			Work         featureGates `json:"workConfiguration"`
			Placement    featureGates `json:"placementConfiguration"`
			AddOnManager featureGates `json:"addOnManagerConfiguration"`
		} `json:"spec"`
	}
	crds map[string]CRD
}

// OfHub says what the hub consists of, wherever it runs. now is when Leases are held or not.
func OfHub(ctx context.Context, hub *hubapi.Hub, now time.Time) (*HubInfo, error) {
	objects, err := readHubObjects(ctx, hub)
	if err != nil {
		return nil, err
	}
	info := &HubInfo{Standalone: objects.standalone(), FeatureGates: objects.featureGates()}
	info.Operator = Component{Name: "Registration Operator", Controller: find(objects.operators, clusterManager),
		CRDs: []CRD{objects.crd(clusterManagerCRD)}}
	for _, p := range parts {
		component := Component{Name: p.name, Controller: objects.controller(p, now), Webhook: objects.webhook(p)}
		for _, name := range p.crds {
			component.CRDs = append(component.CRDs, objects.crd(name))
		}
		info.Components = append(info.Components, component)
	}
	return info, nil
}

func readHubObjects(ctx context.Context, hub *hubapi.Hub) (*hubObjects, error) {
	found := &hubObjects{crds: map[string]CRD{}}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return hub.ReadIfServed(ctx, &found.info, "/api/v1/namespaces", fleet.NamespaceHub, "configmaps", fleet.ConfigMapHubInfo)
	})
	for namespace, into := range map[string]*[]deployment{fleet.NamespaceOperators: &found.operators, fleet.NamespaceHub: &found.deployments} {
		group.Go(func() error { return hub.ListIfServed(ctx, into, "/apis/apps/v1/namespaces", namespace, "deployments") })
	}
	group.Go(func() error {
		return hub.ListIfServed(ctx, &found.clusterManagers, "/apis/operator.open-cluster-management.io/v1/clustermanagers")
	})
	var ofHub, ofSystem []coordinationv1.Lease
	for namespace, into := range map[string]*[]coordinationv1.Lease{fleet.NamespaceHub: &ofHub, metav1.NamespaceSystem: &ofSystem} {
		group.Go(func() error {
			return hub.ListIfServed(ctx, into, "/apis/coordination.k8s.io/v1/namespaces", namespace, "leases")
		})
	}
	names := []string{clusterManagerCRD}
	for _, p := range parts {
		names = append(names, p.crds...)
	}
	crds := make([]CRD, len(names))
	for i, name := range names {
		group.Go(func() (err error) {
			crds[i], err = ReadCRD(ctx, hub, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found.leases = slices.Concat(ofHub, ofSystem)
	for _, crd := range crds {
		found.crds[crd.Name] = crd
	}
	return found, nil
}

// ReadCRD says whether a kind is served, and in which versions.
func ReadCRD(ctx context.Context, hub *hubapi.Hub, name string) (CRD, error) {
	var definition struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Versions []struct {
				Name    string
				Served  bool
				Storage bool
			} `json:"versions"`
		} `json:"spec"`
	}
	err := hub.ReadIfServed(ctx, &definition, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name)
	crd := CRD{Name: name, Installed: definition.Metadata.Name != ""}
	for _, version := range definition.Spec.Versions {
		if version.Served {
			crd.Versions = append(crd.Versions, version.Name)
		}
		if version.Storage {
			crd.Storage = version.Name
		}
	}
	return crd, err
}

func (o *hubObjects) crd(name string) CRD { return o.crds[name] }

// standalone is what a standalone hub says of itself.
func (o *hubObjects) standalone() *Standalone {
	if o.info == nil {
		return nil
	}
	return &Standalone{Version: o.info.Data[fleet.HubInfoVersion], Controllers: strings.Split(o.info.Data[fleet.HubInfoControllers], ",")}
}

func (o *hubObjects) featureGates() map[string]bool {
	gates := map[string]bool{}
	if o.info != nil {
		for gate := range strings.SplitSeq(o.info.Data[fleet.HubInfoFeatureGates], ",") {
			if name, value, ok := strings.Cut(gate, "="); ok {
				gates[name] = value == "true"
			}
		}
	}
	for _, manager := range o.clusterManagers {
		spec := manager.Spec
		for _, component := range []featureGates{spec.Registration, spec.Work, spec.Placement, spec.AddOnManager} {
			for _, gate := range component.FeatureGates {
				gates[gate.Feature] = gate.Mode == "Enable"
			}
		}
	}
	return gates
}

// controller is what runs the controllers of a part; nil if nothing does.
func (o *hubObjects) controller(p part, now time.Time) *Running {
	if standalone := o.standalone(); standalone != nil {
		if slices.Contains(standalone.Controllers, p.group) {
			return &Running{}
		}
		return nil
	}
	if deployed := o.deployed(p.controller); deployed != nil {
		return deployed
	}
	for i := range o.leases {
		if lease := &o.leases[i]; isLeaseOf(lease, p.group) && isHeld(lease, now) {
			return &Running{Holder: *lease.Spec.HolderIdentity}
		}
	}
	return nil
}

func (o *hubObjects) webhook(p part) *Running {
	if p.webhook == "" {
		return nil
	}
	if o.info != nil {
		return &Running{}
	}
	return o.deployed(p.webhook)
}

// deployed is the Deployment that an operator made for the part of a hub.
func (o *hubObjects) deployed(name string) *Running {
	managers := []string{clusterManager}
	for _, manager := range o.clusterManagers {
		managers = append(managers, manager.Metadata.Name)
	}
	for _, manager := range managers {
		if running := find(o.deployments, manager+"-"+name); running != nil {
			return running
		}
	}
	return nil
}

func find(deployments []deployment, name string) *Running {
	for _, d := range deployments {
		if d.Metadata.Name == name {
			return d.running()
		}
	}
	return nil
}

// isLeaseOf reports whether a Lease is that of processes which run a group of controllers.
func isLeaseOf(lease *coordinationv1.Lease, group string) bool {
	groups, ours := strings.CutPrefix(lease.Name, fleet.LeaseHubControllers)
	return ours && (groups == "" || slices.Contains(strings.Split(groups, "-"), group))
}

func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	return spec.HolderIdentity != nil && *spec.HolderIdentity != "" && spec.RenewTime != nil && spec.LeaseDurationSeconds != nil &&
		now.Before(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second))
}
