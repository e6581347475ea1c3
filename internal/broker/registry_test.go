package broker

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// requests is a source of certificate requests.
type requests struct{ Source }

func (requests) DataType() cloudevents.DataType { return cloudevents.SigningRequests }

// fill has somebody who joins subscribe to the certificate requests of clusters until that is refused.
func fill(t *testing.T, r *registry, cluster func(i int) string) (added []*subscription) {
	t.Helper()
	for i := range mostOfUser + 1 {
		s := newSubscription(Subscriber{User: "joiner", Cluster: cluster(i)}, requests{})
		if err := r.add(s); status.Code(err) == codes.ResourceExhausted {
			return added
		} else if err != nil {
			t.Fatal(err)
		}
		added = append(added, s)
	}
	t.Fatalf("%d subscriptions, and no end", len(added))
	return nil
}

// GR-04: how many subscriptions a user has is limited, to one kind of one cluster and in all, also over names of clusters that nobody has;
// and that keeps no other user from subscribing.
func TestMostSubscriptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cluster func(i int) string
		want    int
	}{
		"to one cluster":   {func(int) string { return "c1" }, 100},
		"to many clusters": {func(i int) string { return fmt.Sprint("c", i+1) }, 50_000},
	} {
		r := newRegistry()
		added := fill(t, &r, test.cluster)
		if len(added) != test.want {
			t.Errorf("%s: %d subscriptions, want %d", name, len(added), test.want)
		}
		agent := newSubscription(Subscriber{User: "agent", Cluster: "c1"}, requests{})
		if err := r.add(agent); err != nil {
			t.Errorf("%s: another user: %v", name, err)
		}
		r.remove(added[0])
		if again := fill(t, &r, test.cluster); len(again) != 1 {
			t.Errorf("%s: %d subscriptions in place of one that ended", name, len(again))
		} else {
			added[0] = again[0]
		}
		for _, s := range append(added, agent) {
			r.remove(s)
		}
		if len(r.subscriptions) > 0 || len(r.users) > 0 {
			t.Errorf("%s: remembered for ever: %d topics, %v", name, len(r.subscriptions), r.users)
		}
	}
}
