package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"syscall"
)

// listen opens the port of the API server.
func (o *Options) listen(ctx context.Context, a address) (net.Listener, error) {
	host := o.serving.BindAddress.String()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(a.listen)))
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%w; set --bind-address to an address of this machine", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; set apiserver.port in %s to a port that this user may open, such as 9443", err, o.Config.File)
	default:
		return nil, fmt.Errorf("%w; stop what uses port %d, or set another apiserver.port in %s", err, a.listen, o.Config.File)
	}
}
