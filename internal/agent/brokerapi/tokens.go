package brokerapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// tokenTimeout is how long the hub may take to make a token.
const tokenTimeout = 10 * time.Second

// requestToken has the hub make a token.
func (a *API) requestToken(r *request) (*http.Response, error) {
	o, err := r.object()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), tokenTimeout, status.Errorf(codes.DeadlineExceeded,
		"the hub has not answered to the request for a token of service account %s/%s for %s", r.namespace, r.name, tokenTimeout))
	defer cancel()
	id := uuid.NewString()
	o.SetGroupVersionKind(tokenRequest.WithKind(r.kind.name))
	o.SetName(r.name)
	o.SetNamespace(r.namespace)
	o.SetUID(types.UID(id))
	subscription, err := a.Broker.Subscribe(ctx, a.Cluster, r.kind.dataType)
	if err != nil {
		return nil, err
	}
	defer subscription.Close()
	answer := make(chan tokenAnswer, 1)
	go func() {
		body, err := receiveToken(subscription, id)
		answer <- tokenAnswer{body, err}
	}()
	event, err := a.event(r.kind, cloudevents.Spec, cloudevents.Create, o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := a.publish(ctx, event); err != nil {
		return nil, err
	}
	got := <-answer // the subscription ends with the context
	switch {
	case got.err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case got.err != nil:
		return nil, got.err
	}
	return respond(r.Request, http.StatusCreated, got.body), nil
}

type tokenAnswer struct {
	body []byte
	err  error
}

// receiveToken returns the answer to the request of an ID.
func receiveToken(subscription cloudevents.Subscription, id string) ([]byte, error) {
	for {
		event, err := subscription.Receive()
		if err != nil {
			return nil, err
		}
		if event.Text(cloudevents.ExtensionResourceID) == id && len(event.Data) > 0 {
			return event.Data, nil
		}
	}
}
