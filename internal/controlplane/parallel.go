package controlplane

import "golang.org/x/sync/errgroup"

// atOnce is how many requests of the start are in flight together. The API server, on the same processors, does the
// work of them; more only wait for each other.
const atOnce = 8

// inParallel does all jobs, also those after one that failed, and returns the first error.
func inParallel(jobs []func() error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, job := range jobs {
		group.Go(job)
	}
	return group.Wait()
}
