package images

import (
	"fmt"
	"regexp"

	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// wildcard is a * that is no part of a regular expression, such as .* or [a-z]*: the first character of a part or of an alternative, or one
// after a character that names have.
var wildcard = regexp.MustCompile(`(^|[a-zA-Z0-9:(|-])\*+`)

// ContainerPattern matches the containers that an identifier means, as RESOURCE:NAME:CONTAINER. A wildcard stands for anything; apart from
// that the identifier is a regular expression.
func ContainerPattern(containerID string) (*regexp.Regexp, error) {
	expression := "^(?:" + wildcard.ReplaceAllString(containerID, "${1}.+") + ")$"
	if err := budget.Regexp(expression); err != nil {
		return nil, fmt.Errorf("containerID %s: %w", text.Quote(containerID), err)
	}
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("containerID %q is not of the form deployments:NAME:CONTAINER, where * stands for anything: %w", containerID, err)
	}
	return pattern, nil
}
