package forwardproxy

import (
	"fmt"

	"k8s.io/client-go/rest"
)

// CheckTLS fails if a configuration leads to its server without TLS. Then not even a certificate authority helps: an attacker on the
// network can answer in place of the server, and read what is sent to it.
func CheckTLS(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	if server.Scheme != "https" {
		return fmt.Errorf("%q is reached without TLS: an attacker on the way could read the credential and answer in place of the hub; use its address that "+
			"begins with https://", config.Host)
	}
	return nil
}

// CheckCredential is CheckTLS for configurations with a credential. Without one, as with "kubectl proxy", there is
// nothing to lose.
func CheckCredential(config *rest.Config) error {
	secret := config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.Password != "" ||
		config.CertFile != "" || len(config.CertData) > 0 || config.ExecProvider != nil || config.AuthProvider != nil
	if !secret {
		return nil
	}
	return CheckTLS(config)
}
