package fleet

import (
	"fmt"
	"regexp"
)

// TokenInfrastructureReadyMessage is the message of a true ConditionTokenInfrastructureReady. Agents read the UID of the service
// account from it: one that was created again has other tokens.
func TokenInfrastructureReadyMessage(namespace, name, uid string) string {
	return fmt.Sprintf("ServiceAccount %s/%s (UID: %s) is ready", namespace, name, uid)
}

var uidInMessage = regexp.MustCompile(`UID: ([0-9A-Za-z-]+)`)

// TokenInfrastructureUID is the UID in such a message; empty if there is none.
func TokenInfrastructureUID(message string) string {
	found := uidInMessage.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	return found[1]
}
