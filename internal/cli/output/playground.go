package output

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capstan-io/capstan/internal/cli/playground"
)

// PlaygroundProcesses shows the processes of a playground.
func PlaygroundProcesses(status playground.Status, now time.Time) Grid {
	grid := Grid{Header: []string{"Process", "State", "PID", "Memory", "Uptime", "Endpoint", "Log"}}
	for _, process := range status.Processes {
		row := []Cell{
			Plain(process.Name), {Text: "stopped", Bad: true}, Plain(""), Plain(""), Plain(""),
			Plain(process.Endpoint), Plain(process.Log),
		}
		if process.Running {
			row[1] = Plain("running")
			row[2] = Plain(strconv.Itoa(process.PID))
			row[3] = Plain(mebibytes(process.RSSBytes))
			row[4] = Plain(duration.HumanDuration(now.Sub(*process.StartedAt)))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid
}

// PlaygroundClusters shows the clusters of a playground and how far they have come.
func PlaygroundClusters(status playground.Status) Grid {
	grid := Grid{Header: []string{"Cluster", "Accepted", "Joined", "Available"}}
	for _, cluster := range status.Clusters {
		accepted := metav1.ConditionFalse
		if cluster.Accepted {
			accepted = metav1.ConditionTrue
		}
		grid.Rows = append(grid.Rows, []Cell{
			Plain(cluster.Name), statusCell(accepted), statusCell(cluster.Joined), statusCell(cluster.Available),
		})
	}
	return grid
}

// PlaygroundWorks shows the works of a playground.
func PlaygroundWorks(status playground.Status) Grid {
	grid := Grid{Header: []string{"Work", "Cluster", "Manifests", "Applied", "Available"}}
	for _, work := range status.Works {
		grid.Rows = append(grid.Rows, []Cell{
			Plain(work.Name), Plain(work.Cluster), Plain(strconv.Itoa(work.Manifests)),
			statusCell(work.Applied), statusCell(work.Available),
		})
	}
	return grid
}

func statusCell(status metav1.ConditionStatus) Cell {
	return Cell{Text: string(status), Bad: status != metav1.ConditionTrue}
}

func mebibytes(bytes uint64) string { return strconv.FormatUint(bytes>>20, 10) + "Mi" }
