package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/placements"
)

// maxWeight bounds the weight of a prioritizer, below zero and above.
const maxWeight = 10

const createPlacementLong = `Create a placement, which selects clusters of the cluster sets that are bound to its namespace.

Without flags it selects all of them. A cluster has to match one of --label-selectors, which commas separate: region=eu,region=us is
either region. One in double quotes has several requirements, all of which have to match: '"region=eu,env!=test"'.
--prioritizers says which clusters are the best when --count limits their number:

  BuiltIn:NAME:WEIGHT               Balance, Steady, ResourceAllocatableCPU or ResourceAllocatableMemory
  AddOn:RESOURCE:SCORE:WEIGHT       a score of the AddOnPlacementScore RESOURCE of each cluster

WEIGHT is between -10 and 10. "capstan explain placement NAME" shows what comes of it.`

// placementCreation is one run of "capstan create placement".
type placementCreation struct {
	*options.Global
	namespace      string
	labelSelectors []string
	clusterSets    []string
	prioritizers   []string
	count          int32
	overwrite      bool
}

// NewCreatePlacementCommand is "capstan create placement".
func NewCreatePlacementCommand(global *options.Global) *cobra.Command {
	f := &placementCreation{Global: global}
	command := &cobra.Command{
		Use:   "placement NAME",
		Short: "Select clusters for what is to run on them",
		Long:  createPlacementLong,
		Example: "  capstan create placement web --namespace team-a --clustersets prod --label-selectors region=eu --count 2\n" +
			"  capstan create placement web --label-selectors '\"region=eu,env!=test\",tier in (gold,silver)'\n" +
			"  capstan create placement web --prioritizers BuiltIn:ResourceAllocatableCPU:3,AddOn:usage:free:1 --count 1 --dry-run",
		Args:              options.ExactName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the hub")
	flags.StringArrayVar(&f.labelSelectors, "label-selectors", nil,
		"labels of clusters, separated by commas or repeated, of which one has to match; in double quotes, all of them")
	flags.StringSliceVar(&f.clusterSets, "clustersets", nil, "cluster sets to choose from, bound to the namespace (default: all that are)")
	flags.StringSliceVar(&f.prioritizers, "prioritizers", nil,
		"which clusters come first, as BuiltIn:NAME:WEIGHT or AddOn:RESOURCE:SCORE:WEIGHT")
	flags.Int32Var(&f.count, "count", 0, "number of clusters to select (default: all)")
	flags.BoolVar(&f.overwrite, "overwrite", false, "replace the spec of a placement that is there already")
	options.Complete(command, "namespace", f.CompleteNamespaces)
	options.Complete(command, "clustersets", f.CompleteClusterSetList)
	command.RunE = func(command *cobra.Command, args []string) error {
		placement, err := f.placement(args[0], command.Flags().Changed("count"))
		if err != nil {
			return err
		}
		if f.DryRun {
			f.AnnounceDryRun(command)
			return f.Render(placement)
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if err := checkBound(ctx, hub, f.namespace, f.clusterSets); err != nil {
				return err
			}
			return f.create(ctx, hub, placement)
		})
	}
	return command
}

// placement is what the flags describe.
func (f *placementCreation) placement(name string, limited bool) (*clusterv1beta1.Placement, error) {
	if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
		return nil, err
	}
	p := &clusterv1beta1.Placement{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement"},
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec:       clusterv1beta1.PlacementSpec{ClusterSets: f.clusterSets},
	}
	if limited {
		if f.count < 0 {
			return nil, fmt.Errorf("--count: %d: must be 0 or more; leave it out to select all clusters", f.count)
		}
		p.Spec.NumberOfClusters = &f.count
	}
	for _, list := range f.labelSelectors {
		if n := len(splitSelectors(list)); n > 1 {
			f.Note("--label-selectors %s: %d selectors, of which a cluster has to match one", list, n)
		}
	}
	var err error
	if p.Spec.Predicates, err = parsePredicates(f.labelSelectors); err != nil {
		return nil, err
	}
	for _, text := range f.prioritizers {
		prioritizer, err := parsePrioritizer(text)
		if err != nil {
			return nil, err
		}
		p.Spec.PrioritizerPolicy.Configurations = append(p.Spec.PrioritizerPolicy.Configurations, prioritizer)
	}
	return p, nil
}

// parsePredicates reads lists of selectors as clusteradm does: each is a predicate, and a cluster has to match one of them.
func parsePredicates(lists []string) ([]clusterv1beta1.ClusterPredicate, error) {
	var predicates []clusterv1beta1.ClusterPredicate
	for _, list := range lists {
		for _, text := range splitSelectors(list) {
			selector, err := parseSelector(text)
			if err != nil {
				return nil, fmt.Errorf("--label-selectors: %q: %w; write for instance region=eu,region=us for either of them, "+
					"or '\"region=eu,env!=test\"' for both", text, err)
			}
			predicates = append(predicates, clusterv1beta1.ClusterPredicate{
				RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: *selector},
			})
		}
	}
	return predicates, nil
}

// splitSelectors splits a list of selectors at its commas, but for those in parentheses, between values, and those in double quotes,
// between requirements of one selector. It takes the quotes off.
func splitSelectors(list string) []string {
	var selectors []string
	start, quoted, enclosed := 0, false, false
	for i, c := range list {
		switch c {
		case '"':
			quoted = !quoted
		case '(', ')':
			enclosed = c == '('
		case ',':
			if !quoted && !enclosed {
				selectors, start = append(selectors, unquoted(list[start:i])), i+1
			}
		}
	}
	return append(selectors, unquoted(list[start:]))
}

func unquoted(text string) string {
	if inner, found := strings.CutPrefix(text, `"`); found && strings.HasSuffix(inner, `"`) {
		return strings.TrimSuffix(inner, `"`)
	}
	return text
}

// parseSelector reads what kubectl takes for --selector, but for the comparison of numbers, which placements do not have.
func parseSelector(text string) (*metav1.LabelSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	if len(requirements) == 0 {
		return nil, errors.New("no labels")
	}
	selector := &metav1.LabelSelector{}
	for _, r := range requirements {
		operator, known := selectorOperators[r.Operator()]
		if !known {
			return nil, fmt.Errorf("the operator %s is not among those of a placement", r.Operator())
		}
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key(), Operator: operator, Values: r.Values().List(),
		})
	}
	return selector, nil
}

var selectorOperators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals:       metav1.LabelSelectorOpIn,
	selection.DoubleEquals: metav1.LabelSelectorOpIn,
	selection.In:           metav1.LabelSelectorOpIn,
	selection.NotEquals:    metav1.LabelSelectorOpNotIn,
	selection.NotIn:        metav1.LabelSelectorOpNotIn,
	selection.Exists:       metav1.LabelSelectorOpExists,
	selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// builtInPrioritizers are those that a hub has.
var builtInPrioritizers = []string{
	clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady,
	clusterv1beta1.PrioritizerResourceAllocatableCPU, clusterv1beta1.PrioritizerResourceAllocatableMemory,
}

func parsePrioritizer(text string) (clusterv1beta1.PrioritizerConfig, error) {
	parts := strings.Split(text, ":")
	weight, err := strconv.ParseInt(parts[len(parts)-1], 10, 32)
	if err != nil || weight < -maxWeight || weight > maxWeight {
		return clusterv1beta1.PrioritizerConfig{}, fmt.Errorf("--prioritizers: %q must end in a weight between -%d and %d, such as :1", text,
			maxWeight, maxWeight)
	}
	coordinate := &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateType(parts[0])}
	switch {
	case coordinate.Type == clusterv1beta1.ScoreCoordinateTypeBuiltIn && len(parts) == 3:
		if !slices.Contains(builtInPrioritizers, parts[1]) {
			return clusterv1beta1.PrioritizerConfig{}, fmt.Errorf("--prioritizers: %q: there is no built-in prioritizer %q; use one of %s",
				text, parts[1], strings.Join(builtInPrioritizers, ", "))
		}
		coordinate.BuiltIn = parts[1]
	case coordinate.Type == clusterv1beta1.ScoreCoordinateTypeAddOn && len(parts) == 4 && parts[1] != "" && parts[2] != "":
		coordinate.AddOn = &clusterv1beta1.AddOnScore{ResourceName: parts[1], ScoreName: parts[2]}
	default:
		return clusterv1beta1.PrioritizerConfig{},
			fmt.Errorf("--prioritizers: %q is neither BuiltIn:NAME:WEIGHT nor AddOn:RESOURCE:SCORE:WEIGHT, such as BuiltIn:Balance:1", text)
	}
	return clusterv1beta1.PrioritizerConfig{ScoreCoordinate: coordinate, Weight: int32(weight)}, nil
}

// checkBound makes sure that a placement can select clusters of all these sets: the API would accept any.
func checkBound(ctx context.Context, hub *hubapi.Hub, namespace string, sets []string) error {
	var errs []error
	for _, set := range sets {
		switch err := checkBinding(ctx, hub, set, namespace); {
		case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
			errs = append(errs, fmt.Errorf("--clustersets: cluster set %s is not bound to namespace %s. Bind it first:\n  capstan clusterset bind %s "+
				"--namespace %s", set, namespace, set, namespace))
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (f *placementCreation) create(ctx context.Context, hub *hubapi.Hub, placement *clusterv1beta1.Placement) error {
	err := createPlacement(ctx, hub, placement)
	switch {
	case err == nil:
		f.Say("Placement '%s' has been created in '%s' namespace", placement.Name, placement.Namespace)
		return nil
	case apierrors.IsAlreadyExists(err) && f.overwrite:
		if err := updatePlacement(ctx, hub, placement.Namespace, placement.Name, placement.Spec); err != nil {
			return err
		}
		f.Say("Placement '%s' has been updated in '%s' namespace", placement.Name, placement.Namespace)
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("placement %s in namespace %s already exists: replace it with --overwrite, or choose another name", placement.Name,
			placement.Namespace)
	case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
		return fmt.Errorf("--namespace: the hub has no namespace %q: \"kubectl create namespace %s\" makes it: %w", placement.Namespace,
			placement.Namespace, err)
	default:
		return err
	}
}

// checkBinding fails with NotFound when a set is not bound to a namespace.
func checkBinding(ctx context.Context, hub *hubapi.Hub, set, namespace string) error {
	err := hub.Client(managedclustersets.Bindings).Namespace(namespace).Get(ctx, set, nil)
	return hub.Explain("look for the binding of cluster set "+set+" to namespace "+namespace, err)
}

// createPlacement creates a Placement.
func createPlacement(ctx context.Context, hub *hubapi.Hub, placement *clusterv1beta1.Placement) error {
	err := hub.Client(placements.Resource).Namespace(placement.Namespace).Create(ctx, placement, nil)
	return hub.Explain("create placement "+placement.Name+" in namespace "+placement.Namespace, err)
}

// updatePlacement replaces the spec of a Placement and leaves the rest of it as it is.
func updatePlacement(ctx context.Context, hub *hubapi.Hub, namespace, name string, spec clusterv1beta1.PlacementSpec) error {
	err := hubapi.Change(ctx, hub.Client(placements.Resource).Namespace(namespace), name, func(live *clusterv1beta1.Placement) (bool, error) {
		live.Spec = spec
		return true, nil
	})
	return hub.Explain("update placement "+name+" in namespace "+namespace, err)
}
