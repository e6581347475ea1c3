//go:build bench

package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/fleetsim"
)

var (
	sizes    = flag.String("fleet", "100,500,1000", "sizes of the fleets to simulate")
	light    = flag.Bool("light", false, "simulate agents that manage nothing, for fleets of thousands")
	away     = flag.Duration("away", 0, "how long the hub is away once, with leases of a minute; 0 leaves that out")
	profiles = flag.String("profiles", "", "folder for CPU and heap profiles of the hub; none if empty")
)

const (
	// usualBeat is leaseDurationSeconds by default, and steadyPeriod is as long as a heartbeat may take then.
	usualBeat    = 60
	steadyPeriod = 75 * time.Second
	// fastBeat is leaseDurationSeconds when losses are measured; the hub gives five times that. A loss comes when the
	// heartbeats have had settlePeriod to become fast.
	fastBeat     = 10
	settlePeriod = 15 * time.Second
	busyPeriod   = 30 * time.Second
	// lostShare of the clusters is lost, one in so many.
	lostShare = 10
	// joinTimeout is how long a fleet may take to join, and joinEach what each of its clusters adds to that.
	joinTimeout = 10 * time.Minute
	joinEach    = 200 * time.Millisecond
)

// Targets of fleets of any size, in the units of their measures.
const (
	joinRateTarget    = "≥20"
	joinCPUTarget     = "50"
	requestsTarget    = "20"
	memoryTarget      = "0.25"
	lightMemoryTarget = "0.3"
	awayTarget        = "60"
)

// What a hub at rest may take of a core, by the size of its fleet.
var restTargets = map[int]string{10_000: "60"}

// TestFleet measures what fleets of several sizes cost a hub, and how soon it knows about them (SC-28).
func TestFleet(t *testing.T) { measureFleets(t, lostShare, measureFleet) }

// measureFleets measures fleets of the sizes of -fleet, each of which has so many clusters at least, and writes the report.
func measureFleets(t *testing.T, least int, measure func(t *testing.T, r *report, size int)) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	r := newReport()
	t.Cleanup(func() {
		if err := errors.Join(r.print(os.Stdout), r.write(*out)); err != nil {
			t.Error(err)
		}
	})
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < least {
			t.Fatalf("-fleet %s: %q is no size of a fleet; use numbers from %d", *sizes, text, least)
		}
		t.Run(text, func(t *testing.T) { measure(t, r, size) })
	}
}

func measureFleet(t *testing.T, r *report, size int) {
	hub := env.StartHub(t, "", append(fleetsim.HubFlags(), "--profiling")...)
	add := func(name, unit, target string, values ...float64) {
		name = fmt.Sprintf("%d clusters: %s", size, name)
		r.add(name, unit, target, values...)
		t.Logf("%s: %.4g %s", name, r.Measures[len(r.Measures)-1].Median, unit) // a fleet takes minutes
	}
	debug.FreeOSMemory() // that of the fleet before counts for no agent of this one
	empty, emptyMetrics, selfEmpty := usageOf(t, hub.Pid()), metricsOf(t, hub), usageOf(t, os.Getpid())
	fleet := newFleet(t, hubConfig(t, hub), newToken(t, hub), size)
	seen := watchAvailability(t, hubConfig(t, hub))

	stopProfile := profile(t, hub, size, "join")
	begin, self := time.Now(), usageOf(t, os.Getpid())
	fleet.Start()
	joined := seen.await(t, fleet.Names(), metav1.ConditionTrue, joinWithin(size))
	took := latest(joined).Sub(begin)
	ready, selfReady, counted := usageOf(t, hub.Pid()), usageOf(t, os.Getpid()), metricsOf(t, hub)
	stopProfile()
	logBusiest(t, "join", counted, emptyMetrics, 1)
	n := float64(size)
	add("start to all Available", "s", "", took.Seconds())
	add("start to Available, each", "ms", "", since(begin, joined)...)
	add("clusters Available per second", "1/s", joinRateTarget, n/took.Seconds())
	add("hub CPU to join, each", "ms", joinCPUTarget, float64((ready.cpu-empty.cpu).Milliseconds())/n)
	add("simulator CPU to join, each", "ms", "", float64((selfReady.cpu-self.cpu).Milliseconds())/n)
	add("requests to join, each", "", requestsTarget, (counted.requests-emptyMetrics.requests)/n)

	wait(t, settlePeriod)
	stopProfile = profile(t, hub, size, "steady")
	steady := measurePeriod(t, hub, steadyPeriod)
	stopProfile()
	add("hub resident memory", "MB", "", steady.rss)
	add("hub resident memory, each", "MB", memoryTarget, (steady.rss-empty.rss)/n)
	add("hub CPU, of a core", "%", restTargets[size], steady.cpu)
	add("hub CPU per minute, each", "ms", "", steady.cpu/100*60_000/n)
	add("requests per minute, each", "1/min", "", steady.requests/n)
	add("watches, each", "", "", (steady.watches-emptyMetrics.watches)/n)
	add("simulator resident memory", "MB", "", steady.simulator.rss)
	if *light {
		add("simulator resident memory, each light agent", "MB", lightMemoryTarget, (steady.simulator.rss-selfEmpty.rss)/n)
	}
	add("simulator CPU, of a core", "%", "", steady.simulatorCPU)

	beat(t, hub, fleet.Names(), fastBeat)
	wait(t, settlePeriod)
	add(fmt.Sprintf("hub CPU, of a core, leaseDurationSeconds %d", fastBeat), "%", "", measurePeriod(t, hub, busyPeriod).cpu)
	measureLoss(t, fleet[:size/lostShare], seen, add)
	if *away > 0 {
		beat(t, hub, fleet.Names(), usualBeat)
		measureAway(t, hub, fleet.Names(), add)
	}
}

// measureLoss times how soon the hub sees that clusters are lost, and are back.
func measureLoss(t *testing.T, lost fleetsim.Fleet, seen *availability, add func(name, unit, target string, values ...float64)) {
	begin := time.Now()
	if err := lost.Stop(); err != nil {
		t.Fatal(err)
	}
	gone := seen.await(t, lost.Names(), metav1.ConditionUnknown, 2*5*fastBeat*time.Second)
	add(fmt.Sprintf("loss of a tenth seen, leaseDurationSeconds %d", fastBeat), "s", "", seconds(since(begin, gone))...)
	begin = time.Now()
	lost.Start()
	back := seen.await(t, lost.Names(), metav1.ConditionTrue, joinTimeout)
	add("start of a tenth again to Available", "ms", "", since(begin, back)...)
	seen.check(t)
}

// newToken makes a token with which a fleet joins a standalone hub.
func newToken(t *testing.T, hub *env.Server) string {
	token, err := fleetsim.NewToken(t.Context(), hub.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func hubConfig(t *testing.T, hub *env.Server) *rest.Config {
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// joinWithin is how long a fleet of so many clusters may take to join.
func joinWithin(clusters int) time.Duration { return joinTimeout + time.Duration(clusters)*joinEach }

func newFleet(t *testing.T, hub *rest.Config, token string, size int) fleetsim.Fleet {
	fleet, err := fleetsim.New(fleetsim.Options{Hub: hub, Token: token, Dir: t.TempDir(), Size: size, Light: *light})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Stop(); err != nil {
			t.Error(err)
		}
		runtime.GC() // ends what client-go does for connections that nobody has any more
	})
	return fleet
}

// beat sets how often heartbeats come.
func beat(t *testing.T, hub *env.Server, clusters []string, leaseDurationSeconds int) {
	c := hub.Client(t)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d}}`, leaseDurationSeconds))
	var all errgroup.Group
	all.SetLimit(10)
	for _, name := range clusters {
		all.Go(func() error {
			return c.Patch(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// period is what happened in one: requests of all clients per minute, CPU in percent of a core, and what there was at its end.
type period struct {
	usage
	cpu, simulatorCPU float64
	simulator         usage
	requests, watches float64
}

func measurePeriod(t *testing.T, hub *env.Server, d time.Duration) period {
	begin := time.Now()
	before, self, counted := usageOf(t, hub.Pid()), usageOf(t, os.Getpid()), metricsOf(t, hub)
	wait(t, d)
	took := time.Since(begin)
	p := period{usage: usageOf(t, hub.Pid()), simulator: usageOf(t, os.Getpid())}
	now := metricsOf(t, hub)
	p.cpu = 100 * (p.usage.cpu - before.cpu).Seconds() / took.Seconds()
	p.simulatorCPU = 100 * (p.simulator.cpu - self.cpu).Seconds() / took.Seconds()
	p.requests, p.watches = (now.requests-counted.requests)/took.Minutes(), now.watches
	logBusiest(t, "per minute", now, counted, took.Minutes())
	return p
}

// profile takes a CPU profile until it is stopped, and then one of the heap.
func profile(t *testing.T, hub *env.Server, size int, phase string) (stop func()) {
	if *profiles == "" {
		return func() {}
	}
	name := func(kind string) string { return filepath.Join(*profiles, fmt.Sprintf("%d-%s.%s", size, phase, kind)) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		download(t, hub, "/debug/pprof/profile?seconds=20", name("cpu"))
	}()
	return func() {
		<-done
		download(t, hub, "/debug/pprof/heap?gc=1", name("heap"))
	}
}

func latest(all []time.Time) time.Time {
	last := all[0]
	for _, at := range all {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// since is in milliseconds.
func since(begin time.Time, all []time.Time) []float64 {
	took := make([]time.Duration, 0, len(all))
	for _, at := range all {
		took = append(took, at.Sub(begin))
	}
	return milliseconds(took)
}

func seconds(ms []float64) []float64 {
	for i := range ms {
		ms[i] /= 1000
	}
	return ms
}
