package placement

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// PL-20: events record the writes, with a warning where scores have expired, and as a sample if there are many at once.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newEventTest(t)
		p := newPlacement(clusterv1beta1.PlacementSpec{})
		scores := []scheduler.ClusterScore{{ClusterName: "a", Score: 100}, {ClusterName: "b", Score: -7}}
		decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Name: "web-decision-1"}}
		b.recordWritten(p, &scheduler.Result{Scores: scores}, &decisions.Write{Decision: decision, Create: true})
		b.recordWritten(p, &scheduler.Result{Scores: scores, ExpiredScores: []string{"b"}}, &decisions.Write{Decision: decision})
		b.recordDeleted(p, decision)
		want := []string{
			"Normal DecisionCreate PlacementDecision web-decision-1 is created with 0 clusters", "Normal ScoreUpdate a:100 b:-7",
			"Warning DecisionUpdate PlacementDecision web-decision-1 has 0 clusters now; the AddOnPlacementScores of b have expired and count as 0",
			"Normal ScoreUpdate a:100 b:-7",
			"Normal DecisionDelete PlacementDecision web-decision-1 is not needed any more",
		}
		if diff := cmp.Diff(want, b.recordedEvents()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for range 1000 {
			b.recordDeleted(p, decision)
		}
		inAll := 0
		for _, test := range []struct {
			after time.Duration
			want  int
		}{{0, eventBurst - 5}, {time.Second, eventsPerSecond}, {maxEventDelay, eventsPerSecond * (int(maxEventDelay.Seconds()) - 1)},
			{time.Hour, 0}} {
			<-time.After(test.after)
			synctest.Wait()
			if got := len(b.recordedEvents()); got != test.want {
				t.Errorf("%d events within %s after %d, want %d", got, test.after, inAll, test.want)
			}
			inAll += test.want
		}
	})
}

// newEventTest uses the real clock, and writes delayed events.
func newEventTest(t *testing.T) *controllerTest {
	t.Helper()
	b := newControllerTest(t, interceptor.Funcs{})
	b.Controller.clock = clock.RealClock{}
	if err := b.runEventWriter(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// Delayed events are written after their reconcile has ended, but not after the controller has.
func TestEventsEndWithTheController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newEventTest(t)
		for range eventBurst + 2 {
			b.recordDeleted(newPlacement(clusterv1beta1.PlacementSpec{}), &clusterv1beta1.PlacementDecision{})
		}
		synctest.Wait() // and ends while events wait: what is left behind fails the test
	})
}

// eventRecorder sends the resource version of the object of each event.
type eventRecorder chan string

func (l eventRecorder) Eventf(regarding, _ runtime.Object, _, _, _, _ string, _ ...any) {
	l <- regarding.(client.Object).GetResourceVersion()
}

// PL-20: a delayed event has the version of its object at the time that it was recorded, although the controller has changed it since.
func TestEventsAreRateLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newEventTest(t)
		recorded := make(eventRecorder, eventBurst+1)
		b.recorder = recorded
		p := newPlacement(clusterv1beta1.PlacementSpec{})
		p.ResourceVersion = "1"
		for range eventBurst + 1 {
			b.recordDeleted(p, &clusterv1beta1.PlacementDecision{})
		}
		p.ResourceVersion = "2"
		for range eventBurst + 1 {
			if version := <-recorded; version != "1" {
				t.Errorf("an event about resource version %s", version)
			}
		}
	})
}

func TestScoresNote(t *testing.T) {
	t.Parallel()
	if got := scoresNote([]scheduler.ClusterScore{{ClusterName: "a", Score: -1}, {ClusterName: "b", Score: 200}}); got != "a:-1 b:200" {
		t.Errorf("%q", got)
	}
	many := make([]scheduler.ClusterScore, 300)
	for i := range many {
		many[i].ClusterName = "a"
	}
	if got := scoresNote(many); len(got) != maxScoresNote || !strings.HasSuffix(got, truncated) {
		t.Errorf("%d characters, %q", len(got), got)
	}
}
