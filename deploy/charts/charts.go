// Package charts holds the Helm charts of Capstan: that of the hub's operator, that of the agent's, and that of a standalone hub.
package charts

import "embed"

// Files has a directory for each chart.
//
//go:embed all:capstan-hub all:cluster-manager all:klusterlet
var Files embed.FS
