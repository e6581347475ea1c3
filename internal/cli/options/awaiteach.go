package options

import "golang.org/x/sync/errgroup"

// AwaitEach waits for clusters at the same time, so that one that takes long takes no time from the others, and shows which ones it waits
// for, and for what. The errors are those of the clusters, in their order; they are nil where there is none.
func (g *Global) AwaitEach(clusters []string, what string, await func(cluster string) error) []error {
	errs := make([]error, len(clusters))
	progress := g.Progress()
	defer progress.Close()
	var group errgroup.Group
	for i, cluster := range clusters {
		group.Go(func() error {
			progress.Wait(cluster, what)
			errs[i] = await(cluster)
			progress.Wait(cluster, "")
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}
