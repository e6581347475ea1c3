package output

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-io/capstan/internal/cli/components"
)

// HubInfo shows what a hub consists of.
func HubInfo(info *components.HubInfo) View {
	return View{Object: info, Root: func() Node { return hubInfoTree(info) }}
}

func hubInfoTree(info *components.HubInfo) Node {
	root := Node{Key: "Hub", Value: Plain("in a Kubernetes cluster")}
	inside := ""
	if info.Standalone != nil {
		root.Value = Plain("standalone, version " + info.Standalone.Version)
		inside = "in the process of the hub"
	}
	components := Node{Key: "Components"}
	for i := range info.Components {
		components.Children = append(components.Children, componentNode(&info.Components[i], inside))
	}
	root.Children = []Node{componentNode(&info.Operator, inside), components}
	if len(info.FeatureGates) > 0 {
		gates := Node{Key: "FeatureGates"}
		for _, name := range slices.Sorted(maps.Keys(info.FeatureGates)) {
			gates.Children = append(gates.Children, Leaf(name, Plain(strconv.FormatBool(info.FeatureGates[name]))))
		}
		root.Children = append(root.Children, gates)
	}
	return root
}

func componentNode(component *components.Component, inside string) Node {
	node := Node{Key: component.Name, Children: []Node{Leaf("Controller", runningCell(component.Controller, inside))}}
	if component.Webhook != nil {
		node.Children = append(node.Children, Leaf("Webhook", runningCell(component.Webhook, inside)))
	}
	definitions := Node{Key: "CustomResourceDefinitions"}
	for _, crd := range component.CRDs {
		definitions.Children = append(definitions.Children, Leaf(crd.Name, crdCell(crd)))
	}
	node.Children = append(node.Children, definitions)
	return node
}

// runningCell says what runs. What is not there is no bad news: a hub need not have all parts, and a part need not be a Deployment.
func runningCell(running *components.Running, inside string) Cell {
	switch {
	case running == nil:
		return Plain("none found")
	case running.Deployment != "":
		return Cell{Text: fmt.Sprintf("(%d/%d) %s", running.Available, running.Desired, running.Image), Bad: running.Available < running.Desired}
	case running.Holder != "":
		return Plain("process " + running.Holder)
	default:
		return Plain(inside)
	}
}

// crdCell lists the versions that are served; the one that is stored has a star.
func crdCell(crd components.CRD) Cell {
	if !crd.Installed {
		return Cell{Text: "absent", Bad: true}
	}
	versions := slices.Clone(crd.Versions)
	for i, version := range versions {
		if version == crd.Storage {
			versions[i] = "*" + version
		}
	}
	return Plain("installed [" + strings.Join(versions, " ") + "]")
}
