package resources

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
)

// How long tokens wait to be received, and how many. The agent waits ten seconds.
const (
	tokenWaits        = 30 * time.Second
	mostTokensWaiting = 1000
)

// tokens are the TokenRequests of agents, for the service accounts of add-ons. Each is answered to whom has asked, by the UID that the
// request has been given for this.
type tokens struct {
	Options
	answers *lru.LRUExpireCache
}

func newTokens(o Options) *tokens {
	return &tokens{Options: o, answers: lru.NewLRUExpireCache(mostTokensWaiting)}
}

// requestKey identifies a request. UIDs are made up by agents, so another agent may make up the same one.
type requestKey struct {
	broker.Subscriber
	uid types.UID
}

// DataType implements broker.Service.
func (t *tokens) DataType() cloudevents.DataType { return cloudevents.TokenRequests }

// Start implements broker.Source: there is nothing to read.
func (t *tokens) Start(context.Context) error { return nil }

// Event implements broker.Source. A token that has expired meanwhile is asked for again.
func (t *tokens) Event(_ context.Context, to broker.Subscriber, ref broker.Ref, action cloudevents.Action,
	now time.Time) (*cloudevents.Event,
	error) {
	kept, _ := t.answers.Get(requestKey{to, ref.UID})
	answer, ok := kept.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, nil
	}
	return resource.Encode(cloudevents.SourceHub, typeOf(cloudevents.TokenRequests, action), to.Cluster, answer, now)
}

// Prepare implements broker.Service.
func (t *tokens) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if eventType.SubResource != cloudevents.Spec || eventType.Action != cloudevents.Create {
		return nil, unsupported(eventType, "create TokenRequests")
	}
	sent := &authenticationv1.TokenRequest{}
	if err := resource.Decode(event, sent); err != nil {
		return nil, unreadable(err)
	}
	if err := check(cloudevents.TokenRequests, cluster, sent.Namespace, sent.Name); err != nil {
		return nil, err
	}
	if sent.UID == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: metadata.uid is empty, want an ID by which the answer is known",
			cloudevents.TokenRequests))
	}
	return &broker.Write{Name: sent.Name,
		Do: func(ctx context.Context, caller *access.Caller) error { return t.create(ctx, caller, sent) }}, nil
}

// create asks the API for a token, and tells the caller, who has to be subscribed.
func (t *tokens) create(ctx context.Context, caller *access.Caller, sent *authenticationv1.TokenRequest) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sent.Namespace, Name: sent.Name}}
	answer := &authenticationv1.TokenRequest{Spec: sent.Spec}
	if err := t.Client.SubResource("token").Create(ctx, account, answer); err != nil {
		return err
	}
	answer.ObjectMeta = metav1.ObjectMeta{Namespace: sent.Namespace, Name: sent.Name, UID: sent.UID}
	to := broker.Subscriber{Cluster: sent.Namespace, User: caller.Username}
	t.answers.Add(requestKey{to, sent.UID}, answer, tokenWaits)
	t.Notify(broker.Change{DataType: cloudevents.TokenRequests, Cluster: to.Cluster, User: to.User,
		Ref: broker.Ref{Namespace: sent.Namespace, Name: sent.Name, UID: sent.UID}, Action: cloudevents.Create})
	return nil
}
