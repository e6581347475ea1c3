package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckNamespaceName says what is wrong with the name of a namespace.
func CheckNamespaceName(flag, name string) error {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %q is no name of a namespace: small letters, digits and dashes, a letter or digit at both ends, and at most %d characters",
		flag, name, validation.DNS1123LabelMaxLength)
}

// FilterByName narrows a list to the objects of some names, all of them if there are none. One that is missing is an
// error, which names the command that lists those there are.
func FilterByName[T any, P interface {
	*T
	metav1.Object
}](items []T, names []string, kind, list string) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(items, func(item T) bool { return P(&item).GetName() == name }) {
			return nil, fmt.Errorf("%s %q is not there: %q lists those that are", kind, name, list)
		}
	}
	return slices.DeleteFunc(items, func(item T) bool { return !slices.Contains(names, P(&item).GetName()) }), nil
}

// NamesOf are the values of a list of names, each once.
func NamesOf(flag string, values []string) ([]string, error) {
	var names []string
	for _, name := range values {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(names, name) {
			continue
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %q: %s", flag, name, strings.Join(problems, "; "))
		}
		names = append(names, name)
	}
	return names, nil
}

// ParsePlacementRef reads NAMESPACE/NAME.
func ParsePlacementRef(flag, text string) (*types.NamespacedName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%s: %q: must be the namespace and the name of a placement, such as default/web; \"capstan get placements\" lists those there are",
			flag, text)
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// ExactName accepts one argument that can be the name of an object.
func ExactName(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d names given, want 1: %s", len(args), command.UseLine())
	}
	if namespace, name, found := strings.Cut(args[0], "/"); found && command.Flags().Lookup("namespace") != nil {
		return fmt.Errorf("NAME: %q: the namespace has a flag of its own: %s --namespace %s", args[0], name, namespace)
	}
	return checkObjectName(args[0])
}

// checkObjectName says what is wrong with the name of an object.
func checkObjectName(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("NAME: %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// FlagError says which flag led to an error.
func FlagError(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}
