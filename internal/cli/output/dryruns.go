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

// DryRun is what a cluster says would become of a work there.
type DryRun struct {
	Work    string `json:"work"`
	Cluster string `json:"cluster"`
	// Message sums it up.
	Message   string           `json:"message"`
	Manifests []DryRunManifest `json:"manifests"`
}

// DryRunManifest is what would become of one object.
type DryRunManifest struct {
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
func (d *DryRun) Count(result string) int {
	n := 0
	for i := range d.Manifests {
		if d.Manifests[i].Result == result {
			n++
		}
	}
	return n
}

// Differs reports whether the cluster is not as the work would have it.
func (d *DryRun) Differs() bool { return d.Count(fleet.ReasonWouldNotChange) < len(d.Manifests) }

func (m *DryRunManifest) subject() string {
	if m.Namespace == "" {
		return m.Kind + " " + m.Name
	}
	return m.Kind + " " + m.Namespace + "/" + m.Name
}

// resultTexts are the results in words.
var resultTexts = map[string]string{
	fleet.ReasonWouldCreate:    "would be created",
	fleet.ReasonWouldChange:    "would change",
	fleet.ReasonWouldNotChange: "would not change",
	fleet.ReasonWouldFail:      "would fail",
	fleet.ReasonCannotBeTried:  "cannot be tried",
	ReasonWouldDelete:          "would be deleted",
	ReasonWouldOrphan:          "would be left to the cluster",
}

// details is the message where it says more than the result.
func (m *DryRunManifest) details() string {
	if m.Result == fleet.ReasonWouldCreate || m.Result == fleet.ReasonWouldNotChange {
		return ""
	}
	return m.Message
}

func (m *DryRunManifest) resultCell() Cell {
	return Cell{Text: resultTexts[m.Result], Bad: m.Result == fleet.ReasonWouldFail || m.Result == ReasonWouldDelete}
}

// DryRuns shows what clusters say would become of works there.
func DryRuns(dryRuns []DryRun) View {
	return View{
		Object: dryRuns,
		Grid:   func() Grid { return dryRunGrid(dryRuns) },
		Root:   func() Node { return dryRunTree(dryRuns) },
	}
}

func dryRunGrid(dryRuns []DryRun) Grid {
	grid := Grid{Header: []string{"Cluster", "Work", "Object", "Result", "Details"}}
	for i := range dryRuns {
		d := &dryRuns[i]
		for j := range d.Manifests {
			m := &d.Manifests[j]
			grid.Rows = append(grid.Rows, []Cell{Plain(d.Cluster), Plain(d.Work), Plain(m.subject()), m.resultCell(), Plain(m.details())})
		}
	}
	return grid
}

// dryRunTree has one line for each field that would change.
func dryRunTree(dryRuns []DryRun) Node {
	root := Node{Key: "Clusters", Value: count(len(dryRuns))}
	for i := range dryRuns {
		d := &dryRuns[i]
		cluster := Node{Key: d.Cluster, Value: Plain(d.summary())}
		for j := range d.Manifests {
			m := &d.Manifests[j]
			node := Leaf(m.subject(), m.resultCell())
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
func (d *DryRun) summary() string {
	var parts []string
	for _, result := range []string{
		fleet.ReasonWouldCreate, fleet.ReasonWouldChange, ReasonWouldDelete, ReasonWouldOrphan, fleet.ReasonWouldNotChange,
		fleet.ReasonWouldFail, fleet.ReasonCannotBeTried,
	} {
		if n := d.Count(result); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, resultTexts[result]))
		}
	}
	return strings.Join(parts, ", ")
}
