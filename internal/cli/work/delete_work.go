package work

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// deletionTimeout is how long it waits for the agents to take off what a work delivered, unless --timeout says otherwise.
const deletionTimeout = 10 * time.Second

const deleteWorkLong = `Delete a work from clusters, and wait until it is gone.

A work goes when its agent has taken its objects off the cluster, or let them go if its deleteOption says so. It waits ten
seconds for that, or as long as --timeout says. Clusters that do not have it are no error.

With --force, the work goes at once, whether an agent is there or not. Its objects stay on the cluster until an agent finds
that their work is gone; if there will be none, they stay.`

// workDeletion is one run of "capstan delete work".
type workDeletion struct {
	*options.Global
	clusters options.ClusterFlags
	force    bool
	timeout  time.Duration
}

// NewDeleteCommand is "capstan delete work".
func NewDeleteCommand(global *options.Global) *cobra.Command {
	d := &workDeletion{Global: global}
	command := &cobra.Command{
		Use:     "work NAME --clusters CLUSTER,...",
		Aliases: []string{"works", "manifestwork", "manifestworks"},
		Short:   "Delete a work from clusters",
		Long:    deleteWorkLong,
		Example: "  capstan delete work web --clusters cluster1,cluster2\n  capstan delete work web --cluster gone --force",
		Args:    options.ExactName,
	}
	d.clusters.Add(global, command)
	command.Flags().BoolVar(&d.force, "force", false, "remove its finalizers: do not wait for the agent")
	command.ValidArgsFunction = completeWork(global, &d.clusters)
	command.RunE = func(command *cobra.Command, args []string) error {
		names, err := d.clusters.Required()
		if err != nil {
			return err
		}
		d.timeout = d.TimeoutOr(command, deletionTimeout)
		return d.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			found, err := findWorks(ctx, hub, args[0], names)
			if err != nil {
				return err
			}
			return d.deleteAll(ctx, hub, args[0], found)
		})
	}
	return command
}

// workLocation is a cluster, and whether it has the work.
type workLocation struct {
	cluster string
	found   bool
}

// findWorks reads the work of each cluster before any is deleted. None may have it: a command that was interrupted is run again.
func findWorks(ctx context.Context, hub *hubapi.Hub, name string, clusters []string) ([]workLocation, error) {
	locations := make([]workLocation, 0, len(clusters))
	var errs []error
	for _, cluster := range clusters {
		work, err := manifestworks.Get(ctx, hub, cluster, name)
		switch {
		case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
			if err := options.CheckCluster(ctx, hub, cluster); err != nil {
				errs = append(errs, err)
			}
		case err != nil:
			errs = append(errs, err)
		case work.Labels[fleet.LabelManifestWorkReplicaSet] != "":
			namespace, set := replicaSetOf(work)
			errs = append(errs, fmt.Errorf("work %s in cluster %s belongs to ManifestWorkReplicaSet %s, which would create it again: delete that with "+
				"\"kubectl -n %s delete manifestworkreplicaset %s\"",
				name, cluster, work.Labels[fleet.LabelManifestWorkReplicaSet], namespace, set))
		}
		locations = append(locations, workLocation{cluster, err == nil})
	}
	return locations, errors.Join(errs...)
}

// replicaSetOf are the namespace and the name of the ManifestWorkReplicaSet that has made a work, or NAMESPACE and NAME for what the label
// has no room for.
func replicaSetOf(work *workv1.ManifestWork) (namespace, name string) {
	key := work.Labels[fleet.LabelManifestWorkReplicaSet]
	namespace, name, whole := strings.Cut(key, ".")
	if !whole {
		namespace = "NAMESPACE"
	}
	if !whole || len(key) >= validation.LabelValueMaxLength {
		name = "NAME"
	}
	return namespace, name
}

// deleteAll deletes all of them before it waits for any.
func (d *workDeletion) deleteAll(ctx context.Context, hub *hubapi.Hub, name string, locations []workLocation) error {
	var errs []error
	var deleting []string
	for _, p := range locations {
		switch {
		case !p.found:
			d.Say("work %s in cluster %s not found or is already deleted", name, p.cluster)
		case d.DryRun:
			d.Say("would delete work %s in cluster %s", name, p.cluster)
		default:
			if err := d.delete(ctx, hub, p.cluster, name); err != nil {
				errs = append(errs, err)
				continue
			}
			deleting = append(deleting, p.cluster)
		}
	}
	return errors.Join(append(errs, d.awaitAll(ctx, hub, name, deleting))...)
}

// awaitAll waits until the works of all clusters are gone.
func (d *workDeletion) awaitAll(ctx context.Context, hub *hubapi.Hub, name string, clusters []string) error {
	ctx, cancel := d.LimitedTo(ctx, d.timeout)
	defer cancel()
	errs := d.AwaitEach(clusters, "waiting for its agent", func(cluster string) error { return awaitNoWork(ctx, hub, cluster, name) })
	for i, cluster := range clusters {
		if errs[i] == nil {
			d.Say("work %s in cluster %s is deleted", name, cluster)
		} else if errors.Is(errs[i], context.DeadlineExceeded) {
			errs[i] = fmt.Errorf("%w: its agent has not taken everything off the cluster yet. \"capstan get clusters %s\" shows whether it is there, "+
				"--timeout waits longer, --force does not wait for it", errs[i], cluster)
		}
	}
	return errors.Join(errs...)
}

func (d *workDeletion) delete(ctx context.Context, hub *hubapi.Hub, cluster, name string) error {
	if err := deleteWork(ctx, hub, cluster, name); err != nil || !d.force {
		return err
	}
	return releaseWork(ctx, hub, cluster, name)
}

// deleteWork deletes a ManifestWork, which goes once its agent has taken its objects off the cluster. One that is gone already is no error.
func deleteWork(ctx context.Context, hub *hubapi.Hub, cluster, name string) error {
	err := hub.Client(manifestworks.Resource).Namespace(cluster).Delete(ctx, name)
	if apierrors.IsNotFound(err) && !hubapi.NotServed(err) {
		return nil
	}
	return hub.Explain("delete work "+name+" in cluster "+cluster, err)
}

// awaitNoWork returns once a ManifestWork is gone.
func awaitNoWork(ctx context.Context, hub *hubapi.Hub, cluster, name string) error {
	works := hub.Client(manifestworks.Resource).Namespace(cluster)
	err := hubapi.UntilNone(ctx, works, hubapi.Named(name), func(*workv1.ManifestWork) bool { return true })
	return hub.Explain("delete work "+name+" in cluster "+cluster, err)
}

// releaseWork takes the finalizers off a ManifestWork, which is then deleted whatever is left on the cluster. One that is gone
// already is no error.
func releaseWork(ctx context.Context, hub *hubapi.Hub, cluster, name string) error {
	err := hub.Client(manifestworks.Resource).Namespace(cluster).MergePatch(ctx, name, []byte(`{"metadata":{"finalizers":null}}`))
	if apierrors.IsNotFound(err) && !hubapi.NotServed(err) {
		return nil
	}
	return hub.Explain("remove the finalizers of work "+name+" in cluster "+cluster, err)
}
