//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/fleetsim"
)

const (
	// addOns are installed on every cluster of the fleet.
	addOns = 3
	// addOnTimeout is how long a fleet may take to install or change all of them.
	addOnTimeout = 20 * time.Minute
	addOnConfig  = "bench-config"
)

// TestAddOns measures what it takes to install several add-ons made of templates, each with access to the hub, on fleets of
// several sizes by one placement, and to change their configuration a tenth of the clusters at a time.
func TestAddOns(t *testing.T) { measureFleets(t, 1, measureAddOns) }

func measureAddOns(t *testing.T, r *report, size int) {
	hub := env.StartHub(t, "", append(fleetsim.HubFlags(), "--profiling")...)
	c := hub.Client(t)
	fleet := newFleet(t, hubConfig(t, hub), newToken(t, hub), size)
	seen := watchAvailability(t, hubConfig(t, hub))
	fleet.Start()
	seen.await(t, fleet.Names(), metav1.ConditionTrue, joinTimeout)
	wait(t, settlePeriod)

	add := func(name, unit string, value float64) {
		name = fmt.Sprintf("%d clusters, %d add-ons: %s", size, addOns, name)
		r.add(name, unit, "", value)
		t.Logf("%s: %.4g %s", name, value, unit)
	}
	measure := func(phase string, do, await func()) {
		stopProfile := profile(t, hub, size, phase)
		before, counted, begin := usageOf(t, hub.Pid()), metricsOf(t, hub), time.Now()
		do()
		await()
		took, after, now := time.Since(begin), usageOf(t, hub.Pid()), metricsOf(t, hub)
		stopProfile()
		logBusiest(t, phase+", per cluster", now, counted, float64(size))
		add(phase, "s", took.Seconds())
		add(phase+", writes per cluster", "", (now.writes()-counted.writes())/float64(size))
		add(phase+", hub CPU per cluster", "ms", float64((after.cpu-before.cpu).Milliseconds())/float64(size))
		add(phase+", hub resident memory", "MB", after.rss)
	}
	selectAll(t, c)
	measure("install", func() { installAddOns(t, c) }, func() { awaitAddOns(t, hub, size*addOns, available) })
	measure("change of configuration", func() { changeConfig(t, c) }, func() { awaitAddOns(t, hub, size*addOns, has(t, c)) })
}

// writes are the requests that change something.
func (m metrics) writes() float64 {
	n := 0.0
	for kind, count := range m.byKind {
		switch verb, _, _ := strings.Cut(kind, " "); verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
			n += count
		}
	}
	return n
}

// selectAll makes a placement of all clusters.
func selectAll(t *testing.T, c client.Client) {
	t.Helper()
	for _, o := range []client.Object{
		&clusterv1beta2.ManagedClusterSetBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fleet.ClusterSetGlobal},
			Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: fleet.ClusterSetGlobal},
		},
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "all"}},
		config("1"),
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func config(value string) *addonv1beta1.AddOnDeploymentConfig {
	return &addonv1beta1.AddOnDeploymentConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: addOnConfig},
		Spec: addonv1beta1.AddOnDeploymentConfigSpec{
			AgentInstallNamespace: fleet.NamespaceAgentAddOn,
			CustomizedVariables:   []addonv1beta1.CustomizedVariable{{Name: "VALUE", Value: value}},
		},
	}
}

func installAddOns(t *testing.T, c client.Client) {
	t.Helper()
	for i := range addOns {
		name := fmt.Sprintf("bench-%d", i)
		for _, o := range []client.Object{template(name), catalogueEntry(name)} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// template is a small agent: a Deployment, its service account, and what it is configured with.
func template(name string) *addonv1beta1.AddOnTemplate {
	manifests := []string{
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"NAME","namespace":"open-cluster-management-agent-addon"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME","namespace":"open-cluster-management-agent-addon"},"data":{"value":"{{VALUE}}"}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","namespace":"open-cluster-management-agent-addon"},"spec":{"replicas":1,
		  "selector":{"matchLabels":{"app":"NAME"}},"template":{"metadata":{"labels":{"app":"NAME"}},"spec":{"serviceAccountName":"NAME",
		  "containers":[{"name":"agent","image":"example.com/agent:v1","args":["--cluster={{CLUSTER_NAME}}"]}]}}}}`,
	}
	at := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	at.Spec.AddonName = name
	at.Spec.Registration = []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeKubeClient}}
	for _, m := range manifests {
		raw := runtime.RawExtension{Raw: []byte(strings.ReplaceAll(m, "NAME\"", name+"\""))}
		at.Spec.AgentSpec.Workload.Manifests = append(at.Spec.AgentSpec.Workload.Manifests, workv1.Manifest{RawExtension: raw})
	}
	return at
}

func catalogueEntry(name string) *addonv1beta1.ClusterManagementAddOn {
	group := addonv1beta1.GroupVersion.Group
	return &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: addonv1beta1.ClusterManagementAddOnSpec{
			DefaultConfigs: []addonv1beta1.AddOnConfig{
				{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: group, Resource: "addontemplates"},
					ConfigReferent: addonv1beta1.ConfigReferent{Name: name}},
				{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: group, Resource: "addondeploymentconfigs"},
					ConfigReferent: addonv1beta1.ConfigReferent{Namespace: metav1.NamespaceDefault, Name: addOnConfig}},
			},
			InstallStrategy: addonv1beta1.InstallStrategy{
				Type: addonv1beta1.InstallStrategyPlacements,
				Placements: []addonv1beta1.PlacementStrategy{{
					PlacementRef: addonv1beta1.PlacementRef{Namespace: metav1.NamespaceDefault, Name: "all"},
					RolloutStrategy: clusterv1alpha1.RolloutStrategy{
						Type:        clusterv1alpha1.Progressive,
						Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: ptr.To(intstr.FromString("10%"))},
					},
				}},
			},
		},
	}
}

func changeConfig(t *testing.T, c client.Client) {
	t.Helper()
	before := config("1")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	after.Spec.CustomizedVariables[0].Value = "2"
	if err := c.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func available(a *addonv1beta1.ManagedClusterAddOn) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, fleet.ConditionAvailable)
}

// has tells whether the present configuration is applied on the cluster.
func has(t *testing.T, c client.Client) func(*addonv1beta1.ManagedClusterAddOn) bool {
	t.Helper()
	var hash string
	env.Eventually(t, func(ctx context.Context) error {
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := c.Get(ctx, client.ObjectKey{Name: "bench-0"}, entry); err != nil {
			return err
		}
		for _, ref := range entry.Status.DefaultConfigReferences {
			if ref.Resource == "addondeploymentconfigs" && ref.DesiredConfig != nil && ref.DesiredConfig.SpecHash != "" {
				hash = ref.DesiredConfig.SpecHash
			}
		}
		for _, p := range entry.Status.InstallProgressions {
			for _, ref := range p.ConfigReferences {
				done := ref.LastAppliedConfig != nil && ref.LastAppliedConfig.SpecHash == hash
				if ref.Resource == "addondeploymentconfigs" && hash != "" && !done {
					return nil
				}
			}
		}
		return errors.New("the change is not seen yet")
	})
	return func(a *addonv1beta1.ManagedClusterAddOn) bool {
		for _, ref := range a.Status.ConfigReferences {
			if ref.Resource == "addondeploymentconfigs" {
				return ref.LastAppliedConfig != nil && ref.LastAppliedConfig.SpecHash == hash
			}
		}
		return false
	}
}

// awaitAddOns waits until so many ManagedClusterAddOns are done.
func awaitAddOns(t *testing.T, hub *env.Server, n int, done func(*addonv1beta1.ManagedClusterAddOn) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), addOnTimeout)
	defer cancel()
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	addOns, err := cache.New(config, cache.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := addOns.GetInformer(ctx, &addonv1beta1.ManagedClusterAddOn{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan struct{})
	finished := map[string]bool{}
	see := func(o any) { // never called twice at once
		a, ok := o.(*addonv1beta1.ManagedClusterAddOn)
		if !ok || len(finished) == n {
			return
		}
		if key := a.Namespace + "/" + a.Name; done(a) {
			finished[key] = true
		} else {
			delete(finished, key)
		}
		if len(finished) == n {
			close(all)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: see,
		UpdateFunc: func(_, o any) { see(o) }}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := addOns.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatalf("not all of %d add-ons are done after %s", n, addOnTimeout)
	}
}
