package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (a *app) addOnCommand() *cobra.Command {
	command := parent("addon", "Make add-ons of manifests, and deploy add-ons on clusters",
		a.addOnCreateCommand(), a.addOnDisableCommand(), a.addOnEnableCommand())
	command.Aliases = []string{"addons"}
	return command
}

// addOnFlags choose add-ons and the clusters they are for.
type addOnFlags struct {
	clusters clusterFlags
	names    []string
}

func (f *addOnFlags) add(a *app, command *cobra.Command) {
	f.clusters.add(a, command)
	command.Flags().StringSliceVar(&f.names, "names", nil, "names of add-ons, separated by commas")
	complete(command, "names", a.completeAddOnList)
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

// namesOf are the values of a list of names, each once.
func namesOf(flag string, values []string) ([]string, error) {
	var names []string
	for _, name := range values {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(names, name) {
			continue
		}
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			return nil, fmt.Errorf("%s: %q: %s", flag, name, strings.Join(why, "; "))
		}
		names = append(names, name)
	}
	return names, nil
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
