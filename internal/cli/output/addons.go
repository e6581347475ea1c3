package output

import (
	"fmt"
	"slices"
	"strings"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AddOns are the add-ons of a hub. Names are those to show, whether they are installed anywhere or not.
type AddOns struct {
	Names     []string
	Installed []addonv1alpha1.ManagedClusterAddOn
	Works     []workv1.ManifestWork
}

// View shows the add-ons. Object is what YAML and JSON show: the installations.
func (a AddOns) View(object any) View {
	return View{
		Object: object,
		Grid:   a.grid,
		Root:   a.tree,
		Names:  namesOf("managedclusteraddon.addon.open-cluster-management.io", a.Installed),
	}
}

// installations are those of an add-on, by cluster.
func (a AddOns) installations(name string) []*addonv1alpha1.ManagedClusterAddOn {
	var found []*addonv1alpha1.ManagedClusterAddOn
	for i := range a.Installed {
		if a.Installed[i].Name == name {
			found = append(found, &a.Installed[i])
		}
	}
	slices.SortFunc(found, func(x, y *addonv1alpha1.ManagedClusterAddOn) int { return strings.Compare(x.Namespace, y.Namespace) })
	return found
}

func (a AddOns) grid() Grid {
	grid := Grid{Header: []string{"Name", "InstalledClusters"}}
	for _, name := range a.Names {
		var clusters []string
		for _, installed := range a.installations(name) {
			clusters = append(clusters, installed.Namespace)
		}
		grid.Rows = append(grid.Rows, []Cell{Plain(name), Plain(someOf(clusters))})
	}
	return grid
}

// addOnConditions are those that say how an installation is.
var addOnConditions = []string{fleet.ConditionAvailable, fleet.ConditionManifestApplied, fleet.ConditionRegistrationApplied}

func (a AddOns) tree() Node {
	root := Node{Key: "ManagedClusterAddOns", Value: count(len(a.Names))}
	for _, name := range a.Names {
		addOn := Node{Key: name}
		for _, installed := range a.installations(name) {
			cluster := Node{Key: installed.Namespace}
			for _, kind := range addOnConditions {
				cluster.Children = append(cluster.Children, Leaf(kind, conditionWithReason(installed.Status.Conditions, kind)))
			}
			if works := a.worksOf(installed); len(works) > 0 {
				cluster.Children = append(cluster.Children, Node{Key: "ManifestWorks", Children: works})
			}
			addOn.Children = append(addOn.Children, cluster)
		}
		if len(addOn.Children) == 0 {
			addOn.Value = Plain("on no cluster")
		}
		root.Children = append(root.Children, addOn)
	}
	return root
}

// worksOf are the works with which an add-on is installed. Those on a hosting cluster name the managed one. What a user has labelled like
// one, as for a ManifestWorkReplicaSet, is none.
func (a AddOns) worksOf(installed *addonv1alpha1.ManagedClusterAddOn) []Node {
	var nodes []Node
	for i := range a.Works {
		w := &a.Works[i]
		if of, ok := ownership.Of(w); !ok || of.Name != installed.Name || of.Namespace != installed.Namespace {
			continue
		}
		key := w.Name
		if w.Namespace != installed.Namespace {
			key = fmt.Sprintf("%s (on %s)", w.Name, w.Namespace)
		}
		nodes = append(nodes, Node{Key: key, Children: resourceNodes(w.Status.ResourceStatus.Manifests)})
	}
	return nodes
}
