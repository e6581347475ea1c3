package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// addOnFlags choose add-ons and the clusters they are for.
type addOnFlags struct {
	*app
	clusters clusterFlags
	names    []string
}

func (f *addOnFlags) add(command *cobra.Command) {
	f.clusters.add(f.app, command)
	command.Flags().StringSliceVar(&f.names, "names", nil, "names of add-ons, separated by commas")
	complete(command, "names", f.completeAddOnList)
}

// completeAddOnList completes the last name of a list of add-ons.
func (f *addOnFlags) completeAddOnList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeList(typed, addOnNames(command.Context(), f.app))
}

// chosen are the add-ons and the clusters; none of either is an error.
func (f *addOnFlags) chosen() (names, clusters []string, err error) {
	if names, err = namesOf("--names", f.names); err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, errors.New("--names is missing: which add-ons; \"capstan get addon\" lists those there are")
	}
	clusters, err = f.clusters.required()
	return names, clusters, err
}

// checkLabels says what is wrong with labels from a flag.
func checkLabels(flag string, labels map[string]string) error {
	for key, value := range labels {
		why := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(why) > 0 {
			return fmt.Errorf("%s: %s=%s: %s", flag, key, value, strings.Join(why, "; "))
		}
	}
	return nil
}
