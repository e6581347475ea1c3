package output

import (
	"fmt"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// What would become of objects that a work does not name any more. The agent has the other reasons.
const (
	ReasonWouldDelete = "WouldDelete"
	ReasonWouldOrphan = "WouldOrphan"
)

// Trial is what a cluster says would become of a work there.
type Trial struct {
	Work    string `json:"work"`
	Cluster string `json:"cluster"`
	// Message sums it up.
	Message   string          `json:"message"`
	Manifests []TriedManifest `json:"manifests"`
}

// TriedManifest is what would become of one object.
type TriedManifest struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is one of the reasons of the condition DryRun, or of those above.
	Result string `json:"result"`
	// Message says which fields would change, or why it would fail.
	Message string `json:"message,omitempty"`
}

// Count is how many manifests have a result.
func (t *Trial) Count(result string) int {
	n := 0
	for i := range t.Manifests {
		if t.Manifests[i].Result == result {
			n++
		}
	}
	return n
}

// Differs tells whether the cluster is not as the work would have it.
func (t *Trial) Differs() bool { return t.Count(fleet.ReasonWouldNotChange) < len(t.Manifests) }

func (m *TriedManifest) subject() string {
	if m.Namespace == "" {
		return m.Kind + " " + m.Name
	}
	return m.Kind + " " + m.Namespace + "/" + m.Name
}

// verdicts are the results in words.
var verdicts = map[string]string{
	fleet.ReasonWouldCreate:    "would be created",
	fleet.ReasonWouldChange:    "would change",
	fleet.ReasonWouldNotChange: "would not change",
	fleet.ReasonWouldFail:      "would fail",
	fleet.ReasonCannotBeTried:  "cannot be tried",
	ReasonWouldDelete:          "would be deleted",
	ReasonWouldOrphan:          "would be left to the cluster",
}

// details is the message where it says more than the result.
func (m *TriedManifest) details() string {
	if m.Result == fleet.ReasonWouldCreate || m.Result == fleet.ReasonWouldNotChange {
		return ""
	}
	return m.Message
}

func (m *TriedManifest) verdict() Cell {
	return Cell{Text: verdicts[m.Result], Bad: m.Result == fleet.ReasonWouldFail || m.Result == ReasonWouldDelete}
}

// Trials shows what clusters say would become of works there.
func Trials(trials []Trial) View {
	return View{
		Object: trials,
		Grid:   func() Grid { return trialGrid(trials) },
		Root:   func() Node { return trialTree(trials) },
	}
}

func trialGrid(trials []Trial) Grid {
	grid := Grid{Header: []string{"Cluster", "Work", "Object", "Result", "Details"}}
	for i := range trials {
		t := &trials[i]
		for j := range t.Manifests {
			m := &t.Manifests[j]
			grid.Rows = append(grid.Rows, []Cell{Plain(t.Cluster), Plain(t.Work), Plain(m.subject()), m.verdict(), Plain(m.details())})
		}
	}
	return grid
}

// trialTree has one line for each field that would change.
func trialTree(trials []Trial) Node {
	root := Node{Key: "Clusters", Value: count(len(trials))}
	for i := range trials {
		t := &trials[i]
		cluster := Node{Key: t.Cluster, Value: Plain(t.summary())}
		for j := range t.Manifests {
			m := &t.Manifests[j]
			node := Leaf(m.subject(), m.verdict())
			switch details := m.details(); {
			case details == "":
			case m.Result == fleet.ReasonWouldChange:
				for _, change := range strings.Split(details, "; ") {
					node.Children = append(node.Children, Node{Key: change})
				}
			default:
				node.Value.Text += " (" + details + ")"
			}
			cluster.Children = append(cluster.Children, node)
		}
		root.Children = append(root.Children, cluster)
	}
	return root
}

// summary counts the results, those that there are.
func (t *Trial) summary() string {
	var parts []string
	for _, result := range []string{
		fleet.ReasonWouldCreate, fleet.ReasonWouldChange, ReasonWouldDelete, ReasonWouldOrphan, fleet.ReasonWouldNotChange,
		fleet.ReasonWouldFail, fleet.ReasonCannotBeTried,
	} {
		if n := t.Count(result); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verdicts[result]))
		}
	}
	return strings.Join(parts, ", ")
}
