// Package hub registers the controllers of the hub, with the names <area>-<noun>-<duty> in metrics and logs. They are the same in the
// standalone hub, where they call the API server in their own process, and in an existing cluster.
package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub/addon/addonhealth"
	"github.com/capstan-io/capstan/internal/hub/addon/builtin"
	"github.com/capstan-io/capstan/internal/hub/addon/clusterpermission"
	"github.com/capstan-io/capstan/internal/hub/addon/configuration"
	"github.com/capstan-io/capstan/internal/hub/addon/ephemeral"
	"github.com/capstan-io/capstan/internal/hub/addon/install"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/owner"
	"github.com/capstan-io/capstan/internal/hub/addon/profilecredentials"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/hub/addon/template"
	"github.com/capstan-io/capstan/internal/hub/addon/token"
	"github.com/capstan-io/capstan/internal/hub/addon/tokenreport"
	"github.com/capstan-io/capstan/internal/hub/gitops"
	"github.com/capstan-io/capstan/internal/hub/gitops/pull"
	"github.com/capstan-io/capstan/internal/hub/placement"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/hub/placement/sigdecision"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/hub/registration/autoaccept"
	"github.com/capstan-io/capstan/internal/hub/registration/autoapprove"
	"github.com/capstan-io/capstan/internal/hub/registration/availability"
	"github.com/capstan-io/capstan/internal/hub/registration/awsaccess"
	"github.com/capstan-io/capstan/internal/hub/registration/binding"
	"github.com/capstan-io/capstan/internal/hub/registration/cleanup"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterprofile"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterset"
	"github.com/capstan-io/capstan/internal/hub/registration/defaultset"
	"github.com/capstan-io/capstan/internal/hub/registration/expire"
	"github.com/capstan-io/capstan/internal/hub/registration/grpcsign"
	"github.com/capstan-io/capstan/internal/hub/registration/importer"
	"github.com/capstan-io/capstan/internal/hub/registration/managednamespace"
	"github.com/capstan-io/capstan/internal/hub/registration/renewal"
	"github.com/capstan-io/capstan/internal/hub/registration/taint"
	"github.com/capstan-io/capstan/internal/hub/work/delivery"
	"github.com/capstan-io/capstan/internal/hub/work/replicaset"
	"github.com/capstan-io/capstan/internal/hub/work/ttl"
	"github.com/capstan-io/capstan/internal/hub/work/unattended"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
	"github.com/capstan-io/capstan/internal/reach/gateway/credentials"
)

// Options select and configure the controllers.
type Options struct {
	// Groups are names out of [Groups], or one alone that is for a process of its own: [GroupServiceAccounts], [GroupGatewayCredentials] or
	// [GroupAccess].
	// Empty means all of [Groups].
	Groups []string
	// AutoApprovedUsers are the users whose clusters are approved and accepted without a decision of an administrator.
	AutoApprovedUsers []string
	// GRPC registers agents by the gRPC server; nil means that none do.
	GRPC *GRPCOptions
	// GRPCServer is the user as whom the gRPC server requests certificates of add-ons, whether or not GRPC is set; empty means that of
	// fleet.NamespaceHub.
	GRPCServer string
	// AutoApprovedARNs match the ARNs of EKS clusters that are accepted without a decision of an administrator.
	AutoApprovedARNs eks.Patterns
	// WithoutCertificates says that no agents register by certificate requests.
	WithoutCertificates bool
	// AWS registers clusters by AWS IAM; nil means that none do.
	AWS *AWSOptions
	// Gates are the feature gates that switch controllers on and off; nil means their defaults.
	Gates *featuregates.Set
	// Labels are set on what the hub creates for a cluster, in addition to its own.
	Labels map[string]string
	// CleanupResources are deleted from the namespace of a deleted cluster, one after the other; nil means the default ones.
	CleanupResources []schema.GroupVersionResource
	// DeletionTimeout is how long the deletion of a cluster that is not available waits for its agent; 0 means that it waits without a
	// limit.
	DeletionTimeout time.Duration
	// PendingClusterExpiry is how long a cluster that an agent with a bootstrap credential has created waits to be accepted, before it is
	// deleted; 0 means that it waits without a limit.
	PendingClusterExpiry time.Duration
	// ServiceAccountsElsewhere says that a process with the group [GroupServiceAccounts] serves the built-in add-on managed-serviceaccount.
	ServiceAccountsElsewhere bool
	// BuiltInAddOns are the built-in add-ons whose ClusterManagementAddOns are created where they are absent.
	BuiltInAddOns []string
	// GatewayNamespace holds the Secrets by which a gateway reaches the clusters with the add-on cluster-gateway; empty means that there is no
	// gateway.
	GatewayNamespace string
	// GatewayAccount is the name of the ManagedServiceAccounts whose tokens the gateway gets, for a process that reads no Secrets of other
	// names; empty means the name that the ClusterGatewayConfiguration has.
	GatewayAccount string
	// Access is how clusters are reached through this process, for ClusterProfiles and GitOpsClusters; nil leaves these to another one.
	Access *accessprovider.Options
	// TieBreak is how placements choose among clusters with equal scores.
	TieBreak scheduler.TieBreak
	// PlacementDebug serves why placements select what they do, once the controllers are registered; nil serves nothing.
	PlacementDebug *debug.Endpoint
	// TrustPlacementDecisions makes the controllers act on all clusters that PlacementDecisions name, without checking them against the
	// bindings.
	TrustPlacementDecisions bool
	// Import configures how clusters are imported.
	Import importer.Options
	// WorkTransport brings ManifestWorks to agents that do not read them from the API; nil brings none.
	WorkTransport delivery.Transport
	// LeaseNamespace is for a Lease by which the hub knows whether agents can renew theirs; empty means that there is none.
	LeaseNamespace string
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// GRPCOptions configure registration by the gRPC server.
type GRPCOptions struct {
	signingrequest.GRPC
	// CAFile and KeyFile have the certificate and the key that sign the certificates of agents.
	CAFile, KeyFile string
	// LongestValidity is how long these certificates are valid at most.
	LongestValidity time.Duration
}

// GroupRegistration is the group of controllers that taint new clusters, and keep them until their namespaces are empty.
const GroupRegistration = "registration"

// GroupWork is the group of controllers that Options.WorkTransport belongs to.
const GroupWork = "work"

// AWSOptions configure registration by AWS IAM.
type AWSOptions struct {
	// Hub is the hub as AWS knows it.
	Hub eks.Cluster
	// Tags are set on what is made in AWS.
	Tags map[string]string
}

// GroupPlacement is the group of controllers that Options.PlacementDebug belongs to.
const GroupPlacement = "placement"

// GroupServiceAccounts is the group of controllers of the built-in add-on managed-serviceaccount, for a process of its own. In an existing
// cluster, it has a right that the other controllers should not have: to let agents write Secrets.
const GroupServiceAccounts = fleet.AddOnManagedServiceAccount

// GroupGatewayCredentials is the group of controllers that give a gateway its credentials, for a process of its own. In an existing
// cluster, it has a right that the other controllers should not have: to read the tokens of ManagedServiceAccounts.
const GroupGatewayCredentials = "gateway-credentials"

// GroupAccess is the group of controllers that write into ClusterProfiles and Argo CDs how clusters are reached, for the process that they
// are reached through.
const GroupAccess = fleet.AddOnClusterProxy

// group is a set of controllers that is switched on and off as one.
type group struct {
	name string
	// gates have controllers behind them. A group runs if one of its gates is on, or if it has none.
	gates []featuregate.Feature
	// reads are the resources that the controllers need, in addition to what every Kubernetes API serves.
	reads       func(Options) []schema.GroupVersionResource
	controllers []registration
}

// registration adds a controller to a manager, if the options enable it.
type registration struct {
	runs     func(Options) bool
	register func(ctrl.Manager, Options) error
}

// enabled says whether a feature gate is on.
func (o Options) enabled(gate featuregate.Feature) bool {
	if o.Gates == nil {
		return featuregates.Hub().Enabled(gate)
	}
	return o.Gates.Enabled(gate)
}

// always is for the controllers that run whenever their group does.
func always(Options) bool { return true }

// gated is for the controllers that run while a feature gate is on.
func gated(gate featuregate.Feature) func(Options) bool {
	return func(o Options) bool { return o.enabled(gate) }
}

func hasAutoApprovedUsers(o Options) bool {
	return len(o.AutoApprovedUsers)+len(o.grpc().Users) > 0 && !o.WithoutCertificates
}

func hasGRPC(o Options) bool { return o.GRPC != nil }

func (o Options) grpc() signingrequest.GRPC {
	if o.GRPC == nil {
		return signingrequest.GRPC{}
	}
	return o.GRPC.GRPC
}

func (o Options) grpcServer() string {
	return cmp.Or(o.GRPCServer, fleet.GRPCServerUser(fleet.NamespaceHub))
}

func acceptsByItself(o Options) bool {
	return len(o.AutoApprovedARNs) > 0 || hasAutoApprovedUsers(o)
}

// readsRequestsOfClusters is so for the controllers that look for the certificate requests of one cluster.
func readsRequestsOfClusters(o Options) bool {
	return hasCertificates(o) || acceptsByItself(o) || hasPendingClusterExpiry(o)
}

func hasCertificates(o Options) bool { return !o.WithoutCertificates }

func registerAutoAccept(mgr ctrl.Manager, o Options) error {
	options := autoaccept.Options{Users: o.AutoApprovedUsers, GRPC: o.grpc(), ARNs: o.AutoApprovedARNs, Clock: o.Clock}
	if o.AWS != nil {
		options.Hub = o.AWS.Hub
	}
	return autoaccept.Register(mgr, options)
}

func registerAWSAccess(mgr ctrl.Manager, o Options) error {
	options := awsaccess.Options{Clock: o.Clock}
	if o.AWS != nil {
		var err error
		if options.Access, err = awsaccess.NewAccess(context.Background(), o.AWS.Hub, o.AWS.Tags); err != nil {
			return err
		}
	}
	return awsaccess.Register(mgr, options)
}

func hasPendingClusterExpiry(o Options) bool { return o.PendingClusterExpiry > 0 }

// hasServiceAccounts is not so on a hub that another operator has installed, which has not their kinds.
func hasServiceAccounts(o Options) bool {
	return slices.Contains(o.BuiltInAddOns, fleet.AddOnManagedServiceAccount)
}

// copiesTokens is so where the controllers of managed service accounts are, with the right to read Secrets.
func copiesTokens(o Options) bool {
	return o.enabled(featuregates.ClusterProfile) && hasServiceAccounts(o)
}

func hasAccess(o Options) bool { return o.enabled(featuregates.ClusterProfile) && o.Access != nil }

func hasGitOps(o Options) bool { return o.enabled(featuregates.GitOpsCluster) && o.Access != nil }

// servedBuiltIn are the built-in add-ons that the controllers of add-ons serve.
func (o Options) servedBuiltIn() []string {
	if !o.ServiceAccountsElsewhere {
		return builtin.Names()
	}
	return slices.DeleteFunc(builtin.Names(), func(name string) bool { return name == fleet.AddOnManagedServiceAccount })
}

func hasWorkTransport(o Options) bool { return o.WorkTransport != nil }

func hasGateway(o Options) bool { return o.GatewayNamespace != "" }

// serviceAccounts are the controllers of GroupServiceAccounts, which the group addon has, too.
var serviceAccounts = group{name: GroupServiceAccounts, reads: serviceAccountReads, controllers: []registration{
	{always, func(mgr ctrl.Manager, _ Options) error {
		return lookup.AddNameIndex(context.Background(), mgr.GetFieldIndexer())
	}},
	{always, func(mgr ctrl.Manager, o Options) error {
		return builtin.Register(mgr, builtin.Options{Served: []string{fleet.AddOnManagedServiceAccount},
			ClusterRole: fleet.ClusterRoleManagedServiceAccount, Labels: o.Labels, Clock: o.Clock})
	}},
	{always, func(mgr ctrl.Manager, o Options) error {
		return clusterpermission.Register(mgr, clusterpermission.Options{Clock: o.Clock})
	}},
	{always, registerTokenReport},
	{gated(featuregates.ManagedServiceAccountEphemeralIdentity), func(mgr ctrl.Manager, o Options) error {
		return ephemeral.Register(mgr, ephemeral.Options{Clock: o.Clock})
	}},
	{gated(featuregates.ClusterProfile), registerProfileCredentials},
}}

func registerTokenReport(mgr ctrl.Manager, o Options) error {
	return tokenreport.Register(mgr, tokenreport.Options{Clock: o.Clock})
}

// gatewayCredentials are the controllers of GroupGatewayCredentials, which the group addon has, too.
var gatewayCredentials = group{name: GroupGatewayCredentials, reads: reading(managedClusters, managedClusterAddOns, clusterManagementAddOns,
	managedServiceAccounts, clusterGatewayConfigurations), controllers: []registration{{always, registerGatewayCredentials}}}

func registerGatewayCredentials(mgr ctrl.Manager, o Options) error {
	return credentials.Register(mgr, credentials.Options{Namespace: o.GatewayNamespace, Account: o.GatewayAccount, Clock: o.Clock})
}

// access are the controllers of GroupAccess, which the groups registration and addon have, too.
var access = group{name: GroupAccess, reads: accessReads, controllers: []registration{
	{hasAccess, registerAccess}, {hasGitOps, registerGitOps}}}

func registerAccess(mgr ctrl.Manager, o Options) error {
	return accessprovider.Register(mgr, *o.Access)
}

func registerGitOps(mgr ctrl.Manager, o Options) error {
	return gitops.Register(mgr, gitops.Options{Access: *o.Access, TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
}

func registerProfileCredentials(mgr ctrl.Manager, _ Options) error {
	return profilecredentials.Register(mgr)
}

// apart are the groups that are for a process of their own in an existing cluster.
var apart = []group{serviceAccounts, gatewayCredentials, access}

// groups is every controller of the hub.
var groups = []group{
	{name: GroupRegistration, reads: registrationReads, controllers: []registration{
		{readsRequestsOfClusters, func(mgr ctrl.Manager, _ Options) error {
			return signingrequest.AddClusterIndex(context.Background(), mgr.GetFieldIndexer())
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return accept.Register(mgr, accept.Options{Labels: o.Labels, KeepsContent: !o.enabled(featuregates.ResourceCleanup), Clock: o.Clock})
		}},
		{hasCertificates, func(mgr ctrl.Manager, o Options) error {
			return renewal.Register(mgr, renewal.Options{GRPC: o.grpc(), Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return availability.Register(mgr, availability.Options{Clock: o.Clock, LeaseNamespace: o.LeaseNamespace})
		}},
		{always, func(mgr ctrl.Manager, _ Options) error { return taint.Register(mgr, taint.Options{}) }},
		{always, func(mgr ctrl.Manager, o Options) error {
			return addonhealth.Register(mgr, addonhealth.Options{Clock: o.Clock})
		}},
		{hasAutoApprovedUsers, func(mgr ctrl.Manager, o Options) error {
			return autoapprove.Register(mgr, autoapprove.Options{Users: o.AutoApprovedUsers, GRPC: o.grpc(), Clock: o.Clock})
		}},
		{hasGRPC, func(mgr ctrl.Manager, o Options) error {
			return grpcsign.Register(mgr, grpcsign.Options{GRPC: o.GRPC.GRPC, CAFile: o.GRPC.CAFile, KeyFile: o.GRPC.KeyFile,
				LongestValidity: o.GRPC.LongestValidity, Clock: o.Clock})
		}},
		{acceptsByItself, registerAutoAccept},
		{always, registerAWSAccess},
		{hasPendingClusterExpiry, func(mgr ctrl.Manager, o Options) error {
			return expire.Register(mgr, expire.Options{After: o.PendingClusterExpiry, Clock: o.Clock})
		}},
		{gated(featuregates.DefaultClusterSet), func(mgr ctrl.Manager, _ Options) error {
			return defaultset.Register(mgr, defaultset.Options{})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return clusterset.Register(mgr, clusterset.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error { return binding.Register(mgr, binding.Options{Clock: o.Clock}) }},
		{always, func(mgr ctrl.Manager, _ Options) error {
			return managednamespace.Register(mgr, managednamespace.Options{})
		}},
		{gated(featuregates.ClusterProfile), func(mgr ctrl.Manager, o Options) error {
			return clusterprofile.Register(mgr, clusterprofile.Options{Clock: o.Clock})
		}},
		{hasAccess, registerAccess},
		{gated(featuregates.ClusterImporter), func(mgr ctrl.Manager, o Options) error { return importer.Register(mgr, o.Import) }},
		{always, func(mgr ctrl.Manager, o Options) error {
			return cleanup.Register(mgr, cleanup.Options{Disabled: !o.enabled(featuregates.ResourceCleanup), Resources: o.CleanupResources,
				Timeout: o.DeletionTimeout, Clock: o.Clock})
		}},
	}},
	{name: GroupPlacement, reads: placementReads, controllers: []registration{
		{always, func(mgr ctrl.Manager, o Options) error {
			return placement.Register(mgr, placement.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustPlacementDecisions,
				Debug: o.PlacementDebug, Clock: o.Clock})
		}},
		{gated(featuregates.SIGPlacementDecision), func(mgr ctrl.Manager, _ Options) error { return sigdecision.Register(mgr) }},
	}},
	{name: GroupWork, gates: []featuregate.Feature{featuregates.ManifestWorkReplicaSet, featuregates.CleanUpCompletedManifestWork},
		reads: workReads, controllers: []registration{
			{always, func(mgr ctrl.Manager, o Options) error {
				options := replicaset.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock}
				if o.enabled(featuregates.ManifestWorkReplicaSet) {
					return replicaset.Register(mgr, options)
				}
				return replicaset.RegisterDisabled(mgr, options)
			}},
			{always, func(mgr ctrl.Manager, o Options) error {
				return unattended.Register(mgr, unattended.Options{Clock: o.Clock})
			}},
			{gated(featuregates.CleanUpCompletedManifestWork), func(mgr ctrl.Manager, o Options) error {
				return ttl.Register(mgr, ttl.Options{Clock: o.Clock})
			}},
			{hasWorkTransport, func(mgr ctrl.Manager, o Options) error {
				return delivery.Register(mgr, delivery.Options{Transport: o.WorkTransport, Clock: o.Clock})
			}},
		}},
	{name: "addon", gates: []featuregate.Feature{featuregates.AddonManagement}, reads: addOnReads, controllers: []registration{
		{always, func(mgr ctrl.Manager, _ Options) error {
			return lookup.AddIndexes(context.Background(), mgr.GetFieldIndexer())
		}},
		{always, func(mgr ctrl.Manager, _ Options) error { return owner.Register(mgr, owner.Options{}) }},
		{always, func(mgr ctrl.Manager, o Options) error {
			return install.Register(mgr, install.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return configuration.Register(mgr, configuration.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return progress.Register(mgr, progress.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return token.Register(mgr, token.Options{Labels: o.Labels, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return template.Register(mgr, template.Options{GRPCServer: o.grpcServer(), Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return builtin.Register(mgr, builtin.Options{Names: o.BuiltInAddOns, Served: o.servedBuiltIn(), Labels: o.Labels, Clock: o.Clock})
		}},
		{hasGateway, registerGatewayCredentials},
		{hasServiceAccounts, func(mgr ctrl.Manager, o Options) error {
			return clusterpermission.Register(mgr, clusterpermission.Options{Clock: o.Clock})
		}},
		{hasServiceAccounts, registerTokenReport},
		{gated(featuregates.ManagedServiceAccountEphemeralIdentity), func(mgr ctrl.Manager, o Options) error {
			return ephemeral.Register(mgr, ephemeral.Options{Clock: o.Clock})
		}},
		{copiesTokens, registerProfileCredentials},
		{hasGitOps, registerGitOps},
		{gated(featuregates.GitOpsCluster), func(mgr ctrl.Manager, o Options) error {
			return pull.Register(mgr, pull.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
		}},
	}},
}

// chosen returns the groups that run.
func (o Options) chosen() (chosen []group) {
	if alone, ok := o.apart(); ok {
		return []group{alone}
	}
	for _, g := range groups {
		if (len(o.Groups) == 0 || slices.Contains(o.Groups, g.name)) && (len(g.gates) == 0 || slices.ContainsFunc(g.gates, o.enabled)) {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

// apart returns the group that is for a process of its own, if the options name one.
func (o Options) apart() (group, bool) {
	for _, g := range apart {
		if slices.Equal(o.Groups, []string{g.name}) {
			return g, true
		}
	}
	return group{}, false
}

// Running returns the names of the groups that run.
func (o Options) Running() (names []string) {
	for _, g := range o.chosen() {
		names = append(names, g.name)
	}
	return names
}

// GatesOf returns the feature gates of a group, which runs if one of them is on. There are none if the group always runs.
func GatesOf(name string) []featuregate.Feature {
	for _, g := range groups {
		if g.name == name {
			return g.gates
		}
	}
	return nil
}

// Groups returns the names that Options.Groups may hold, in the order in which they start.
func Groups() []string {
	names := make([]string, 0, len(groups))
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// RegisterPlacementDebug opens Options.PlacementDebug in a process without controllers.
func RegisterPlacementDebug(mgr ctrl.Manager, o Options) error {
	return placement.RegisterExplainer(mgr, placement.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustPlacementDecisions,
		Debug: o.PlacementDebug, Clock: clock.RealClock{}})
}

// Register adds the chosen controllers to the manager. It fails if a name in Options.Groups is unknown.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.CleanupResources == nil {
		o.CleanupResources = cleanup.DefaultResources()
	}
	_, alone := o.apart()
	for _, name := range o.Groups {
		if !slices.Contains(Groups(), name) && !alone {
			return fmt.Errorf("controllers: %q is no group of controllers; the groups are %s", name, strings.Join(Groups(), ", "))
		}
	}
	for _, g := range o.chosen() {
		for _, c := range g.controllers {
			if !c.runs(o) {
				continue
			}
			if err := c.register(mgr, o); err != nil {
				return fmt.Errorf("controllers: group %s: %w", g.name, err)
			}
		}
	}
	return nil
}
