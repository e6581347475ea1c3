package ocmconfig

import (
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

func (c *Config) validate(d *document, inCluster bool) {
	if c.DataDirectory == "" {
		d.invalid("dataDirectory", "must name a folder")
	}
	c.APIServer.validate(d, inCluster)
	c.Etcd.validate(d)
	c.Aggregator.validate(d)
}

func (a *APIServer) validate(d *document, inCluster bool) {
	if host := a.ExternalHostname; host != "" && net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		d.invalid("apiserver.externalHostname",
			"%q is neither a host name nor an IP address; give the bare name, without https:// and without a port", host)
	}
	lowest := 1
	if inCluster {
		lowest = 0
	}
	if a.Port < lowest || a.Port > 65535 {
		d.invalid("apiserver.port", "%d is no port; use %d to 65535", a.Port, lowest)
	}
	d.together(map[string]string{"apiserver.caFile": a.CAFile, "apiserver.caKeyFile": a.CAKeyFile})
}

func (e *Etcd) validate(d *document) {
	switch e.Mode {
	case EtcdEmbed:
		for _, field := range []string{"servers", "caFile", "certFile", "keyFile"} {
			if d.has("etcd." + field) {
				d.invalid("etcd."+field, "is for etcd.mode external; the embedded etcd needs no such setting")
			}
		}
	case EtcdExternal:
		e.validateExternal(d)
	default:
		d.invalid("etcd.mode", "%q is unknown; use %s or %s", e.Mode, EtcdEmbed, EtcdExternal)
	}
	if !strings.HasPrefix(e.Prefix, "/") || path.Clean(e.Prefix) != e.Prefix || e.Prefix == "/" {
		d.invalid("etcd.prefix", "%q must be a path such as /registry, with a slash before and none after", e.Prefix)
	}
}

func (e *Etcd) validateExternal(d *document) {
	if len(e.Servers) == 0 {
		d.invalid("etcd.servers", "must name at least one server, such as https://etcd.example.com:2379")
	}
	for _, server := range e.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Host+u.Path == "" || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix") {
			d.invalid("etcd.servers", "%q is no etcd server; write it as https://HOST:PORT", server)
			continue
		}
		if u.Scheme != "https" && (e.CAFile != "" || e.CertFile != "") {
			d.invalid("etcd.servers", "%q is not encrypted, but etcd.caFile or etcd.certFile is given; use https://", server)
		}
	}
	d.readable("etcd.caFile", e.CAFile)
	d.together(map[string]string{"etcd.certFile": e.CertFile, "etcd.keyFile": e.KeyFile})
}

func (a *Aggregator) validate(d *document) {
	d.together(map[string]string{
		"aggregator.proxyClientCertFile":       a.ProxyClientCertFile,
		"aggregator.proxyClientKeyFile":        a.ProxyClientKeyFile,
		"aggregator.requestheaderClientCAFile": a.RequestheaderClientCAFile,
	})
	if a.RequestheaderClientCAFile != "" && len(a.RequestheaderAllowedNames) == 0 {
		d.invalid("aggregator.requestheaderAllowedNames",
			"is missing: the holder of any certificate of aggregator.requestheaderClientCAFile could act as any user, "+
				"administrators too; list the common names of the proxies, that of aggregator.proxyClientCertFile among them")
	}
	for _, name := range a.RequestheaderAllowedNames {
		if name == "" {
			d.invalid("aggregator.requestheaderAllowedNames", "%q is no common name of a proxy's certificate", name)
		}
	}
	for field, headers := range map[string][]string{
		"aggregator.requestheaderUsernameHeaders":    a.RequestheaderUsernameHeaders,
		"aggregator.requestheaderGroupHeaders":       a.RequestheaderGroupHeaders,
		"aggregator.requestheaderExtraHeadersPrefix": a.RequestheaderExtraHeadersPrefix,
	} {
		for _, header := range headers {
			if len(validation.IsHTTPHeaderName(header)) > 0 {
				d.invalid(field, "%q is no name of an HTTP header", header)
			}
		}
	}
	for service, address := range a.ServiceAddresses {
		if namespace, name, ok := strings.Cut(service, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			d.invalid("aggregator.serviceAddresses", "%q must be NAMESPACE/NAME of a service", service)
		}
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			d.invalid("aggregator.serviceAddresses", "%q must be HOST:PORT", address)
		}
	}
}

// together demands that of fields naming files either all are given, and can be read, or none.
func (d *document) together(files map[string]string) {
	given := 0
	for _, file := range files {
		if file != "" {
			given++
		}
	}
	for field, file := range files {
		if file == "" && given > 0 {
			d.invalid(field, "is missing; it is needed with %s", strings.Join(others(files, field), " and "))
		}
		d.readable(field, file)
	}
}

func others(files map[string]string, field string) []string {
	var names []string
	for name, file := range files {
		if name != field && file != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *document) readable(field, file string) {
	if file == "" {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		d.invalid(field, "cannot be read: %v", err)
		return
	}
	_ = f.Close()
}
