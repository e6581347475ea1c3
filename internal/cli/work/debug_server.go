package work

import (
	"fmt"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// debugServer is where the placement controllers of a hub in an existing cluster serve reports: next to its API server.
type debugServer struct {
	// URL of it. It gets the credentials for the API server, so it must start with https://.
	URL string
	// CAFile has PEM certificates to verify it with; empty means those of the system.
	CAFile string
	// Name is the host name that its certificate is for; empty means that of the URL.
	Name string
}

// connect returns a client of the debug server, with the credentials that lead to the target. What it returns can explain
// placements, and nothing else.
func (d debugServer) connect(target hubapi.Target) (*hubapi.Hub, error) {
	config, source, err := target.Resolve()
	if err != nil {
		return nil, err
	}
	if config, err = d.redirect(config); err != nil {
		return nil, err
	}
	hub, err := hubapi.New(config)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", source, err)
	}
	source.DebugServer = true
	hub.Source = source
	return hub, nil
}

// redirect keeps the credentials of a config.
func (d debugServer) redirect(config *rest.Config) (*rest.Config, error) {
	if u, err := url.Parse(d.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--debug-server: %q is no URL such as https://localhost:9443", d.URL)
	}
	config = rest.CopyConfig(config)
	config.Host, config.APIPath, config.Proxy = d.URL, "", nil
	config.Insecure, config.ServerName, config.CAFile, config.CAData = false, d.Name, "", nil
	if d.CAFile == "" {
		return config, nil
	}
	bundle, err := os.ReadFile(d.CAFile)
	if err == nil {
		_, err = certutil.ParseCertsPEM(bundle)
	}
	if err != nil {
		return nil, fmt.Errorf("--debug-server-ca: %s: %w; name a file of PEM certificates", d.CAFile, err)
	}
	config.CAData = bundle
	return config, nil
}
