package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// servePortForward makes of a request a connection to an address as the agent of a cluster reaches it: that of its API server.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, name string) error {
	if err := s.checkAPIServers(); err != nil {
		return err
	}
	address := r.URL.Query().Get(api.QueryAddress)
	if _, _, err := net.SplitHostPort(address); err != nil {
		return apierrors.NewBadRequest("the query has to have " + api.QueryAddress + "=HOST:PORT: " + err.Error())
	}
	if err := s.clusters.allow(r.Context(), name); err != nil {
		return err
	}
	there, err := s.DialCluster(r.Context(), name, address)
	if err != nil {
		return s.clusters.explain(r.Context(), name, err)
	}
	defer func() { _ = there.Close() }()
	here, err := tunnel.TakeOver(w, r, api.ProtocolPortForward)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	join(r.Context(), here, there)
	return nil
}

// serveStream makes of a request of another process of the hub a stream to the agent of a cluster, in a tunnel of this process.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, name string) error {
	who, _ := request.UserFrom(r.Context())
	if who == nil || s.peers == nil || who.GetName() != s.peers.User {
		return apierrors.NewForbidden(managedClusters, name, errors.New("only another process of the hub opens streams, whose requests are of any user"))
	}
	there, err := s.openHere(name)
	if err != nil {
		return apierrors.NewNotFound(managedClusters, name)
	}
	defer func() { _ = there.Close() }()
	here, err := tunnel.TakeOver(w, r, api.ProtocolStream)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	join(r.Context(), here, there)
	return nil
}

// join copies both ways until one of the connections ends, which ends the other, or the context, which ends when the user has lost the
// right to go on.
func join(ctx context.Context, here, there net.Conn) {
	ctx, end := context.WithCancel(ctx)
	copied := func(to, from net.Conn) {
		defer end()
		_, _ = io.Copy(to, from)
	}
	go copied(here, there)
	go copied(there, here)
	<-ctx.Done()
	_ = here.Close()
	_ = there.Close()
}
