package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/sandbox/nodesim"
)

// DefaultName is the name of a sandbox whose options have none.
const DefaultName = "sandbox"

// Options say what cluster Start runs and where it lives.
type Options struct {
	// DataDir holds everything the cluster keeps: database, keys, kubeconfig. It is
	// created if it is missing, and used by one process at a time. Required.
	DataDir string
	// Port on 127.0.0.1 to serve at. 0 means a free one, which is remembered in
	// DataDir and used again by later starts.
	Port int
	// Nodes is how many simulated nodes there are; 0 means 1.
	Nodes int
	// Name is the context, cluster and user in the kubeconfig; empty means
	// DefaultName.
	Name string
}

// complete returns o with its defaults, or all that is wrong with it.
func (o Options) complete() (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	var errs []error
	if o.DataDir == "" {
		errs = append(errs, errors.New("data-dir: empty: name the directory to keep the cluster in"))
	} else if abs, err := filepath.Abs(o.DataDir); err != nil {
		errs = append(errs, fmt.Errorf("data-dir: %q: %w", o.DataDir, err))
	} else {
		o.DataDir = abs
	}
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("port: %d: must be between 1 and 65535, or 0 for a free one", o.Port))
	}
	if o.Nodes < 1 || o.Nodes > nodesim.MaxNodes {
		errs = append(errs, fmt.Errorf("nodes: %d: must be between 1 and %d", o.Nodes, nodesim.MaxNodes))
	}
	if why := validation.IsDNS1123Subdomain(o.Name); len(why) > 0 {
		errs = append(errs, fmt.Errorf("name: %q: %s", o.Name, strings.Join(why, "; ")))
	}
	return o, errors.Join(errs...)
}
