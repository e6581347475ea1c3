package campaign

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/test/env"
)

var (
	with   = flag.String("faults", "", "the faults, with commas, out of crash, away, lost, failed and conflict")
	points = flag.Int("points", 1, "how many writes of each step of the scenario get each fault; 0 is all of them")
	seed   = flag.Int("seed", 1, "which writes these are; the same ones for the same number")
	point  = flag.String("point", "", "the one write that gets each fault, as failures name it, such as 'join=PUT /api/v1/namespaces/c1 #1'")
)

const (
	// pause is how long nothing happens before the next step, when all is as it should be.
	pause = 150 * time.Millisecond
	// longPause is that when it is not known what should be. It is longer than controllers wait for more events: debounce.Delay.
	longPause = 1500 * time.Millisecond
	// patience is how long nothing happens before what is stored is taken for the end.
	patience = 15 * time.Second
	// longestStep is how long a step may take: controllers that come to an end have done so by then, however slow the machine is.
	longestStep = 5 * time.Minute
	// poll is how often the test looks.
	poll = 25 * time.Millisecond
	// mostUnmet is the largest share of the points that may never be met: how often some writes are made depends on how events fall together.
	mostUnmet = 0.1
	// fewUnmet is how many of them are too few for a share to say anything.
	fewUnmet = 2
)

// Whichever write of the hub's controllers is the last one before they crash, is lost, or is refused: the hub that starts or goes on
// afterwards stores in the end what one stores to which nothing has happened, in each step of the life of a fleet; and of a fleet that has
// left, nothing.
func TestFaults(t *testing.T) {
	if *with == "" {
		t.Skip("it takes minutes or hours: make campaign")
	}
	c := newCampaign(t)
	undisturbed := c.run(t, plan{}, nil)
	if t.Failed() {
		return
	}
	checkAllWrite(t, undisturbed)
	c.checkLeavesNothing(t, undisturbed)
	for name, writes := range undisturbed.history.writes {
		t.Logf("step %q has %d writes", name, len(writes))
	}
	t.Logf("seed %d", *seed)
	for name := range strings.SplitSeq(*with, ",") {
		f := fault(name)
		if !slices.Contains(faults, f) {
			t.Fatalf("-faults: %q is no fault; use some of %v", name, faults)
		}
		plans, err := chosen(f, undisturbed.history.writes)
		if err != nil {
			t.Fatal(err)
		}
		c.try(t, f, plans, undisturbed)
	}
}

// checkAllWrite fails if a controller writes nothing in the scenario, so that no fault happens to it.
func checkAllWrite(t *testing.T, undisturbed *run) {
	t.Helper()
	running, err := controllersRunning()
	if err != nil {
		t.Fatal(err)
	}
	if problems := checkWriters(running, undisturbed.history.wrote, silent); len(problems) > 0 {
		t.Fatalf("faults do not happen to all controllers:\n%s", strings.Join(problems, "\n"))
	}
}

// checkLeavesNothing fails if a fleet that has left leaves anything behind but what the next one keeps.
func (c *campaign) checkLeavesNothing(t *testing.T, undisturbed *run) {
	t.Helper()
	first, last := undisturbed.stores[0], undisturbed.stores[len(scenario)-1]
	for key := range last {
		if _, before := first[key]; !before && keeps.MatchString(key) {
			c.kept[key] = true
		}
	}
	if left := difference(first, last, c.kept); left != "" {
		t.Fatalf("a fleet that has left leaves something behind:\n%s", left)
	}
}

// try puts a fault at each chosen write, and once more at those that were not met.
func (c *campaign) try(t *testing.T, f fault, plans []map[string]string, undisturbed *run) {
	t.Helper()
	first, again := newTally(), newTally()
	for i, at := range plans {
		t.Run(fmt.Sprintf("%s/%d", f, i+1), func(t *testing.T) {
			first.add(c.run(t, plan{fault: f, at: at}, undisturbed))
		})
	}
	// Writes that are made once in the life of a hub come again on another one.
	for i, at := range choose(f, first.unmet, 0, *seed) {
		t.Run(fmt.Sprintf("%s/again-%d", f, i+1), func(t *testing.T) {
			c.spoilt = true
			again.add(c.run(t, plan{fault: f, at: at}, undisturbed))
		})
	}
	t.Logf("%s: %d of %d points were met, %d of them in a second run", f, first.planned-again.missed(), first.planned,
		first.missed()-again.missed())
	if tooMany(again.missed(), first.planned) {
		t.Errorf("%s: more than %.0f %% of the points, or all, were never met, by step: %v", f, 100*mostUnmet, again.unmet)
	}
}

// tooMany tells whether so many points were never met that the campaign says too little.
func tooMany(missed, planned int) bool {
	all := missed > 0 && missed == planned
	return all || missed > fewUnmet && float64(missed) > mostUnmet*float64(planned)
}

// tally is which points were met: writes at which a fault was to happen, and did.
type tally struct {
	planned int
	// unmet are the others, by step.
	unmet map[string][]string
}

func newTally() *tally { return &tally{unmet: map[string][]string{}} }

// add counts the points of a run that has come to its end.
func (t *tally) add(r *run) {
	for step, write := range r.history.plan.at {
		t.planned++
		if !r.history.met[step] {
			t.unmet[step] = append(t.unmet[step], write)
		}
	}
}

// missed is how many points were not met.
func (t *tally) missed() (n int) {
	for _, writes := range t.unmet {
		n += len(writes)
	}
	return n
}

// campaign is a hub that runs after one another share. None of them leaves anything behind, or there is another hub for the next.
type campaign struct {
	// whole is the test that the hub is there for, over those of single runs.
	whole  *testing.T
	config *rest.Config
	reader *reader
	fleet  *fleetOfTest
	hub    hub.Options
	// spoilt is set when a run has left something behind.
	spoilt bool
	server *env.Server
	// kept are objects that the first run has left there for all others.
	kept map[string]bool
}

// panicOnInconsistency has an API server compare its watch caches with etcd every five to seven and a half minutes, and end if they
// differ. That costs too much for hubs of users, which do without; no test but the campaign lasts that long.
const panicOnInconsistency = "KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true"

// keeps matches what all clusters share, which the last one leaves behind.
var keeps = regexp.MustCompile(`^clusterroles.*/open-cluster-management:`)

func newCampaign(t *testing.T) *campaign {
	t.Helper()
	c := &campaign{whole: t, kept: map[string]bool{}}
	var err error
	if c.hub, err = hubOptions(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	return c
}

// start starts an API server with nothing in it, and none of our controllers.
func (c *campaign) start(t *testing.T) {
	t.Helper()
	if c.server != nil {
		_ = c.server.Stop()
	}
	var err error
	if c.server, err = env.NewHub(c.whole.TempDir(), "none"); err != nil {
		t.Fatal(err)
	}
	c.server.AddEnv(panicOnInconsistency)
	env.StartServer(c.whole, c.server)
	if c.config, err = c.server.Config(); err != nil {
		t.Fatal(err)
	}
	if c.reader, err = newReader(c.config); err != nil {
		t.Fatal(err)
	}
	if c.fleet, err = newFleet(c.config); err != nil {
		t.Fatal(err)
	}
	c.spoilt = false
}

// chosen are the writes that get a fault in each run, by step: the one of the flag -point, or some of each step.
func chosen(f fault, writes map[string][]string) ([]map[string]string, error) {
	if *point == "" {
		return choose(f, writes, *points, *seed), nil
	}
	at, err := parsePoint(*point)
	return []map[string]string{at}, err
}

// parsePoint reads a point as pointOf writes it.
func parsePoint(text string) (map[string]string, error) {
	name, write, found := strings.Cut(text, "=")
	if !found || !slices.ContainsFunc(scenario, func(s step) bool { return s.name == name }) {
		return nil, fmt.Errorf("-point: %q has to be a step of the scenario, = and a write, such as %q", text,
			pointOf("join", "PUT /api/v1/namespaces/c1 #1"))
	}
	return map[string]string{name: write}, nil
}

func pointOf(step, write string) string { return step + "=" + write }

// choose spreads faults over the writes of each step. A run has one in each step, or in every other one where users take the steps between
// them while the controllers are away. most is how many writes of each step get one; 0 is all.
func choose(f fault, writes map[string][]string, most, seed int) (plans []map[string]string) {
	all := map[string][]string{}
	for name, written := range writes {
		may := shuffled(slices.DeleteFunc(slices.Clone(written), func(write string) bool { return !f.may(write) }), seed)
		if most > 0 {
			may = may[:min(len(may), most)]
		}
		all[name] = may
	}
	for i := 0; ; i++ {
		even, odd := map[string]string{}, map[string]string{}
		for k, s := range scenario {
			if i >= len(all[s.name]) {
				continue
			}
			at := even
			if f == away && k%2 == 1 {
				at = odd
			}
			at[s.name] = all[s.name][i]
		}
		if len(even)+len(odd) == 0 {
			return plans
		}
		plans = append(plans, slices.DeleteFunc([]map[string]string{even, odd}, func(at map[string]string) bool { return len(at) == 0 })...)
	}
}

// shuffled are some writes, each once, in an order that depends on the seed and on themselves: it is the same whichever controller was
// faster, and whatever other writes there are.
func shuffled(writes []string, seed int) []string {
	slices.SortFunc(writes, func(a, b string) int {
		x, y := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, a)), sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, b))
		return bytes.Compare(x[:], y[:])
	})
	return slices.Compact(writes)
}

// run is one life of the fleet, on a hub with as many lives as its crashes give it.
type run struct {
	*campaign
	// undisturbed is the run without faults; nil in itself.
	undisturbed *run
	history     *history
	life        *life
	// lastEnded is the last step that has ended.
	lastEnded int
	// stores are what the hub stored at the end of each step.
	stores []store

	// seen is the activity that was observed last, and since is when.
	seen  activity
	since time.Time
	// pause is how long that has to be.
	pause time.Duration
}

// run runs the scenario. Each step has to end as that of the undisturbed run, if there has been one.
func (c *campaign) run(t *testing.T, p plan, undisturbed *run) *run {
	t.Helper()
	if c.spoilt {
		c.start(t)
	}
	c.spoilt = true // unless it comes to its end
	r := &run{campaign: c, undisturbed: undisturbed, history: newHistory(p), lastEnded: -1, pause: pause}
	if undisturbed == nil {
		r.pause = longPause
	}
	c.fleet.begin(r.history)
	journal.begin()
	defer func() {
		if t.Failed() {
			t.Logf("The controllers wrote last:\n%s", journal.tail())
		}
	}()
	r.revive(t)
	defer func() {
		if err := r.life.close(); err != nil {
			t.Errorf("the controllers ended with: %v", err)
		}
	}()
	for i, s := range scenario {
		r.history.enter(s.name)
		err := s.act(t.Context(), c.fleet)
		if r.life.ctx.Err() != nil { // the controllers have been away
			if err != nil { // what users do next takes what the controllers do first
				r.history.enter(scenario[i-1].name)
				r.revive(t)
				r.awaitEnd(t, i-1)
				r.history.enter(s.name)
				err = s.act(t.Context(), c.fleet)
			} else {
				r.revive(t)
			}
		}
		if err != nil {
			t.Fatalf("step %q: %v", s.name, err)
		}
		r.stores = append(r.stores, r.awaitEnd(t, i))
		if r.stores[i] == nil {
			continue // what the controllers do comes with the next step
		}
		if err := c.fleet.checkDelivery(t.Context()); err != nil {
			t.Fatalf("step %q: %v", s.name, err)
		}
		if undisturbed == nil && s.outcome != nil {
			if err := s.outcome(t.Context(), c.fleet); err != nil {
				t.Fatalf("step %q, without faults: %v", s.name, err)
			}
		}
	}
	c.spoilt = false
	return r
}

// revive starts the controllers, after the end of those before them, if there were any.
func (r *run) revive(t *testing.T) {
	t.Helper()
	if r.life != nil {
		_ = r.life.close() // it may end with an error, as a process that crashes does
	}
	var err error
	if r.life, err = begin(r.config, r.hub, r.history); err != nil {
		t.Fatal(err)
	}
	r.since = time.Now()
}

// awaitEnd returns when a step has ended, and what is stored then.
func (r *run) awaitEnd(t *testing.T, i int) store {
	t.Helper()
	s := scenario[i]
	var want store
	if r.undisturbed != nil {
		want = r.undisturbed.stores[i]
	}
	mayWait := r.history.plan.fault == away && i+1 < len(scenario) && !scenario[i+1].needsLast
	began := time.Now()
	r.since = began
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	var before store
	for range ticks.C {
		if r.life.ctx.Err() != nil && mayWait {
			_ = r.life.close()
			return nil // the next step comes first
		}
		if r.life.ctx.Err() != nil {
			r.revive(t)
		}
		l := look{want: want, before: before, rests: r.rests(t, s), lasting: time.Since(began)}
		if !l.rests && l.lasting <= longestStep {
			continue
		}
		var err error
		if l.have, l.going, err = r.reader.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.resting = time.Since(r.since)
		switch l.verdict(r.kept) {
		case ended:
			r.checkDeletions(t, i)
			return l.have
		case restless:
			t.Fatalf("step %q, %s: it has not ended after %v. The controllers wrote most:\n%s\nThe hub stores something else than it should:\n%s",
				s.name, r.disturbance(i), longestStep, r.history.busiest(), l.difference(r.kept))
		case differs:
			t.Fatalf("step %q, %s: the hub stores something else than without faults:\n%s", s.name, r.disturbance(i), l.difference(r.kept))
		}
		if want == nil { // the API server itself may have something to do, which is not observed: the next look comes a pause later
			before, r.since = l.have, time.Now()
		}
	}
	return nil
}

// look is what the test sees of a step at a moment.
type look struct {
	// want is what the undisturbed run has stored at the end of the step; nil in itself. before is what the hub stored at the last look.
	want, before, have store
	// rests tells whether nobody has had anything to do for a while, and going whether a namespace is still going.
	rests, going bool
	// resting is for how long nobody has had anything to do, and lasting how long the step takes already.
	resting, lasting time.Duration
}

type verdict int

const (
	goesOn verdict = iota
	ended
	// differs is that nobody does anything about what the hub should not store.
	differs
	// restless is that somebody always does something.
	restless
)

func (l look) verdict(kept map[string]bool) verdict {
	switch {
	case l.rests && l.want == nil && !l.going && maps.Equal(l.before, l.have):
		return ended
	case l.rests && l.want != nil && l.difference(kept) == "":
		return ended
	case l.lasting > longestStep:
		return restless
	case l.rests && l.want != nil && l.resting > patience:
		return differs
	default:
		return goesOn
	}
}

// difference is what is stored and should not be; in the undisturbed run, what has changed.
func (l look) difference(kept map[string]bool) string {
	if l.want == nil {
		return difference(l.before, l.have, nil)
	}
	return difference(l.want, l.have, kept)
}

// checkDeletions fails if the controllers have deleted and made again what is there at the end of a step, or have taken it out of a work
// and put it back. Agents would have taken it off their clusters meanwhile.
func (r *run) checkDeletions(t *testing.T, i int) {
	t.Helper()
	if r.undisturbed == nil {
		return
	}
	steps := scenario[r.lastEnded+1 : i+1]
	r.lastEnded = i
	end := r.undisturbed.stores[i]
	keys := slices.Concat(recreated(end, r.history.deletions(steps), r.undisturbed.history.deletions(steps)),
		recreated(r.history.listed(end), r.history.drops(steps), r.undisturbed.history.drops(steps)))
	if len(keys) > 0 {
		t.Fatalf("step %q, %s: the controllers have deleted what they leave alone without faults, and it was made again:\n%s",
			scenario[i].name, r.disturbance(i), strings.Join(keys, "\n"))
	}
}

// disturbance names the last fault up to a step.
func (r *run) disturbance(i int) string {
	for _, s := range slices.Backward(scenario[:i+1]) {
		if write, planned := r.history.plan.at[s.name]; planned {
			return fmt.Sprintf("%s at %q", r.history.plan.fault, pointOf(s.name, write))
		}
	}
	return "no fault"
}

// rests has the agents do what there is to do, and tells whether neither they nor the controllers have had anything to do for a while.
func (r *run) rests(t *testing.T, s step) bool {
	t.Helper()
	select {
	case <-r.server.Done():
		t.Fatalf("step %q: the hub has ended: %s", s.name, panicIn(r.server.Log()))
	default:
	}
	select {
	case err := <-r.life.ended:
		r.life.ended <- err
		if r.life.ctx.Err() == nil {
			t.Fatalf("step %q: the controllers have ended: %v", s.name, err)
		}
	default:
	}
	if err := r.history.failure(); err != nil {
		t.Fatalf("step %q: %v", s.name, err)
	}
	acted, err := r.fleet.act(t.Context())
	if err == nil && s.until != nil {
		var done bool
		done, err = s.until(t.Context(), r.fleet)
		acted = acted || !done
	}
	if err != nil {
		t.Fatalf("step %q: %v", s.name, err)
	}
	now, err := r.life.observe()
	if err != nil {
		t.Fatal(err)
	}
	if acted || now != r.seen || now.working > 0 {
		r.seen, r.since = now, time.Now()
	}
	return time.Since(r.since) > r.pause
}

// panicIn is the beginning of what a program has written about its panic.
func panicIn(log string) string {
	at := strings.Index(log, "panic: ")
	if at < 0 {
		return "it wrote nothing about a panic"
	}
	const longest = 2000
	return log[at:min(len(log), at+longest)]
}
