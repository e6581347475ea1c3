package hubapi

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/reach/api"
)

// reached is how a hub lets its clients reach clusters, once that has been read.
type reached struct {
	mu      sync.Mutex
	version schema.GroupVersion
}

// ReachVersion is the version of the API by which clusters are reached. It is read from the hub, once.
func (h *Hub) ReachVersion(ctx context.Context) (schema.GroupVersion, error) {
	h.reached.mu.Lock()
	defer h.reached.mu.Unlock()
	if h.reached.version.Empty() {
		version, err := api.Served(ctx, h.client.Config, h.client.HTTP)
		if err != nil {
			return version, h.Explain("find out how clusters are reached", err)
		}
		h.reached.version = version
	}
	return h.reached.version, nil
}
