//go:build bench

package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// How often works are made to be deleted, and how many manifests a large one has.
const (
	deletionRounds   = 3
	deletedManifests = 1000
)

// measureDeletion times how long works take to go from the hub with all that they have applied, and what that costs.
func measureDeletion(t *testing.T, r *report, hub *env.Server) {
	const cluster = "deletion"
	managed, metrics := env.StartSandbox(t), env.FreeAddress(t)
	agent := env.Join(t, hub, managed, cluster, "--metrics-bind-address", metrics)
	d := &deletionBench{T: t, hub: hub, managed: managed, agent: agent, metrics: metrics, works: watchAllWorks(t, hub), cluster: cluster}
	d.measure(r, fmt.Sprintf("%d works deleted at once, all gone", burst), "2", burst, func(round int) (works []*workv1.ManifestWork) {
		for i := range burst {
			works = append(works, configMapWork(cluster, fmt.Sprintf("gone-%d-%d", round, i)))
		}
		return works
	})
	d.measure(r, fmt.Sprintf("work of %d manifests deleted to gone", deletedManifests), "4", deletedManifests,
		func(round int) []*workv1.ManifestWork {
			return []*workv1.ManifestWork{workOf(cluster, fmt.Sprintf("large-%d", round), configMapsOf(deletedManifests)...)}
		})
}

// deletionBench is an agent on a cluster of its own, of which every request is counted.
type deletionBench struct {
	*testing.T
	hub, managed *env.Server
	agent        *env.Agent
	metrics      string
	works        workWatch
	cluster      string
}

// cost is what a deletion takes: time, processor time of each program, and requests of the agent.
type cost struct {
	took, hub, managed, agent float64
	toHub, toManaged          float64
}

// measure has works made and deleted a few times; all together they apply so many objects.
func (d *deletionBench) measure(r *report, name, target string, objects int, works func(round int) []*workv1.ManifestWork) {
	var costs []cost
	for round := range deletionRounds {
		costs = append(costs, d.round(works(round), float64(objects)))
	}
	of := func(f func(cost) float64) (values []float64) {
		for _, c := range costs {
			values = append(values, f(c))
		}
		return values
	}
	r.add(name, "s", target, of(func(c cost) float64 { return c.took })...)
	r.add(name+": CPU of the hub", "s", "", of(func(c cost) float64 { return c.hub })...)
	r.add(name+": CPU of the cluster", "s", "", of(func(c cost) float64 { return c.managed })...)
	r.add(name+": CPU of the agent", "s", "", of(func(c cost) float64 { return c.agent })...)
	r.add(name+": requests of the agent to the hub", "each object", "", of(func(c cost) float64 { return c.toHub })...)
	r.add(name+": requests of the agent to the cluster", "each object", "", of(func(c cost) float64 { return c.toManaged })...)
}

func (d *deletionBench) round(works []*workv1.ManifestWork, objects float64) (c cost) {
	applied := d.works.count(d.T, "Applied", len(works), ofCluster(d.cluster, isApplied))
	d.each(works, func(client client.Client, w *workv1.ManifestWork) error { return client.Create(d.Context(), w) })
	applied.await(d.T)
	wait(d.T, settled/4)
	hub, managed, agent := usageOf(d.T, d.hub.Pid()), usageOf(d.T, d.managed.Pid()), usageOf(d.T, d.agent.Pid())
	sent, before := requestsOf(d.T, d.metrics), metricsOf(d.T, d.managed)
	gone, begin := d.works.countGone(d.T, len(works)), time.Now()
	d.each(works, func(client client.Client, w *workv1.ManifestWork) error { return client.Delete(d.Context(), w) })
	c.took = gone.await(d.T).Sub(begin).Seconds()
	c.hub = (usageOf(d.T, d.hub.Pid()).cpu - hub.cpu).Seconds()
	c.managed = (usageOf(d.T, d.managed.Pid()).cpu - managed.cpu).Seconds()
	c.agent = (usageOf(d.T, d.agent.Pid()).cpu - agent.cpu).Seconds()
	now := requestsOf(d.T, d.metrics)
	c.toHub = (now.to(d.host(d.hub)) - sent.to(d.host(d.hub))) / objects
	c.toManaged = (now.to(d.host(d.managed)) - sent.to(d.host(d.managed))) / objects
	logBusiest(d.T, "requests to the cluster, each object", metricsOf(d.T, d.managed), before, objects)
	return c
}

func (d *deletionBench) host(s *env.Server) string {
	config, err := s.Config()
	if err != nil {
		d.Fatal(err)
	}
	return config.Host
}

// each writes all works at once.
func (d *deletionBench) each(works []*workv1.ManifestWork, write func(client.Client, *workv1.ManifestWork) error) {
	c := d.hub.Client(d.T)
	var all sync.WaitGroup
	for _, w := range works {
		all.Go(func() {
			if err := write(c, w); err != nil {
				d.Error(err)
			}
		})
	}
	all.Wait()
}
