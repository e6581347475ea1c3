package monitor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// answers is a hub that gives one answer until it is given another.
type answers struct {
	client.Reader
	current atomic.Value // of answer
}

type answer struct {
	accepted, decided bool
	err               error
}

func (a *answers) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	now := a.current.Load().(answer)
	cluster := o.(*clusterv1.ManagedCluster)
	cluster.Spec.HubAcceptsClient = now.accepted
	if now.decided {
		cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted}}
	}
	return now.err
}

var (
	accepted     = answer{accepted: true, decided: true}
	denied       = answer{decided: true}
	pending      = answer{}
	unauthorized = answer{err: apierrors.NewUnauthorized("unknown certificate")}
	forbidden    = answer{err: apierrors.NewForbidden(schema.GroupResource{}, "cluster1", errors.New("no role"))}
	silence      = answer{err: errors.New("connection refused")}
)

// ofProxy is what a proxy in front of a hub answers, in words of its own.
func ofProxy(code int) answer {
	return answer{err: apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "cluster1", "<html>", 0, true)}
}

// phase is what a hub answers for some time.
type phase struct {
	answer answer
	lasts  time.Duration
}

// RG-54 R13: a hub is left when, and only when, the agent cannot work with it any more; with one hub only when it refuses the certificate.
func TestMonitor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout time.Duration
		phases  []phase
		want    Reason
		after   time.Duration // at the latest, from the beginning of the last phase
	}{
		"accepted":                {30 * time.Second, []phase{{accepted, time.Hour}}, "", 0},
		"denied":                  {30 * time.Second, []phase{{accepted, time.Hour}, {denied, time.Minute}}, Denied, 10 * time.Second},
		"pending":                 {30 * time.Second, []phase{{pending, time.Hour}}, "", 0},
		"no rights for a moment":  {30 * time.Second, []phase{{forbidden, 8 * time.Second}, {accepted, time.Hour}}, "", 0},
		"deleted":                 {30 * time.Second, []phase{{accepted, time.Hour}, {forbidden, time.Minute}}, Denied, 20 * time.Second},
		"gone":                    {30 * time.Second, []phase{{accepted, time.Hour}, {silence, time.Hour}}, Gone, 40 * time.Second},
		"gone from the beginning": {30 * time.Second, []phase{{silence, time.Hour}}, Gone, 40 * time.Second},
		"away for less": {30 * time.Second, []phase{{silence, 20 * time.Second}, {accepted, 30 * time.Second},
			{silence, 20 * time.Second}, {accepted, time.Hour}}, "", 0},
		"refused":                 {30 * time.Second, []phase{{accepted, time.Hour}, {unauthorized, time.Hour}}, Refused, 20 * time.Second},
		"refused for a moment":    {30 * time.Second, []phase{{unauthorized, 8 * time.Second}, {accepted, time.Hour}}, "", 0},
		"refused by the only hub": {0, []phase{{accepted, time.Hour}, {unauthorized, time.Hour}}, Refused, 20 * time.Second},
		"only hub refuses, and then again": {0, []phase{
			{unauthorized, 8 * time.Second}, {forbidden, time.Hour}, {unauthorized, 8 * time.Second}, {accepted, time.Hour},
		}, "", 0},
		"a proxy knows nothing":         {30 * time.Second, []phase{{accepted, time.Hour}, {ofProxy(404), 20 * time.Second}, {accepted, time.Hour}}, "", 0},
		"a proxy forbids":               {30 * time.Second, []phase{{accepted, time.Hour}, {ofProxy(403), 20 * time.Second}, {accepted, time.Hour}}, "", 0},
		"a proxy wants a password":      {30 * time.Second, []phase{{ofProxy(401), 20 * time.Second}, {accepted, time.Hour}}, "", 0},
		"a proxy stays without its hub": {30 * time.Second, []phase{{accepted, time.Hour}, {ofProxy(404), time.Hour}}, Gone, 40 * time.Second},
		"a proxy before the only hub":   {0, []phase{{ofProxy(404), 24 * time.Hour}, {ofProxy(401), 24 * time.Hour}}, "", 0},
		"denied by the only hub":        {0, []phase{{denied, 24 * time.Hour}}, "", 0},
		"the only hub gone":             {0, []phase{{silence, 24 * time.Hour}}, "", 0},
		"only hub refuses for a moment": {0, []phase{{unauthorized, 8 * time.Second}, {silence, time.Minute}, {accepted, time.Hour}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := &answers{}
				hub.current.Store(test.phases[0].answer)
				m := New(hub, "cluster1", test.timeout, clock.RealClock{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- m.Start(ctx) }()
				var began time.Time
				for _, p := range test.phases {
					hub.current.Store(p.answer)
					m.CheckNow() // as the heartbeat does when it fails
					began = time.Now()
					select {
					case err := <-ended:
						ended <- err
					case <-time.After(p.lasts):
					}
				}
				stop()
				err := <-ended
				var lost *LostError
				if errors.As(err, &lost); (test.want == "") != (err == nil) || lost != nil && lost.Reason != test.want {
					t.Fatalf("ended with %v, want %q", err, test.want)
				}
				if took := time.Since(began); test.want != "" && took > test.after {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// The agent of a cluster that the only hub does not have, as one that joined after the backup that the hub was restored from, says so once.
// A hub that has just accepted the cluster may need a moment.
func TestHiddenClusterIsLogged(t *testing.T) {
	t.Parallel()
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	hub, now := &answers{}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	m := New(hub, "cluster1", 0, now)
	m.start()
	for i, step := range []struct {
		answer answer
		lines  int
	}{
		{forbidden, 0}, {accepted, 0}, {forbidden, 0}, {silence, 0}, {forbidden, 1}, {forbidden, 1},
		{accepted, 1}, {forbidden, 1}, {forbidden, 2},
	} {
		hub.current.Store(step.answer)
		if err := m.check(ctx); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if len(logged) != step.lines {
			t.Fatalf("step %d: the log has %q, want %d lines", i, logged, step.lines)
		}
		now.Step(persistence)
	}
	if !strings.Contains(logged[0], "kubectl get managedcluster cluster1") {
		t.Errorf("the log has %q", logged[0])
	}
}

// RG-54: an agent that was stopped for a while has not checked its hubs meanwhile. It gives one that does not answer at once the whole
// time, and one that refuses it, too.
func TestStoppedAgent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after answer
		patience      time.Duration
		want          Reason
	}{
		"silent afterwards":        {accepted, silence, 30 * time.Second, Gone},
		"silent before and after":  {silence, silence, 30 * time.Second, Gone},
		"refused before and after": {unauthorized, unauthorized, persistence, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, now := &answers{}, clocktesting.NewFakeClock(time.Unix(1000, 0))
			m := New(hub, "cluster1", 30*time.Second, now)
			m.start()
			hub.current.Store(test.before)
			now.Step(longestInterval)
			if err := m.check(t.Context()); err != nil {
				t.Fatalf("before: %v", err)
			}
			now.Step(time.Hour)
			hub.current.Store(test.after)
			for waited := time.Duration(0); waited < test.patience; waited += refusalInterval {
				if err := m.check(t.Context()); err != nil {
					t.Fatalf("after %s: %v", waited, err)
				}
				now.Step(refusalInterval)
			}
			var lost *LostError
			if err := m.check(t.Context()); !errors.As(err, &lost) || lost.Reason != test.want {
				t.Errorf("at last: %v, want %s", err, test.want)
			}
		})
	}
}
