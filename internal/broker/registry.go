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
	users         map[string]int // how many subscriptions each has
}

func newRegistry() registry {
	return registry{subscriptions: map[topic]map[*subscription]struct{}{}, users: map[string]int{}}
}

// topic is one kind of resource of one cluster.
type topic struct {
	dataType cloudevents.DataType
	cluster  string
}

func topicOf(s *subscription) topic { return topic{s.source.DataType(), s.to.Cluster} }

// add adds a subscription, unless its user has too many. What one user has takes nothing from another one: who joins may subscribe to the
// certificate requests of any cluster.
func (r *registry) add(s *subscription) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, user := topicOf(s), s.to.User
	switch {
	case len(r.find(t, user)) >= mostSubscriptions:
		return status.Errorf(codes.ResourceExhausted, "user %q has %d subscriptions to %s of cluster %q, and may have no more", user,
			mostSubscriptions, t.dataType, t.cluster)
	case r.users[user] >= mostOfUser:
		return status.Errorf(codes.ResourceExhausted, "user %q has %d subscriptions, and may have no more", user, mostOfUser)
	}
	if r.subscriptions[t] == nil {
		r.subscriptions[t] = map[*subscription]struct{}{}
	}
	r.subscriptions[t][s] = struct{}{}
	r.users[user]++
	return nil
}

func (r *registry) remove(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, user := topicOf(s), s.to.User
	delete(r.subscriptions[t], s)
	if len(r.subscriptions[t]) == 0 {
		delete(r.subscriptions, t)
	}
	if r.users[user]--; r.users[user] == 0 {
		delete(r.users, user)
	}
}

// of returns the subscriptions of a user to a topic; those of all users for an empty one.
func (r *registry) of(t topic, user string) []*subscription {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.find(t, user)
}

// find is of for who holds the lock.
func (r *registry) find(t topic, user string) (found []*subscription) {
	for s := range r.subscriptions[t] {
		if user == "" || s.to.User == user {
			found = append(found, s)
		}
	}
	return found
}
