package options

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/namespaces"
)

// ClusterFlags choose clusters: --cluster names one, --clusters several; together they mean all of them.
type ClusterFlags struct {
	one  string
	many []string
}

// Add adds the flags to a command.
func (f *ClusterFlags) Add(global *Global, command *cobra.Command) {
	command.Flags().StringVarP(&f.one, "cluster", "c", "", "name of a cluster")
	command.Flags().StringSliceVar(&f.many, "clusters", nil, "names of clusters, separated by commas")
	Complete(command, "cluster", global.CompleteClusters)
	Complete(command, "clusters", global.completeClusterList)
}

// Names are the chosen clusters, each once, in the order they were given.
func (f *ClusterFlags) Names() ([]string, error) {
	var names []string
	for _, name := range append([]string{f.one}, f.many...) {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(names, name) {
			continue
		}
		if err := CheckClusterName("--clusters", name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Required are the chosen clusters; none is an error.
func (f *ClusterFlags) Required() ([]string, error) {
	names, err := f.Names()
	if err == nil && len(names) == 0 {
		err = errors.New("either --cluster or --clusters needs to be set; \"capstan get clusters\" lists those there are")
	}
	return names, err
}

// CheckClusterName says what is wrong with the name of a cluster: it is the name of a namespace on the hub, too.
func CheckClusterName(flag, name string) error {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %q is no name of a cluster: small letters, digits and dashes, a letter or digit at both ends, and at most %d characters, such "+
		"as cluster1",
		flag, name, validation.DNS1123LabelMaxLength)
}

// CheckCluster fails if nothing can be delivered to a cluster. It passes where clusters may not be read: the API refuses then.
func CheckCluster(ctx context.Context, hub *hubapi.Hub, name string) error {
	cluster, err := managedclusters.Get(ctx, hub, name)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	case cluster.Spec.HubAcceptsClient:
		return nil
	}
	exists, err := namespaces.Exists(ctx, hub, name)
	if err == nil && !exists {
		return fmt.Errorf("cluster %s has no namespace on the hub, because it is not accepted yet: \"capstan accept --clusters %s\" accepts it",
			name, name)
	}
	return err
}
