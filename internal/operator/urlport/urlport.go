// Package urlport tells at which ports API servers and proxies are reached, for the NetworkPolicies of pods that do.
package urlport

import (
	"net/url"
	"strconv"
)

// Of is the port of a URL, that of its scheme if it names none; 0 if neither is known.
func Of(address string) int32 {
	parsed, err := url.Parse(address)
	if err != nil {
		return 0
	}
	if port, err := strconv.ParseUint(parsed.Port(), 10, 16); err == nil {
		return int32(port)
	}
	switch parsed.Scheme {
	case "https":
		return 443
	case "http":
		return 80
	case "socks5":
		return 1080
	}
	return 0
}
