package controlplane

import (
	"cmp"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many requests of the start are in flight together. The API server, on the same processors, does the
// work of them; more only wait for each other.
const atOnce = 8

// inParallel does all jobs, also those after one that failed. The error is that of the first job that failed, in the order of the jobs, so
// that it stays the same when they are done again.
func inParallel(jobs []func() error) error {
	failures := make([]error, len(jobs))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, job := range jobs {
		group.Go(func() error {
			failures[i] = job()
			return nil
		})
	}
	_ = group.Wait() // no job ends it
	return cmp.Or(failures...)
}
