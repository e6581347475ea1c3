package output

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/components"
)

// KlusterletInfo shows what the agents in a cluster consist of.
func KlusterletInfo(info *components.KlusterletInfo) View {
	return View{Object: info, Root: func() Node { return klusterletInfoTree(info) }}
}

func klusterletInfoTree(info *components.KlusterletInfo) Node {
	definitions := Node{Key: "CustomResourceDefinitions"}
	for _, crd := range info.CRDs {
		definitions.Children = append(definitions.Children, Leaf(crd.Name, crdCell(crd)))
	}
	agents := Node{Key: "Klusterlets"}
	for i := range info.Klusterlets {
		agents.Children = append(agents.Children, klusterletNode(&info.Klusterlets[i]))
	}
	if len(info.Klusterlets) == 0 {
		agents.Value = Plain("none found")
	}
	operator := Node{Key: "Registration Operator", Children: []Node{Leaf("Controller", runningCell(info.Operator, "")), definitions}}
	return Node{Key: "Cluster", Children: []Node{operator, agents}}
}

func klusterletNode(klusterlet *components.Klusterlet) Node {
	components := Node{Key: "Components"}
	for i := range klusterlet.Components {
		running := &klusterlet.Components[i]
		name := running.Deployment[strings.Index(running.Deployment, "/")+1:]
		components.Children = append(components.Children, Leaf(name, runningCell(running, "")))
	}
	conditions := Node{Key: "Conditions"}
	for i := range klusterlet.Conditions {
		conditions.Children = append(conditions.Children, Leaf(klusterlet.Conditions[i].Type, conditionCell(&klusterlet.Conditions[i])))
	}
	return Node{Key: klusterlet.Name, Children: []Node{
		Leaf("ClusterName", Plain(klusterlet.ClusterName)), Leaf("Mode", Plain(klusterlet.Mode)), Leaf("Namespace", Plain(klusterlet.Namespace)),
		components, conditions,
	}}
}

// conditionCell is bad news where a condition that says what is wrong is true, or another one is not.
func conditionCell(condition *metav1.Condition) Cell {
	good := metav1.ConditionTrue
	if strings.HasSuffix(condition.Type, "Degraded") {
		good = metav1.ConditionFalse
	}
	text := fmt.Sprintf("%s (%s)", condition.Status, condition.Reason)
	if condition.Status != good && condition.Message != "" {
		text += ": " + condition.Message
	}
	return Cell{Text: text, Bad: condition.Status != good}
}
