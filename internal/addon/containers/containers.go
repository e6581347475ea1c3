// Package containers reads the identifiers of containers in AddOnDeploymentConfigs.
package containers

import (
	"fmt"
	"regexp"
	"strings"
)

// Pattern matches the containers that an identifier means, as RESOURCE:NAME:CONTAINER. A * stands for anything; apart from that the
// identifier is a regular expression.
func Pattern(containerID string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile("^(?:" + strings.ReplaceAll(containerID, "*", ".+") + ")$")
	if err != nil {
		return nil, fmt.Errorf("containerID %q is not of the form deployments:NAME:CONTAINER, where * stands for anything: %w", containerID, err)
	}
	return pattern, nil
}
