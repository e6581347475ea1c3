package output

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/capstan-io/capstan/internal/placement/report"
)

// mostUnselected is how many clusters that were not selected are listed: the best of thousands are enough to see why.
const mostUnselected = 10

// Explanation is a report for people: how many clusters each step left, the scores of those selected and of the next best, and
// why the others were not selected. What is cut off is counted in more.
func Explanation(r *report.Report) (grids []Grid, more int) {
	grids = append(grids, funnelGrid(r.Funnel))
	order := byRank(r)
	selected := slices.DeleteFunc(slices.Clone(order), func(c report.ClusterReason) bool { return !c.Selected })
	others := slices.DeleteFunc(order, func(c report.ClusterReason) bool { return c.Selected })
	if len(others) > mostUnselected {
		more = len(others) - mostUnselected
		others = others[:mostUnselected]
	}
	if scores := ScoreGrid(r, append(slices.Clone(selected), others...)); len(scores.Rows) > 0 {
		grids = append(grids, scores)
	}
	if len(others) > 0 {
		grid := Grid{Header: []string{"Not selected", "Because"}}
		for _, c := range others {
			grid.Rows = append(grid.Rows, []Cell{Plain(c.ClusterName), Plain(c.Reason)})
		}
		grids = append(grids, grid)
	}
	return grids, more
}

func funnelGrid(f *report.Funnel) Grid {
	grid := Grid{Header: []string{"Clusters", "Number"}}
	for _, step := range []struct {
		clusters string
		number   int
	}{
		{"in the fleet", f.Fleet},
		{"in the cluster sets", f.InClusterSets},
		{"that match the predicates", f.Matched},
		{"without a taint in the way", f.Tolerated},
		{"selected", f.Selected},
	} {
		grid.Rows = append(grid.Rows, []Cell{Plain(step.clusters), Plain(strconv.Itoa(step.number))})
	}
	if f.Fleet == 0 { // the hub keeps it to itself
		grid.Rows = grid.Rows[1:]
	}
	return grid
}

// byRank has the candidates first, the best one before the others, and then all the rest by name.
func byRank(r *report.Report) []report.ClusterReason {
	rank := map[string]int{}
	for i, s := range r.AggregatedScores {
		rank[s.ClusterName] = i - len(r.AggregatedScores)
	}
	order := slices.Clone(r.Clusters)
	slices.SortStableFunc(order, func(a, b report.ClusterReason) int { return rank[a.ClusterName] - rank[b.ClusterName] })
	return order
}

// ScoreGrid shows the scores of those of the clusters that have any.
func ScoreGrid(r *report.Report, clusters []report.ClusterReason) Grid {
	grid := Grid{Header: []string{"Cluster", "Selected", "Score"}}
	for _, p := range r.PrioritizeResults {
		grid.Header = append(grid.Header, fmt.Sprintf("%d × %s", p.Weight, p.Name))
	}
	total := map[string]int64{}
	for _, s := range r.AggregatedScores {
		total[s.ClusterName] = s.Score
	}
	for _, c := range clusters {
		score, candidate := total[c.ClusterName]
		if !candidate {
			continue
		}
		row := []Cell{Plain(c.ClusterName), Plain(map[bool]string{true: "yes", false: "no"}[c.Selected]), Plain(strconv.FormatInt(score, 10))}
		for _, p := range r.PrioritizeResults {
			score := strconv.FormatInt(p.Scores[c.ClusterName], 10)
			if _, expired := slices.BinarySearch(p.Expired, c.ClusterName); expired {
				score += " (expired)"
			}
			row = append(row, Plain(score))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid
}
