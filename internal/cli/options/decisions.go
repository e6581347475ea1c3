package options

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/placements"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// maxConcurrentReads bounds of how many clusters of decisions there are requests at the same time.
const maxConcurrentReads = 10

// Decisions are what a placement has selected.
type Decisions struct {
	// Clusters are those that the decisions name, each once, whether or not they count.
	Clusters []string
	// Settled says that none of the clusters is missing because a scheduler has not written it yet.
	Settled bool

	placement types.NamespacedName
}

// ReadDecisions reads what a placement has selected. One that has not been decided on is an error: where works should be is not known.
func ReadDecisions(ctx context.Context, hub *hubapi.Hub, ref types.NamespacedName) (*Decisions, error) {
	placement, err := placements.Get(ctx, hub, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	list, err := placements.Decisions(ctx, hub, ref.Namespace)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(list.Items, func(d clusterv1beta1.PlacementDecision) bool { return !belongsTo(&d, placement) })
	if !decided.All(placement, own) {
		return nil, fmt.Errorf("placement %s has not been decided on yet: \"capstan explain placement %s --namespace %s\" shows why", ref,
			ref.Name, ref.Namespace)
	}
	d := &Decisions{placement: ref}
	seen := map[string]bool{}
	for i := range own {
		for _, one := range own[i].Status.Decisions {
			if !seen[one.ClusterName] {
				seen[one.ClusterName] = true
				d.Clusters = append(d.Clusters, one.ClusterName)
			}
		}
	}
	d.Settled = settled(placement, len(d.Clusters))
	return d, nil
}

// belongsTo reports whether a decision is one of the placement, and not of one of that name which is gone. Who decides instead of the hub
// writes the label alone.
func belongsTo(d *clusterv1beta1.PlacementDecision, placement *clusterv1beta1.Placement) bool {
	controller := metav1.GetControllerOfNoCopy(d)
	return d.Labels[fleet.LabelPlacement] == fleet.LabelValue(placement.Name) && (controller == nil || controller.UID == placement.UID)
}

// settled reports whether a placement says of its present spec that it selects so many clusters. A scheduler writes that after the
// decisions, that of Open Cluster Management without the generation. Of a placement that others decide on, nobody writes it.
func settled(placement *clusterv1beta1.Placement, clusters int) bool {
	if placement.Annotations[fleet.AnnotationSchedulingDisable] == fleet.LabelTrue {
		return true
	}
	satisfied := meta.FindStatusCondition(placement.Status.Conditions, fleet.ConditionPlacementSatisfied)
	return satisfied != nil && (satisfied.ObservedGeneration == 0 || satisfied.ObservedGeneration == placement.Generation) &&
		clusters == int(placement.Status.NumberOfSelectedClusters)
}

// Eligible are the clusters of decisions that count, by the rules of the hub, since who may write decisions may name any cluster. It warns
// of the others, which it returns, too, and fails if the user may not see which they are.
func (g *Global) Eligible(ctx context.Context, hub *hubapi.Hub, d *Decisions) ([]string, decided.PassedOver, error) {
	r, err := g.review(ctx, hub, d)
	switch {
	case err != nil:
		return nil, nil, err
	case r.refused != nil:
		return nil, nil, fmt.Errorf("placement %s: to deliver to the clusters of its decisions takes %s: %w", d.placement, d.rights(), r.refused)
	}
	return r.eligible, r.passedOver, nil
}

// EligibleToRead is Eligible for commands that bring nothing to the clusters: it only warns of those that the user may not check, which are
// eligible, too. None is an error.
func (g *Global) EligibleToRead(ctx context.Context, hub *hubapi.Hub, d *Decisions) ([]string, error) {
	r, err := g.review(ctx, hub, d)
	if err != nil {
		return nil, err
	}
	if r.refused != nil {
		g.Note("Warning: placement %s: whether its decisions count was not checked for %s: that takes %s.", d.placement,
			text.FirstFew(r.unchecked), d.rights())
	}
	clusters := slices.DeleteFunc(slices.Clone(d.Clusters), func(cluster string) bool { return r.passedOver[cluster] != "" })
	if len(clusters) == 0 {
		return nil, d.SelectsNone(r.passedOver)
	}
	return clusters, nil
}

// SelectsNone is the error for decisions without a cluster that counts.
func (d *Decisions) SelectsNone(passedOver decided.PassedOver) error {
	but := ""
	if len(passedOver) > 0 {
		but = " that count, with " + passedOver.String()
	}
	return fmt.Errorf("placement %s selects no clusters%s: \"capstan explain placement %s --namespace %s\" shows why", d.placement, but,
		d.placement.Name, d.placement.Namespace)
}

// rights are those that it takes to see which decisions count.
func (d *Decisions) rights() string {
	return fmt.Sprintf("the rights to list managedclustersetbindings in namespace %s, and to get managedclustersets and managedclusters",
		d.placement.Namespace)
}

// review is which clusters of decisions count.
type review struct {
	eligible   []string
	passedOver decided.PassedOver
	// unchecked are those that the user may not check, because of the error.
	unchecked []string
	refused   error
}

// review checks the clusters of decisions, and warns of those that do not count.
func (g *Global) review(ctx context.Context, hub *hubapi.Hub, d *Decisions) (*review, error) {
	r := &review{passedOver: decided.PassedOver{}}
	if len(d.Clusters) == 0 {
		return r, nil
	}
	sets, err := managedclustersets.BoundTo(ctx, hub, d.placement.Namespace)
	if apierrors.IsForbidden(err) {
		r.unchecked, r.refused = d.Clusters, err
		return r, nil
	}
	if err != nil {
		return r, err
	}
	reasons := make([]string, len(d.Clusters))
	errs := make([]error, len(d.Clusters))
	var group errgroup.Group
	group.SetLimit(maxConcurrentReads)
	for i, cluster := range d.Clusters {
		group.Go(func() error {
			reasons[i], errs[i] = whyPassedOver(ctx, hub, cluster, d.placement.Namespace, sets)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs, in the order of the clusters
	for i, cluster := range d.Clusters {
		switch {
		case apierrors.IsForbidden(errs[i]):
			r.unchecked, r.refused, errs[i] = append(r.unchecked, cluster), cmp.Or(r.refused, errs[i]), nil
		case reasons[i] != "":
			r.passedOver[cluster] = reasons[i]
		default:
			r.eligible = append(r.eligible, cluster)
		}
	}
	if len(r.passedOver) > 0 {
		g.Note("Warning: placement %s: %s.", d.placement, r.passedOver)
	}
	return r, errors.Join(errs...)
}

func whyPassedOver(ctx context.Context, hub *hubapi.Hub, name, namespace string, sets []labels.Selector) (string, error) {
	cluster, err := managedclusters.Get(ctx, hub, name)
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
		return decided.WhyPassedOver(nil, namespace, sets), nil
	case err != nil:
		return "", err
	}
	return decided.WhyPassedOver(cluster, namespace, sets), nil
}
