package reach

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// checkServedByHub makes sure that a server is the hub, and is verified as the hub is: nobody else may get the credential for it.
func checkServedByHub(server, hub *rest.Config) error {
	named, err := addressOf(server)
	if err != nil {
		return fmt.Errorf("the server %q: %w", server.Host, err)
	}
	wanted, err := addressOf(hub)
	if err != nil {
		return fmt.Errorf("the server of the hub, %q: %w", hub.Host, err)
	}
	if named != wanted {
		return fmt.Errorf("the server %s is not that of the hub, %s, whose credentials are for nobody else", server.Host, hub.Host)
	}
	if hub.Insecure {
		if server.Insecure && server.Proxy != nil {
			return fmt.Errorf("the server %s is reached by a proxy and not verified, so the proxy would get the credential", server.Host)
		}
		return nil
	}
	return checkVerifiedAs(server, hub)
}

// checkVerifiedAs makes sure that what proves to be the server also proves to be the hub.
func checkVerifiedAs(server, hub *rest.Config) error {
	if server.Insecure || server.ServerName != hub.ServerName {
		return fmt.Errorf("the server %s is not to be verified in the way in which the kubeconfig verifies the hub", server.Host)
	}
	trusted, err := certificates(hub.CAData)
	if err != nil {
		return fmt.Errorf("certificate authority of the hub: %w", err)
	}
	named, err := certificates(server.CAData)
	if err != nil {
		return fmt.Errorf("certificate authority of %s: %w", server.Host, err)
	}
	if len(named) == 0 && len(trusted) > 0 {
		return fmt.Errorf("the server %s is without the certificate authority by which the kubeconfig verifies the hub", server.Host)
	}
	for _, authority := range named {
		if !slices.ContainsFunc(trusted, authority.Equal) {
			return fmt.Errorf("the certificate authority %q of the server %s is none of those of the hub in the kubeconfig",
				authority.Subject, server.Host)
		}
	}
	return nil
}

// addressOf is the scheme, the host and the port that a client connects to, which are all that tells servers from each other.
func addressOf(config *rest.Config) (string, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", err
	}
	address := server.Scheme + "://" + strings.ToLower(server.Host)
	if server.Scheme == "https" && server.Port() == "" {
		address += ":443"
	}
	return address, nil
}

func certificates(pemData []byte) ([]*x509.Certificate, error) {
	if len(pemData) == 0 {
		return nil, nil
	}
	return cert.ParseCertsPEM(pemData)
}

// ownCredential is what the user of the hub authenticates with, as a credential plugin hands it over: a token, a certificate, or what the
// plugin of the kubeconfig returns.
func ownCredential(ctx context.Context, hub *hubapi.Hub) (*clientauthenticationv1.ExecCredentialStatus, error) {
	config := hub.Config()
	if config.Impersonate.UserName != "" {
		return nil, errors.New("the kubeconfig acts for another user (as), which a credential plugin cannot hand over")
	}
	connection, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	status := &clientauthenticationv1.ExecCredentialStatus{}
	server, err := addressOf(config)
	if err != nil {
		return nil, err
	}
	if status.Token, err = bearerToken(ctx, connection, server); err != nil {
		return nil, err
	}
	if status.Token != "" {
		status.ExpirationTimestamp = expiryOf(status.Token)
		return status, nil
	}
	chain, key, err := clientCertificate(connection)
	if err != nil {
		return nil, err
	}
	if len(chain) == 0 || len(key) == 0 {
		return nil, errors.New("the kubeconfig has neither a token nor a certificate for the hub: a credential plugin hands over nothing else")
	}
	parsed, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return nil, fmt.Errorf("the certificate for the hub: %w", err)
	}
	end := metav1.NewTime(parsed[0].NotAfter)
	status.ClientCertificateData, status.ClientKeyData, status.ExpirationTimestamp = string(chain), string(key), &end
	return status, nil
}

// bearerToken is the token that a request to the hub would have; nothing is sent there.
func bearerToken(ctx context.Context, connection *transport.Config, server string) (string, error) {
	sent := &unsent{}
	through, err := transport.HTTPWrappersForConfig(connection, sent)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := through.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("get the credential for the hub: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return "", err
	}
	token, _ := strings.CutPrefix(sent.authorization, "Bearer ")
	if token == sent.authorization {
		return "", nil // none, or a password
	}
	return token, nil
}

// unsent takes what a request has been authenticated with, and answers it.
type unsent struct{ authorization string }

// RoundTrip implements http.RoundTripper.
func (u *unsent) RoundTrip(r *http.Request) (*http.Response, error) {
	u.authorization = r.Header.Get("Authorization")
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// clientCertificate is the chain and the key that the client would prove itself with, in PEM; empty without one.
func clientCertificate(connection *transport.Config) (chain, key []byte, err error) {
	if connection.TLS.GetCertHolder == nil {
		return connection.TLS.CertData, connection.TLS.KeyData, nil
	}
	of, err := connection.TLS.GetCertHolder.GetCert()
	if err != nil || of == nil || len(of.Certificate) == 0 {
		return nil, nil, err
	}
	for _, certificate := range of.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})...)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(of.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}
