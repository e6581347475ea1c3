package output

// ClusterHealth is whether the API of a cluster can be reached through the hub.
type ClusterHealth struct {
	Cluster string `json:"clusterName"`
	// Installed says whether the add-on that connects the cluster is installed.
	Installed bool `json:"installed"`
	// Available is the status of the condition of that add-on: True, False or Unknown.
	Available string `json:"available"`
	// Healthy is the answer of the cluster: True or False; empty if it was not probed.
	Healthy string `json:"probedHealth,omitempty"`
	// Latency of the answer.
	Latency string `json:"latency,omitempty"`
	// Reason is why it is not healthy.
	Reason string `json:"reason,omitempty"`
}

// ClusterHealths shows them.
func ClusterHealths(clusters []ClusterHealth) View {
	return View{
		Object: clusters,
		Grid: func() Grid {
			grid := Grid{Header: []string{"Cluster Name", "Installed", "Available", "Probed Health", "Latency"}}
			for i := range clusters {
				c := &clusters[i]
				grid.Rows = append(grid.Rows, []Cell{
					Plain(c.Cluster), boolCell(c.Installed), probeCell(c.Available), probeCell(c.Healthy), Plain(c.Latency),
				})
			}
			return grid
		},
	}
}

func boolCell(b bool) Cell {
	if b {
		return Plain("True")
	}
	return Plain("False")
}

// probeCell is bad news, unless it is True, or empty because nothing was probed.
func probeCell(status string) Cell { return Cell{Text: status, Bad: status != "" && status != "True"} }
