// Package addons has the commands that make add-ons of manifests, deploy add-ons on clusters, take them off, and show them.
package addons

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// addOnFlags choose add-ons and the clusters they are for.
type addOnFlags struct {
	*options.Global
	clusters options.ClusterFlags
	names    []string
}

func (f *addOnFlags) add(command *cobra.Command) {
	f.clusters.Add(f.Global, command)
	command.Flags().StringSliceVar(&f.names, "names", nil, "names of add-ons, separated by commas")
	options.Complete(command, "names", f.completeAddOnList)
}

// completeAddOnList completes the last name of a list of add-ons.
func (f *addOnFlags) completeAddOnList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return options.CompleteList(typed, addOnNames(command.Context(), f.Global))
}

// chosen are the add-ons and the clusters; none of either is an error.
func (f *addOnFlags) chosen() (names, clusters []string, err error) {
	if names, err = options.NamesOf("--names", f.names); err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, errors.New("--names is missing: which add-ons; \"capstan get addon\" lists those there are")
	}
	clusters, err = f.clusters.Required()
	return names, clusters, err
}

// checkLabels says what is wrong with labels from a flag.
func checkLabels(flag string, labels map[string]string) error {
	for key, value := range labels {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(problems) > 0 {
			return fmt.Errorf("%s: %s=%s: %s", flag, key, value, strings.Join(problems, "; "))
		}
	}
	return nil
}
