package broker

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// registry has the subscriptions by what they are to.
type registry struct {
	mu            sync.RWMutex
	subscriptions map[topic]map[*subscription]struct{}
}

// topic is one kind of resource of one cluster.
type topic struct {
	dataType cloudevents.DataType
	cluster  string
}

func topicOf(s *subscription) topic { return topic{s.source.DataType(), s.to.Cluster} }

func (r *registry) add(s *subscription) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := topicOf(s)
	if len(r.subscriptions[t]) >= mostSubscriptions {
		return status.Errorf(codes.ResourceExhausted, "cluster %q has %d subscriptions to %s, and may have no more", t.cluster, mostSubscriptions,
			t.dataType)
	}
	if r.subscriptions[t] == nil {
		r.subscriptions[t] = map[*subscription]struct{}{}
	}
	r.subscriptions[t][s] = struct{}{}
	return nil
}

func (r *registry) remove(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := topicOf(s)
	delete(r.subscriptions[t], s)
	if len(r.subscriptions[t]) == 0 {
		delete(r.subscriptions, t)
	}
}

// of returns the subscriptions of a user to a topic; those of all users for an empty one.
func (r *registry) of(t topic, user string) (found []*subscription) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for s := range r.subscriptions[t] {
		if user == "" || s.to.User == user {
			found = append(found, s)
		}
	}
	return found
}
