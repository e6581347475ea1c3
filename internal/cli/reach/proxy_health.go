package reach

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// clusterTimeout is how long a cluster has to answer, unless --timeout says otherwise.
	clusterTimeout = 10 * time.Second
	// parallelClusters is how many clusters are probed or reviewed at once.
	parallelClusters = 50
)

const proxyHealthLong = `Show which clusters can be reached through the hub.

INSTALLED and AVAILABLE are about the add-on cluster-proxy of the cluster, which connects it. PROBED HEALTH is what the API server of the
cluster answers now, through the hub, and LATENCY how long that took. Clusters without the add-on are not asked. Why a cluster does not
answer goes to standard error. A cluster has 10 seconds to answer, or those of --timeout.`

// healthCheck is one run of "capstan proxy health".
type healthCheck struct {
	*options.Global
	clusters options.ClusterFlags
	ignored  ignoredflags.Flags
	format   *output.Choice
}

// NewProxyHealthCommand is "capstan proxy health".
func NewProxyHealthCommand(global *options.Global) *cobra.Command {
	h := &healthCheck{Global: global}
	command := &cobra.Command{
		Use:               "health",
		Short:             "Show which clusters can be reached through the hub",
		Long:              proxyHealthLong,
		Example:           "  capstan proxy health\n  capstan proxy health --clusters cluster1,cluster2 -o json",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	h.clusters.Add(global, command)
	h.format = options.AddOutputFlag(command, output.Table, output.JSON, output.YAML)
	addIgnoredProxyFlags(&h.ignored, command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		chosen, err := h.clusters.Names()
		if err != nil {
			return err
		}
		for _, name := range h.ignored.Used() {
			h.Note("--%s changes nothing: %s", name, proxyFlagsReason)
		}
		hub, err := h.Hub()
		if err != nil {
			return err
		}
		health, err := h.probe(command.Context(), hub, chosen, clusterLimit(global, command))
		if err != nil {
			return err
		}
		if err := h.Print(h.format.Format(), output.ClusterHealths(health)); err != nil {
			return err
		}
		h.noteUnhealthy(health)
		return nil
	}
	return command
}

const proxyFlagsReason = "clusters are reached through the API of the hub, with the credentials for the hub"

// addIgnoredProxyFlags adds the flags by which clusteradm finds the proxy server, which is the hub itself here.
func addIgnoredProxyFlags(ignored *ignoredflags.Flags, command *cobra.Command) {
	ignored.Add(command.Flags(), "in-cluster-proxy-cert-lookup", ignoredflags.Switch, proxyFlagsReason)
	for _, name := range []string{"proxy-ca-cert", "proxy-cert", "proxy-key", "proxy-server-host"} {
		ignored.Add(command.Flags(), name, ignoredflags.Text, proxyFlagsReason)
	}
	ignored.Add(command.Flags(), "proxy-server-port", ignoredflags.Number, proxyFlagsReason)
}

// clusterLimit is how long a cluster has to answer.
func clusterLimit(global *options.Global, command *cobra.Command) time.Duration {
	return global.TimeoutOr(command, clusterTimeout)
}

// probe reads the health of the chosen clusters, of all of them if none is chosen.
func (h *healthCheck) probe(ctx context.Context, hub *hubapi.Hub, chosen []string, limit time.Duration) ([]output.ClusterHealth, error) {
	var clusters *clusterv1.ManagedClusterList
	var addOns map[string]*addonv1alpha1.ManagedClusterAddOn
	limited, cancel := h.Limited(ctx)
	defer cancel()
	reading, readCtx := errgroup.WithContext(limited)
	reading.Go(func() (err error) {
		clusters, err = managedclusters.List(readCtx, hub, "")
		return err
	})
	reading.Go(func() (err error) {
		addOns, err = installations(readCtx, hub, fleet.AddOnClusterProxy)
		return err
	})
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	items, err := options.FilterByName(clusters.Items, chosen, "cluster", "capstan get clusters")
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		h.Note("No clusters. \"capstan get token\" prints the command with which one joins this hub, %s.", hub.Server)
	}
	health := make([]output.ClusterHealth, len(items))
	var probes errgroup.Group
	probes.SetLimit(parallelClusters)
	for i := range items {
		probes.Go(func() error {
			health[i] = h.probeOne(ctx, hub, items[i].Name, addOns[items[i].Name], limit)
			return nil
		})
	}
	return health, probes.Wait()
}

// probeOne reads the health of a cluster, if it has the add-on.
func (h *healthCheck) probeOne(ctx context.Context, hub *hubapi.Hub, name string, addOn *addonv1alpha1.ManagedClusterAddOn,
	limit time.Duration) output.ClusterHealth {
	health := output.ClusterHealth{Cluster: name}
	if addOn == nil {
		return health
	}
	health.Installed, health.Available = true, "Unknown"
	if condition := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable); condition != nil {
		health.Available = string(condition.Status)
	}
	ctx, cancel := h.LimitedTo(ctx, limit)
	defer cancel()
	cluster, err := clusterapi.Of(ctx, hub, name)
	if err != nil {
		health.Healthy, health.Reason = "False", err.Error()
		return health
	}
	start := h.Clock.Now()
	if err := cluster.Health(ctx); err != nil {
		health.Healthy, health.Reason = "False", cluster.Diagnose(err, limit).Message
		return health
	}
	health.Healthy, health.Latency = "True", h.Clock.Since(start).Round(latencyUnit).String()
	return health
}

// latencyUnit is as precise as a latency is shown.
const latencyUnit = 10 * time.Microsecond

// noteUnhealthy prints why clusters do not answer, and how to connect them.
func (h *healthCheck) noteUnhealthy(clusters []output.ClusterHealth) {
	missing := ""
	for i := range clusters {
		if reason := clusters[i].Reason; reason != "" {
			h.Note("%s: %s", clusters[i].Cluster, reason)
		}
		if !clusters[i].Installed {
			missing = clusters[i].Cluster
		}
	}
	if missing != "" {
		h.Note("\"capstan addon enable --names %s --clusters %s\" connects a cluster.", fleet.AddOnClusterProxy, missing)
	}
}

// installations lists the installations of an add-on, by the names of the clusters.
func installations(ctx context.Context, hub *hubapi.Hub, name string) (map[string]*addonv1alpha1.ManagedClusterAddOn, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := hub.Client(managedclusteraddons.Resource).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}, list)
	on := map[string]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range list.Items {
		on[list.Items[i].Namespace] = &list.Items[i]
	}
	return on, hub.Explain("list where add-on "+name+" is installed", err)
}
