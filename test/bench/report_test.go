//go:build bench

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// report is what the files of results hold: tools/benchreport reads them.
type report struct {
	Commit   string    `json:"commit"`
	Machine  machine   `json:"machine"`
	Go       string    `json:"go"`
	Date     time.Time `json:"date"`
	Measures []measure `json:"measures"`
}

// machine is where it was measured.
type machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryGB float64 `json:"memoryGB"`
	Kernel   string  `json:"kernel"`
	// Load is the load average of the five minutes before.
	Load float64 `json:"load"`
}

// measure is one figure, or the distribution of one that was taken several times.
type measure struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Runs   int     `json:"runs"`
	Min    float64 `json:"min"`
	P25    float64 `json:"p25"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
	Target string  `json:"target,omitempty"`
}

func newReport() *report {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &report{Commit: strings.TrimSpace(string(commit)), Machine: thisMachine(), Go: runtime.Version(),
		Date: time.Now().UTC().Truncate(time.Second)}
}

// thisMachine leaves out what the system does not tell.
func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU()}
	if processors, err := cpu.Info(); err == nil && len(processors) > 0 {
		m.CPU = processors[0].ModelName
	}
	if memory, err := mem.VirtualMemory(); err == nil {
		m.MemoryGB = math.Round(float64(memory.Total)/(1<<30)*10) / 10
	}
	if kernel, err := host.KernelVersion(); err == nil {
		m.Kernel = kernel
	}
	if average, err := load.Avg(); err == nil {
		m.Load = average.Load5
	}
	return m
}

// add takes in the values of a measure.
func (r *report) add(name, unit, target string, values ...float64) {
	slices.Sort(values)
	at := func(p int) float64 { return percentile(values, p) }
	r.Measures = append(r.Measures, measure{Name: name, Unit: unit, Target: target, Runs: len(values),
		Min: at(0), P25: at(25), Median: at(50), P75: at(75), P90: at(90), P99: at(99), Max: at(100)})
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
	fmt.Fprintf(w, "commit %s, %d cores, load %.1f, %s, %s\n\n", r.Commit, r.Machine.Cores, r.Machine.Load, r.Go, r.Date.Format(time.RFC3339))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEASURE\tRUNS\tMEDIAN\tP90\tP99\tMAX\tUNIT\tTARGET")
	for _, m := range r.Measures {
		p90, p99, most := figure(m.P90), figure(m.P99), figure(m.Max)
		if m.Runs == 1 {
			p90, p99, most = "-", "-", "-"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Runs, figure(m.Median), p90, p99, most, m.Unit, m.Target)
	}
	return t.Flush()
}

func figure(v float64) string { return fmt.Sprintf("%.4g", v) }

func (r *report) write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
