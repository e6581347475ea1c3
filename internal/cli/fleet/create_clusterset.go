package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/options"
)

const createClusterSetLong = `Create cluster sets without any clusters.

"capstan clusterset set" puts clusters into one, "capstan clusterset bind" lets a namespace place on them.`

// clusterSetCreation is one run of "capstan create clusterset".
type clusterSetCreation struct{ *options.Global }

// NewCreateClusterSetCommand is "capstan create clusterset".
func NewCreateClusterSetCommand(global *options.Global) *cobra.Command {
	c := &clusterSetCreation{Global: global}
	return &cobra.Command{
		Use:               "clusterset NAME...",
		Short:             "Create cluster sets",
		Long:              createClusterSetLong,
		Example:           "  capstan create clusterset prod\n  capstan create clusterset prod staging --dry-run",
		Args:              clusterSetNames,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, names []string) error {
			if c.DryRun {
				c.AnnounceDryRun(command)
				return c.showPlan(names)
			}
			return c.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
				return c.createAll(ctx, hub, names)
			})
		},
	}
}

// clusterSetNames accepts one or more names of cluster sets.
func clusterSetNames(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("NAME is missing: %s", command.UseLine())
	}
	for _, name := range args {
		if err := checkClusterSetName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkClusterSetName says what is wrong with the name of a cluster set: it is the name of an object, and the value of a
// label of the clusters in it, too.
func checkClusterSetName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) == 0 && len(validation.IsValidLabelValue(name)) == 0 {
		return nil
	}
	return fmt.Errorf("NAME: %q is no name of a cluster set: small letters, digits, dashes and dots, a letter or digit at both ends, and at most %d "+
		"characters, such as prod",
		name, validation.LabelValueMaxLength)
}

func (c *clusterSetCreation) showPlan(names []string) error {
	for _, name := range names {
		if err := c.Render(newClusterSet(name)); err != nil {
			return err
		}
	}
	return nil
}

func (c *clusterSetCreation) createAll(ctx context.Context, hub *hubapi.Hub, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, c.create(ctx, hub, name))
	}
	return errors.Join(errs...)
}

func (c *clusterSetCreation) create(ctx context.Context, hub *hubapi.Hub, name string) error {
	err := createClusterSet(ctx, hub, newClusterSet(name))
	switch {
	case err == nil:
		c.Say("Clusterset %s is created", name)
		return nil
	case apierrors.IsAlreadyExists(err):
		c.Say("Clusterset %s is already created", name)
		return nil
	default:
		return err
	}
}

func newClusterSet(name string) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1beta2.ManagedClusterSetSpec{
			ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.ExclusiveClusterSetLabel},
		},
	}
}

const deleteClusterSetLong = `Delete cluster sets, and wait until they are gone.

A set that is bound to a namespace is not deleted: "capstan clusterset unbind" takes the binding away. The clusters of a
deleted set keep its label, and are in no such set until "capstan clusterset set" puts them into another.`

// clusterSetDeletion is one run of "capstan delete clusterset".
type clusterSetDeletion struct{ *options.Global }

// NewDeleteClusterSetCommand is "capstan delete clusterset".
func NewDeleteClusterSetCommand(global *options.Global) *cobra.Command {
	d := &clusterSetDeletion{Global: global}
	return &cobra.Command{
		Use:               "clusterset NAME...",
		Short:             "Delete cluster sets",
		Long:              deleteClusterSetLong,
		Example:           "  capstan delete clusterset prod",
		Args:              clusterSetNames,
		ValidArgsFunction: d.CompleteClusterSets,
		RunE: func(command *cobra.Command, names []string) error {
			for _, name := range names {
				if permanentClusterSet(name) {
					return fmt.Errorf("cluster set %s is one that every hub has, and cannot be deleted: the hub would create it again", name)
				}
			}
			return d.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
				return d.deleteAll(ctx, hub, names)
			})
		},
	}
}

// deleteAll deletes those that can be deleted, waits for all of them at the same time, and fails if that was not all.
func (d *clusterSetDeletion) deleteAll(ctx context.Context, hub *hubapi.Hub, names []string) error {
	of, err := clusterSetContext(ctx, hub)
	if err != nil {
		return err
	}
	sets := make([]*clusterv1beta2.ManagedClusterSet, len(names)) // nil for those that are not deleted
	errs := make([]error, len(names))
	for i, name := range names {
		set, err := managedclustersets.Get(ctx, hub, name)
		if err == nil {
			err = d.delete(ctx, hub, name, of.BoundNamespaces(name))
		}
		if errs[i] = err; err == nil {
			sets[i] = set
		}
	}
	if d.DryRun {
		return errors.Join(errs...)
	}
	var group errgroup.Group
	for i, set := range sets {
		if set != nil {
			group.Go(func() error {
				errs[i] = awaitClusterSetGone(ctx, hub, set.Name)
				return nil
			})
		}
	}
	_ = group.Wait() // the errors are in errs, in the order of the names
	for i, set := range sets {
		if set != nil && errs[i] == nil {
			d.printDeleted(set, of.Members(set))
		}
	}
	return errors.Join(errs...)
}

func boundError(set string, namespaces []string) error {
	unbind := make([]string, len(namespaces))
	for i, namespace := range namespaces {
		unbind[i] = fmt.Sprintf("\n  capstan clusterset unbind %s --namespace %s", set, namespace)
	}
	return fmt.Errorf("cluster set %s is bound to namespaces, whose placements would lose its clusters. Unbind it first:%s", set,
		strings.Join(unbind, ""))
}

// delete deletes a set that is bound to no namespace. It does not wait until it is gone.
func (d *clusterSetDeletion) delete(ctx context.Context, hub *hubapi.Hub, name string, bound []string) error {
	if len(bound) > 0 {
		return boundError(name, bound)
	}
	if d.DryRun {
		d.Say("would delete Clusterset %s", name)
		return nil
	}
	return hub.Explain("delete cluster set "+name, hub.Client(managedclustersets.Resource).Delete(ctx, name))
}

func (d *clusterSetDeletion) printDeleted(set *clusterv1beta2.ManagedClusterSet, members []string) {
	d.Say("Clusterset %s is deleted", set.Name)
	if len(members) > 0 && set.Spec.ClusterSelector.SelectorType != clusterv1beta2.LabelSelector {
		d.Note("Its clusters keep its label, and are in no such set now. This puts them into the default one:\n  capstan clusterset set default --clusters %s",
			strings.Join(members, ","))
	}
}

// createClusterSet creates a cluster set.
func createClusterSet(ctx context.Context, hub *hubapi.Hub, set *clusterv1beta2.ManagedClusterSet) error {
	err := hub.Client(managedclustersets.Resource).Create(ctx, set, nil)
	return hub.Explain("create cluster set "+set.Name, err)
}

// awaitClusterSetGone returns once a cluster set that is deleted is gone.
func awaitClusterSetGone(ctx context.Context, hub *hubapi.Hub, name string) error {
	err := hubapi.UntilNone(ctx, hub.Client(managedclustersets.Resource), hubapi.Named(name),
		func(*clusterv1beta2.ManagedClusterSet) bool { return true })
	return hub.Explain("delete cluster set "+name, err)
}
