package program

import (
	"os"
	"strings"
)

// podNamespaceFile is where a pod finds the name of its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace is that of the pod in which the program runs, or the given one outside of pods.
func Namespace(otherwise string) string {
	if namespace, err := os.ReadFile(podNamespaceFile); err == nil {
		return strings.TrimSpace(string(namespace))
	}
	return otherwise
}
