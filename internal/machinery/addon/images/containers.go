package images

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// ContainerPattern matches the containers that an identifier means, as RESOURCE:NAME:CONTAINER. A * stands for anything; apart from that
// the identifier is a regular expression.
func ContainerPattern(containerID string) (*regexp.Regexp, error) {
	expression := "^(?:" + strings.ReplaceAll(containerID, "*", ".+") + ")$"
	if err := budget.Regexp(expression); err != nil {
		return nil, fmt.Errorf("containerID %s: %w", text.Quote(containerID), err)
	}
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("containerID %q is not of the form deployments:NAME:CONTAINER, where * stands for anything: %w", containerID, err)
	}
	return pattern, nil
}
