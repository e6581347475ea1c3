//go:build bench

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what bench.json holds.
type report struct {
	Commit   string    `json:"commit"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Date     time.Time `json:"date"`
	Measures []measure `json:"measures"`
}

// measure is one figure, or the distribution of one that was taken several times.
type measure struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90,omitempty"`
	P99    float64 `json:"p99,omitempty"`
	Target string  `json:"target,omitempty"`
}

func newReport() *report {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &report{Commit: strings.TrimSpace(string(commit)), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Date: time.Now().UTC().Truncate(time.Second)}
}

// add takes in the values of a measure.
func (r *report) add(name, unit, target string, values ...float64) {
	slices.Sort(values)
	m := measure{Name: name, Unit: unit, Target: target, Runs: len(values), Median: percentile(values, 50)}
	if len(values) > 1 {
		m.P90, m.P99 = percentile(values, 90), percentile(values, 99)
	}
	r.Measures = append(r.Measures, m)
}

// percentile of sorted values, by the nearest rank.
func percentile(sorted []float64, p int) float64 {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(1, rank)-1]
}

func milliseconds(all []time.Duration) []float64 {
	values := make([]float64, 0, len(all))
	for _, d := range all {
		values = append(values, float64(d.Microseconds())/1000)
	}
	return values
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "commit %s, %d cores, %s, %s\n\n", r.Commit, r.Cores, r.Go, r.Date.Format(time.RFC3339))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEASURE\tRUNS\tMEDIAN\tP90\tP99\tUNIT\tTARGET")
	for _, m := range r.Measures {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Runs, figure(m.Median), figure(m.P90), figure(m.P99), m.Unit, m.Target)
	}
	return t.Flush()
}

func figure(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g", v)
}

func (r *report) write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
