package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is a file of results. The measurements in test/bench write it.
type report struct {
	Commit   string    `json:"commit"`
	Machine  machine   `json:"machine"`
	Go       string    `json:"go"`
	Date     time.Time `json:"date"`
	Measures []measure `json:"measures"`

	file string
}

type machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryGB float64 `json:"memoryGB"`
	Kernel   string  `json:"kernel"`
	Load     float64 `json:"load"`
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
	Max    float64 `json:"max"`
	// Target is the most that the median should be, or the least after a ≥.
	Target string `json:"target"`

	missed bool
}

// results are the measures by their names and the number of clusters, and the files that they are from.
type results struct {
	reports []report
	byName  map[string]map[int]measure
}

// read reads the files of a folder. Of a measure that is in several of them, the latest counts.
func read(folder string) (results, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return results{}, err
	}
	all := results{byName: map[string]map[int]measure{}}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return results{}, err
		}
		r := report{file: filepath.Base(file)}
		if err := json.Unmarshal(content, &r); err != nil {
			return results{}, fmt.Errorf("read %s: %w", file, err)
		}
		all.reports = append(all.reports, r)
	}
	slices.SortStableFunc(all.reports, func(a, b report) int { return a.Date.Compare(b.Date) })
	for _, r := range all.reports {
		for _, m := range r.Measures {
			clusters, name, err := m.split()
			if err != nil {
				return results{}, fmt.Errorf("%s: %w", r.file, err)
			}
			if m.missed, err = m.misses(); err != nil {
				return results{}, fmt.Errorf("%s: %w", r.file, err)
			}
			if all.byName[name] == nil {
				all.byName[name] = map[int]measure{}
			}
			all.byName[name][clusters] = m
		}
	}
	return all, nil
}

// split returns the number of clusters with which a measure was taken, and what it is.
func (m measure) split() (clusters int, name string, err error) {
	size, name, found := strings.Cut(m.Name, " clusters: ")
	if clusters, err = strconv.Atoi(size); !found || err != nil {
		return 0, "", fmt.Errorf("measure %q: it has to begin with the size of the fleet, such as \"100 clusters: \"", m.Name)
	}
	return clusters, name, nil
}

// misses tells whether the median does not reach the target.
func (m measure) misses() (bool, error) {
	if m.Target == "" {
		return false, nil
	}
	number, least := strings.CutPrefix(m.Target, "≥")
	target, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return false, fmt.Errorf("measure %q: target %q: it has to be a number, after a ≥ if that is the least", m.Name, m.Target)
	}
	if least {
		return m.Median < target, nil
	}
	return m.Median > target, nil
}

// sizes are those with which one of the measures was taken.
func (r results) sizes(names []string) []int {
	var sizes []int
	for _, name := range names {
		for size := range r.byName[name] {
			if !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
	}
	slices.Sort(sizes)
	return sizes
}

// differ tells whether the values of measures are above 0 and not all the same, so that a logarithmic axis can have them.
func (r results) differ(names []string) bool {
	var values []float64
	for _, name := range names {
		for _, m := range r.byName[name] {
			values = append(values, m.Median)
		}
	}
	return len(values) > 0 && slices.Min(values) > 0 && slices.Min(values) < slices.Max(values)
}
