package install

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
)

// klusterlets are those of a cluster; one without the kind has none.
func klusterlets(ctx context.Context, cluster *Cluster) ([]operatorv1.Klusterlet, error) {
	objects, err := cluster.List(ctx, installation.KindKlusterlet, "", "")
	if err != nil {
		return nil, err
	}
	found := make([]operatorv1.Klusterlet, len(objects))
	for i := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &found[i]); err != nil {
			return nil, fmt.Errorf("read Klusterlet %s: %w", objects[i].GetName(), err)
		}
	}
	return found, nil
}

// hosted tells whether an agent runs in another cluster than the one that it is for.
func hosted(klusterlet *operatorv1.Klusterlet) bool {
	mode := klusterlet.Spec.DeployOption.Mode
	return mode == operatorv1.InstallModeHosted || mode == operatorv1.InstallModeSingletonHosted
}

// flagNames are the names of a command's own flags.
func flagNames(command *cobra.Command) []string {
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}
