package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/addonlease"
	"github.com/capstan-io/capstan/internal/agent/addon/builtin"
	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy"
	addonregistration "github.com/capstan-io/capstan/internal/agent/addon/registration"
	"github.com/capstan-io/capstan/internal/agent/addon/serviceaccount"
	"github.com/capstan-io/capstan/internal/agent/brokerapi"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/clientconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/heartbeat"
	"github.com/capstan-io/capstan/internal/agent/registration/hubca"
	"github.com/capstan-io/capstan/internal/agent/registration/managednamespace"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/agent/registration/status"
	"github.com/capstan-io/capstan/internal/agent/work/apply"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// registerRegistration adds the controllers of registration: everything that keeps the hub informed of the cluster.
func (a *Agent) registerRegistration(mgr ctrl.Manager, hub cluster.Cluster, uncached client.WithWatch, connection *monitor.Monitor,
	hubEvents events.EventBroadcaster) error {
	prober, err := status.NewProber(a.managed, a.ClusterHealthCheckPeriod, a.clock)
	if err != nil {
		return err
	}
	nodes, err := servesNodes(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	requester := &clientcert.Requester{Hub: uncached, Keys: a.store, Identity: a.identity, Renews: true, Lifetime: a.certificateLifetime(),
		Signer: a.access.Signer, Brokered: a.access.Brokered, Record: a.record}
	certificate, err := a.certificateNotice()
	if err != nil {
		return err
	}
	rotation := &clientcert.Rotation{Requester: requester, Store: a.store, Identity: a.identity, Clock: a.clock, Report: certificate.Set}
	if err := mgr.Add(rotation); err != nil {
		return err
	}
	if !a.access.Brokered { // a broker does not publish a CA; the bootstrap configuration names another one
		authority, err := hubca.New(hub.GetConfig(), a.store, a.bootstrap.Registered(), a.clock)
		if err != nil {
			return err
		}
		if err := mgr.Add(authority); err != nil {
			return err
		}
	}
	if err := heartbeat.Register(mgr, heartbeat.Options{
		Hub: hub, Leases: uncached, Lease: a.lease, CheckHub: connection.CheckNow, Record: a.record, Report: a.report, Clock: a.clock,
	}); err != nil {
		return err
	}
	if err := clientconfig.Register(mgr, clientconfig.Options{Hub: hub, Configs: a.clientConfigs}); err != nil {
		return err
	}
	err = managednamespace.Register(mgr, managednamespace.Options{
		Hub: hub, Cluster: a.identity.Cluster, HubHash: a.hubHash,
		Recorder: hubEvents.NewRecorder(hub.GetScheme(), namespaceRecorder), Clock: a.clock,
	})
	if err != nil {
		return err
	}
	return status.Register(mgr, status.Options{
		Hub: hub, Cluster: a.identity.Cluster, Prober: prober, Certificate: certificate, Nodes: nodes,
		Claims: a.FeatureGates.Enabled(featuregates.ClusterClaim), Properties: a.FeatureGates.Enabled(featuregates.ClusterProperty),
		MaxCustomClaims:       a.MaxCustomClusterClaims,
		ReservedClaimSuffixes: a.ReservedClusterClaimSuffixes, Recorder: hubEvents.NewRecorder(hub.GetScheme(), registrationRecorder),
		Clock: a.clock,
	})
}

// registerAddOns adds the controllers of add-ons: their access to the hub, their health, and those that are built in.
func (a *Agent) registerAddOns(mgr ctrl.Manager, hub cluster.Cluster, uncached client.WithWatch, hubEvents events.EventBroadcaster) error {
	err := addonregistration.Register(mgr, addonregistration.Options{
		Hub: hub, Uncached: uncached, Identity: a.identity, Author: a.hubUser(a.identity.Cluster), HubHash: a.hubHash,
		Driver:              addonv1beta1.KubeClientDriver(a.AddOnKubeClientRegistrationAuth),
		CertificateLifetime: a.certificateLifetime(), TokenLifetime: time.Duration(a.AddOnTokenExpirationSeconds) * time.Second,
		Brokered: a.access.Brokered, Store: a.store, Managed: a.managed, Hosting: a.management, Record: a.record, Clock: a.clock,
	})
	if err != nil {
		return err
	}
	err = addonlease.Register(mgr, addonlease.Options{
		Hub: hub, Managed: a.managed, Hosting: a.management, Grace: a.AddOnLeaseGracePeriod, Clock: a.clock,
	})
	if err != nil {
		return err
	}
	if a.access.Brokered {
		return builtin.Register(mgr, hub, builtin.NeedsAPI(), a.clock)
	}
	err = serviceaccount.Register(mgr, serviceaccount.Options{
		Hub: hub, Uncached: uncached, Cluster: a.identity.Cluster, HubHash: a.hubHash, Agent: a.identity.Agent,
		Managed: a.managed, Recorder: hubEvents.NewRecorder(hub.GetScheme(), serviceAccountRecorder), Clock: a.clock,
	})
	if err != nil {
		return err
	}
	if !a.FeatureGates.Enabled(featuregates.ClusterProxy) {
		return builtin.Register(mgr, hub, builtin.SwitchedOff(fleet.AddOnClusterProxy, featuregates.ClusterProxy), a.clock)
	}
	return clusterproxy.Register(mgr, clusterproxy.Options{
		Hub: hub, Managed: a.managed, InCluster: isOwnCluster(a.managed), Cluster: a.identity.Cluster, Namespace: a.Namespace, Clock: a.clock,
	})
}

// certificateNotice has the condition of the certificate in use, so that the first status has it.
func (a *Agent) certificateNotice() (*status.Notice, error) {
	notice := &status.Notice{}
	credential, err := a.store.Load()
	if err != nil || credential == nil || credential.Command() != nil {
		return notice, err
	}
	cond, err := clientcert.Condition(credential)
	if err != nil {
		return nil, err
	}
	notice.Set(cond)
	return notice, nil
}

// registerWork adds the controllers of works: everything that brings objects to the cluster and takes them away.
func (a *Agent) registerWork(ctx context.Context, mgr ctrl.Manager, hub cluster.Cluster, hubEvents events.EventBroadcaster) error {
	objects, err := dynamic.NewForConfig(a.managed)
	if err != nil {
		return fmt.Errorf("make a client for applied objects: %w", err)
	}
	meta, err := metadata.NewForConfig(a.managed)
	if err != nil {
		return fmt.Errorf("make a client for the metadata of applied objects: %w", err)
	}
	if !a.parts.Registration {
		// Registration, in a process of its own, renews the credential.
		if err := mgr.Add(&clientcert.Rotation{Store: a.store, Identity: a.identity, Clock: a.clock}); err != nil {
			return err
		}
	}
	served, err := discovery.NewDiscoveryClientForConfig(a.managed)
	if err != nil {
		return fmt.Errorf("make a client for what the managed cluster serves: %w", err)
	}
	managed := &deletion.Cluster{Objects: meta, Complete: objects, Discovery: served, Tracked: tracker.New(ctx, meta)}
	agentID := a.appliedBy(a.hubHash)
	observed := observe.New(objects, managed.Tracked, observe.Options{MaxJSONRawLength: a.maxJSONRaw(), Clock: a.clock})
	if err := mgr.Add(observed); err != nil {
		return err
	}
	clusters := &predecessor.Clusters{Exists: a.bootstrap.ClusterExists, Clock: a.clock}
	hasAnswered := answeredBy(hub)
	err = deletion.Register(mgr, deletion.Options{
		Hub: hub, Applied: managed, Namespace: a.identity.Cluster, HubHash: a.hubHash, AgentID: agentID, Clusters: clusters,
		HasAnswered: hasAnswered, GracePeriod: a.AppliedManifestWorkEvictionGracePeriod, Workers: a.WorkloadAgentWorkers, Clock: a.clock,
	})
	if err != nil {
		return err
	}
	executors, err := executor.New(a.managed, a.clock)
	if err != nil {
		return err
	}
	record := newWorkRecorder(hubEvents.NewRecorder(hub.GetScheme(), workRecorder))
	return apply.Register(mgr, apply.Options{ //nolint:contextcheck // a logger is created without a context
		Hub: hub, Objects: objects, Applied: managed, Observer: observed,
		Namespace: a.identity.Cluster, HubHash: a.hubHash, AgentID: agentID, Clusters: clusters, Workers: a.WorkloadAgentWorkers,
		Executors: executors, Record: record, NamesSources: hasAnswered != nil, Clock: a.clock,
	})
}

// answeredBy returns what knows which sources of works have said which they have; nil where there is one source, the hub.
func answeredBy(hub cluster.Cluster) func(source string, patience time.Duration) (counts, itself bool) {
	if broker, ok := hub.GetConfig().Transport.(*brokerapi.API); ok && broker.NamesSources {
		return broker.HasAnswered
	}
	return nil
}
