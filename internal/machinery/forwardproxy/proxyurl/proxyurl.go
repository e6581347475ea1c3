// Package proxyurl reads URLs of proxies, without a client.
package proxyurl

import (
	"net/url"
	"slices"
)

// Schemes are those of the URLs of proxies that clients of Kubernetes can use.
var Schemes = []string{"http", "https", "socks5"}

// Parse returns the URL of a proxy; false if the text is none. An error would have the whole text in it, and so a password.
func Parse(text string) (*url.URL, bool) {
	proxy, err := url.Parse(text)
	if err != nil || proxy.Host == "" || !slices.Contains(Schemes, proxy.Scheme) {
		return nil, false
	}
	return proxy, true
}
