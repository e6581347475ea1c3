// Package charts holds the Helm charts of Capstan: that of the hub's operator, that of the agent's, that of a standalone hub, and those of
// add-ons.
package charts

import "embed"

// Files has a directory for each chart.
//
//go:embed all:capstan-hub all:cluster-gateway-addon-manager all:cluster-manager all:cluster-proxy all:klusterlet all:managed-serviceaccount
//go:embed all:resource-usage-collect-addon
var Files embed.FS
