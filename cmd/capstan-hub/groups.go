package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/hub/addon/builtin"
	"github.com/capstan-io/capstan/internal/hub/registration/cleanup"
	"github.com/capstan-io/capstan/internal/hub/registration/importer"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/program"
)

const (
	// noGroups is the value of --controllers that runs none.
	noGroups = "none"
	// leaderLease is the name of the Lease by which one of several hubs is the leader; leaseOf distinguishes that of a hub
	// with some of the controllers.
	leaderLease = fleet.LeaseHubControllers
	// systemNamespace holds the Lease unless a flag says otherwise.
	systemNamespace = "kube-system"
)

// hubFlags are those of the hub's controllers, wherever they run.
type hubFlags struct {
	groups           []string
	gates            *featuregates.Set
	approvedUsers    []string
	approvedUsersOld []string
	cleanupResources []string
	deletionTimeout  time.Duration
	pendingExpiry    time.Duration
	builtInAddOns    []string
	labels           map[string]string
	imports          importer.Options
	tieBreak         string
	trustDecisions   bool
	withoutElection  bool
	drivers          []string
	grpc             grpcFlags
	workDriver       workDriverFlags
	aws              awsFlags
	accepted         ignoredflags.Flags
}

const (
	flagApprovedUsers    = "auto-approved-csr-users"
	flagApprovedUsersOld = "cluster-auto-approval-users"
	flagCleanupResources = "gc-resource-list"
	flagBuiltInAddOns    = "built-in-addons"
	flagLabels           = "labels"
	flagPendingExpiry    = "pending-cluster-expiry"
	flagDrivers          = "enabled-registration-drivers"
	flagRenderers        = "cluster-import-renderers"
)

// Ways in which agents register.
const (
	driverCSR  = "csr"
	driverGRPC = "grpc"
	driverAWS  = "awsirsa"
)

var drivers = []string{driverCSR, driverGRPC, driverAWS}

func newHubFlags() hubFlags {
	f := hubFlags{groups: hub.Groups(), gates: featuregates.Hub(), tieBreak: string(placement.TieBreakName), pendingExpiry: 7 * 24 * time.Hour,
		drivers: []string{driverCSR}, grpc: newGRPCFlags(), imports: importer.Options{Renderers: []string{fleet.RendererFromConfigSecret}}}
	for _, r := range cleanup.DefaultResources() {
		f.cleanupResources = append(f.cleanupResources, strings.Join([]string{r.Group, r.Version, r.Resource}, "/"))
	}
	return f
}

func (f *hubFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.groups, "controllers", f.groups,
		"Groups of hub controllers to run, out of "+strings.Join(hub.Groups(), ", ")+"; "+noGroups+" runs none.")
	f.gates.AddFlag(flags)
	flags.StringSliceVar(&f.approvedUsers, flagApprovedUsers, f.approvedUsers,
		"Users whose clusters are approved and accepted without a person; nobody's are without the feature gate "+
			string(featuregates.ManagedClusterAutoApproval)+".")
	flags.StringSliceVar(&f.approvedUsersOld, flagApprovedUsersOld, f.approvedUsersOld, "The same as --"+flagApprovedUsers+".")
	flags.StringSliceVar(&f.cleanupResources, flagCleanupResources, f.cleanupResources,
		"What is deleted from the namespace of a deleted cluster, one after the other, each as group/version/resource.")
	flags.DurationVar(&f.deletionTimeout, "cluster-deletion-timeout", f.deletionTimeout,
		"How long the deletion of a cluster that is not available waits for its agent before the hub goes on without it; 0 waits forever. "+
			"The annotation "+fleet.AnnotationDeletionTimeout+" of a ManagedCluster goes before it.")
	flags.DurationVar(&f.pendingExpiry, flagPendingExpiry, f.pendingExpiry,
		"How long a ManagedCluster that a user with a bootstrap credential created waits to be accepted before the hub deletes it; one whose agent "+
			"still asks stays, and so do those that administrators created. 0 waits forever.")
	flags.StringSliceVar(&f.builtInAddOns, flagBuiltInAddOns, f.builtInAddOns,
		"Add-ons that hub and agents have built in, whose ClusterManagementAddOns are created where they are absent, out of "+
			strings.Join(builtin.Names(), ", ")+".")
	flags.StringToStringVar(&f.labels, flagLabels, f.labels,
		"Labels of what the hub makes for a cluster (namespace, lease, service accounts, roles and role bindings), in addition to the hub's own, each as KEY=VALUE.")
	flags.BoolVar(&f.withoutElection, "disable-leader-election", f.withoutElection,
		"Act without a Lease, even if other processes run the same controllers.")
	flags.StringSliceVar(&f.imports.Renderers, flagRenderers, f.imports.Renderers,
		"What the values of the chart klusterlet for a cluster that the hub imports come from, each over those before it, out of "+
			strings.Join(fleet.ImportRenderers(), ", ")+": a token to join with and the images of the hub, or the Secret "+
			fleet.SecretClusterImportConfig+" in the namespace of the cluster.")
	flags.StringVar(&f.imports.AgentImage, "cluster-import-agent-image", f.imports.AgentImage,
		"Image of the agent that "+fleet.RendererAuto+" installs in such clusters (default: that of the version of the hub).")
	f.addPlacement(flags)
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	f.workDriver.add(flags)
	f.addDrivers(flags)
}

// addPlacement adds what placements select by, beside what they say themselves.
func (f *hubFlags) addPlacement(flags *pflag.FlagSet) {
	flags.StringVar(&f.tieBreak, "placement-tie-break", f.tieBreak,
		"How placements choose among clusters of equal scores: "+string(placement.TieBreakName)+" takes the first by name, "+
			string(placement.TieBreakHash)+" spreads placements over them.")
	flags.BoolVar(&f.trustDecisions, "trust-placement-decisions", f.trustDecisions,
		"Bring works and add-ons to whichever clusters PlacementDecisions name. Users who may write these in any namespace then have the works of their "+
			"ManifestWorkReplicaSets on every cluster. Without it, only clusters count that are accepted and in a ManagedClusterSet that is bound to the namespace.")
}

// addDrivers adds what chooses how agents register.
func (f *hubFlags) addDrivers(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.drivers, flagDrivers, f.drivers, "How agents register, out of "+strings.Join(drivers, ", ")+": "+
		driverCSR+" is by the API of the hub, "+driverGRPC+" by the gRPC server of the hub, "+driverAWS+" by AWS IAM, on a hub that is an EKS cluster.")
	f.grpc.add(flags)
	f.aws.add(flags)
}

// log warns of what was set and changes nothing.
func (f *hubFlags) log(logger logr.Logger) {
	f.gates.Log(logger)
	f.accepted.Log(logger)
	if users := f.users(); len(users) > 0 && !f.gates.Enabled(featuregates.ManagedClusterAutoApproval) {
		logger.Info("Nobody's clusters are approved without a person: the feature gate is off", "flag", "--"+flagApprovedUsers, "users", users,
			"toSwitchItOn", "--feature-gates="+string(featuregates.ManagedClusterAutoApproval)+"=true")
	}
	if len(f.aws.patterns) > 0 && !f.gates.Enabled(featuregates.ManagedClusterAutoApproval) {
		logger.Info("No clusters are accepted by their ARNs: the feature gate is off", "flag", "--"+flagARNPatterns, "patterns", f.aws.patterns,
			"toSwitchItOn", "--feature-gates="+string(featuregates.ManagedClusterAutoApproval)+"=true")
	}
}

// setDrivers sets how agents register.
func (f *hubFlags) setDrivers(o *hub.Options) (err error) {
	if len(f.drivers) == 0 {
		return fmt.Errorf("--%s names none; name some of %s", flagDrivers, strings.Join(drivers, ", "))
	}
	for _, driver := range f.drivers {
		if !slices.Contains(drivers, driver) {
			return fmt.Errorf("--%s: %q is no registration driver; use some of %s", flagDrivers, driver, strings.Join(drivers, ", "))
		}
	}
	byCSR, byGRPC := slices.Contains(f.drivers, driverCSR), slices.Contains(f.drivers, driverGRPC)
	autoApproval := f.gates.Enabled(featuregates.ManagedClusterAutoApproval)
	o.WithoutCertificates = !byCSR && !byGRPC
	if o.GRPCServer, err = f.grpc.server(); err != nil {
		return err
	}
	if o.GRPC, err = f.grpc.options(byGRPC, autoApproval); err != nil {
		return err
	}
	if o.AWS, err = f.aws.options(slices.Contains(f.drivers, driverAWS)); err != nil {
		return err
	}
	patterns, err := eks.ParsePatterns(f.aws.patterns)
	if err != nil {
		return fmt.Errorf("--%s: %w", flagARNPatterns, err)
	}
	if autoApproval {
		o.AutoApprovedARNs = patterns
	}
	return nil
}

func (f *hubFlags) users() []string {
	return append(slices.Clone(f.approvedUsers), f.approvedUsersOld...)
}

// tieBreaks are the values of --placement-tie-break.
var tieBreaks = []string{string(placement.TieBreakName), string(placement.TieBreakHash)}

// options refuses what makes no sense.
func (f *hubFlags) options() (o hub.Options, err error) {
	if o.Groups, err = parseGroups(f.groups); err != nil {
		return o, err
	}
	o.Gates = f.gates
	if len(o.Groups) > 0 && len(o.Running()) == 0 {
		return o, fmt.Errorf("--controllers %s and --feature-gates leave nothing to run; switch on %s, or name other groups out of %s",
			strings.Join(o.Groups, ","), strings.Join(gatesOf(o.Groups), " or "), strings.Join(hub.Groups(), ", "))
	}
	if o.WorkTransport, err = f.workDriver.transport(); err != nil {
		return o, err
	}
	if o.WorkTransport != nil && !slices.Contains(o.Running(), hub.GroupWork) {
		return o, fmt.Errorf("--%s=%s needs the controllers of the group %s; name it in --controllers, and switch on %s with --feature-gates",
			flagWorkDriver, f.workDriver.driver, hub.GroupWork, strings.Join(gatesOf([]string{hub.GroupWork}), " or "))
	}
	if f.gates.Enabled(featuregates.ManagedClusterAutoApproval) {
		o.AutoApprovedUsers = f.users()
	}
	if err := f.setDrivers(&o); err != nil {
		return o, err
	}
	if err := builtin.Check(f.builtInAddOns); err != nil {
		return o, fmt.Errorf("--%s: %w", flagBuiltInAddOns, err)
	}
	o.BuiltInAddOns = f.builtInAddOns
	if o.Labels, err = f.checkLabels(); err != nil {
		return o, err
	}
	if f.deletionTimeout < 0 {
		return o, fmt.Errorf("--cluster-deletion-timeout %s is negative; use a duration such as 10m, or 0 to wait forever", f.deletionTimeout)
	}
	if f.pendingExpiry < 0 {
		return o, fmt.Errorf("--%s %s is negative; use a duration such as 168h, or 0 to wait forever", flagPendingExpiry, f.pendingExpiry)
	}
	o.DeletionTimeout, o.PendingClusterExpiry = f.deletionTimeout, f.pendingExpiry
	if err := f.setPlacement(&o); err != nil {
		return o, err
	}
	if o.Import, err = f.importOptions(); err != nil {
		return o, err
	}
	for _, text := range f.cleanupResources {
		parts := strings.Split(text, "/")
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
			return o, fmt.Errorf("--%s: %q is not group/version/resource; write for instance work.open-cluster-management.io/v1/manifestworks",
				flagCleanupResources, text)
		}
		o.CleanupResources = append(o.CleanupResources, schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]})
	}
	return o, nil
}

// setPlacement sets what placements select by.
func (f *hubFlags) setPlacement(o *hub.Options) error {
	if !slices.Contains(tieBreaks, f.tieBreak) {
		return fmt.Errorf("--placement-tie-break is %q; use one of %s", f.tieBreak, strings.Join(tieBreaks, ", "))
	}
	o.TieBreak, o.TrustPlacementDecisions = placement.TieBreak(f.tieBreak), f.trustDecisions
	return nil
}

// importOptions refuses what is no renderer.
func (f *hubFlags) importOptions() (importer.Options, error) {
	for _, name := range f.imports.Renderers {
		if !slices.Contains(fleet.ImportRenderers(), name) {
			return importer.Options{}, fmt.Errorf("--%s: %q is no renderer; use some of %s", flagRenderers, name,
				strings.Join(fleet.ImportRenderers(), ", "))
		}
	}
	if len(f.imports.Renderers) == 0 {
		return importer.Options{}, fmt.Errorf("--%s names none; use some of %s", flagRenderers, strings.Join(fleet.ImportRenderers(), ", "))
	}
	return f.imports, nil
}

// checkLabels refuses what is no label, those by which the hub knows what it has made, and those with which the API server would do
// something else than label it.
func (f *hubFlags) checkLabels() (map[string]string, error) {
	if problems := metavalidation.ValidateLabels(f.labels, field.NewPath("--"+flagLabels)); len(problems) > 0 {
		return nil, problems.ToAggregate()
	}
	for _, key := range slices.Sorted(maps.Keys(f.labels)) {
		switch prefix, _, _ := strings.Cut(key, "/"); {
		case prefix == fleet.Domain || strings.HasSuffix(prefix, "."+fleet.Domain):
			return nil, fmt.Errorf("--%s: labels of %s are the hub's own; leave %s out", flagLabels, fleet.Domain, key)
		case key == corev1.LabelMetadataName:
			return nil, fmt.Errorf("--%s: Kubernetes sets %s of each namespace to the namespace's name, and takes no other; leave it out",
				flagLabels, key)
		case prefix == rbacv1.GroupName:
			return nil, fmt.Errorf("--%s: labels of %s add the rights of the agents' roles to other roles; leave %s out", flagLabels, prefix, key)
		}
	}
	return f.labels, nil
}

// info says what a hub with these options runs.
func (f *hubFlags) info(o hub.Options) map[string]string {
	groups := []string{noGroups}
	if len(o.Groups) > 0 {
		groups = o.Running()
	}
	return map[string]string{
		fleet.HubInfoVersion: program.Version(), fleet.HubInfoControllers: strings.Join(groups, ","),
		fleet.HubInfoFeatureGates: strings.Join(f.gates.Values(), ","),
	}
}

// parseGroups refuses names that do not exist. It returns none for noGroups.
func parseGroups(names []string) ([]string, error) {
	if slices.Equal(names, []string{noGroups}) {
		return nil, nil
	}
	for _, name := range names {
		if !slices.Contains(hub.Groups(), name) {
			return nil, fmt.Errorf("--controllers: %q is no group of controllers; use some of %s, or %s alone", name,
				strings.Join(hub.Groups(), ", "), noGroups)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--controllers: name at least one of %s, or %s", strings.Join(hub.Groups(), ", "), noGroups)
	}
	return names, nil
}

func gatesOf(groups []string) (names []string) {
	for _, group := range groups {
		for _, gate := range hub.GatesOf(group) {
			names = append(names, string(gate))
		}
	}
	return names
}

// inProcess is a controlplane.ControllersFunc.
func inProcess(o hub.Options, withoutElection bool) controlplane.ControllersFunc {
	return func(ctx context.Context, client *rest.Config, elect bool, started func()) error {
		if len(o.Groups) == 0 {
			started()
			<-ctx.Done()
			return nil
		}
		o.LeaseNamespace = systemNamespace
		options := hub.ManagerOptions(o)
		// The API server of the same process serves their metrics with its own.
		options.Metrics = metricsserver.Options{BindAddress: "0"}
		if elect && !withoutElection {
			if err := leaderelection.ForManager(&options, client, systemNamespace, leaseOf(o.Groups)); err != nil {
				return err
			}
		}
		manager, err := newManager(client, options, o)
		if err != nil {
			return err
		}
		if err := manager.Add(onStart(started)); err != nil {
			return err
		}
		return manager.Start(ctx)
	}
}

func newManager(client *rest.Config, options ctrl.Options, o hub.Options) (ctrl.Manager, error) {
	manager, err := ctrl.NewManager(client, options)
	if err != nil {
		return nil, fmt.Errorf("prepare the controllers: %w", err)
	}
	return manager, hub.Register(manager, o)
}

// leaseOf names the Lease of processes that run these groups. Those that run others must not wait for them.
func leaseOf(groups []string) string {
	if len(groups) == 0 || len(groups) == len(hub.Groups()) {
		return leaderLease
	}
	return strings.Join(append([]string{leaderLease}, slices.Sorted(slices.Values(groups))...), "-")
}

// onStart is called once the manager's caches are filled, whether or not this process leads.
type onStart func()

// Start implements manager.Runnable.
func (f onStart) Start(context.Context) error {
	f()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f onStart) NeedLeaderElection() bool { return false }
