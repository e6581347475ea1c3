package controlplane

import (
	"context"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/controlplane/scope"
)

// refusals are of agents and add-ons that are not let in any more, or not with what they have.
type refusals struct {
	cutOff      *scope.CutOff
	credentials *scope.Credentials
	suspension  *scope.Suspension
	// wait is of those whom they may be of, until that is known.
	wait *scope.Wait
}

func newRefusals() refusals {
	r := refusals{cutOff: scope.NewCutOff(), credentials: scope.NewCredentials(), suspension: scope.NewSuspension()}
	r.wait = scope.NewWait(r.cutOff, r.credentials, r.suspension)
	return r
}

// follow has the API server know whom to refuse, until ctx ends.
func (r refusals) follow(ctx context.Context, loopback *rest.Config) error {
	objects, err := dynamic.NewForConfig(loopback)
	if err != nil {
		return err
	}
	metadataOnly, err := metadata.NewForConfig(loopback)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.cutOff.Run(ctx, objects) })
	group.Go(func() error { return r.credentials.Run(ctx, metadataOnly) })
	group.Go(func() error { return r.suspension.Run(ctx, objects) })
	return group.Wait()
}
