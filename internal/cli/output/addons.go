package output

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

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

// installations are those of each add-on, in the order of their clusters.
func (a AddOns) installations() map[string][]*addonv1alpha1.ManagedClusterAddOn {
	of := map[string][]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range a.Installed {
		of[a.Installed[i].Name] = append(of[a.Installed[i].Name], &a.Installed[i])
	}
	for _, found := range of {
		slices.SortFunc(found, func(x, y *addonv1alpha1.ManagedClusterAddOn) int { return strings.Compare(x.Namespace, y.Namespace) })
	}
	return of
}

func (a AddOns) grid() Grid {
	grid := Grid{Header: []string{"Name", "InstalledClusters"}}
	installations := a.installations()
	for _, name := range a.Names {
		grid.Rows = append(grid.Rows, []Cell{Plain(name), Plain(strconv.Itoa(len(installations[name])))})
	}
	return grid
}

// addOnConditions are those that say how an installation is.
var addOnConditions = []string{fleet.ConditionAvailable, fleet.ConditionManifestApplied, fleet.ConditionRegistrationApplied}

func (a AddOns) tree() Node {
	root := Node{Key: "ManagedClusterAddOns", Value: count(len(a.Names))}
	installations, works := a.installations(), a.works()
	for _, name := range a.Names {
		addOn := Node{Key: name}
		for _, installed := range installations[name] {
			cluster := Node{Key: installed.Namespace}
			for _, kind := range addOnConditions {
				cluster.Children = append(cluster.Children, Leaf(kind, conditionWithReason(installed.Status.Conditions, kind)))
			}
			key := types.NamespacedName{Namespace: installed.Namespace, Name: installed.Name}
			if nodes := workNodes(installed.Namespace, works[key]); len(nodes) > 0 {
				cluster.Children = append(cluster.Children, Node{Key: "ManifestWorks", Children: nodes})
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

// works are the works with which each add-on is installed. Those on a hosting cluster name the managed one. What a user has labelled like
// one, as for a ManifestWorkReplicaSet, is none.
func (a AddOns) works() map[types.NamespacedName][]*workv1.ManifestWork {
	of := map[types.NamespacedName][]*workv1.ManifestWork{}
	for i := range a.Works {
		if addOn, ok := ownership.Of(&a.Works[i]); ok {
			of[addOn] = append(of[addOn], &a.Works[i])
		}
	}
	return of
}

// workNodes show the works of an installation on a cluster.
func workNodes(cluster string, works []*workv1.ManifestWork) []Node {
	var nodes []Node
	for _, w := range works {
		key := w.Name
		if w.Namespace != cluster {
			key = fmt.Sprintf("%s (on %s)", w.Name, w.Namespace)
		}
		nodes = append(nodes, Node{Key: key, Children: resourceNodes(w.Status.ResourceStatus.Manifests)})
	}
	return nodes
}
