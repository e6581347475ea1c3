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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// ownCredentialFor is what the user authenticates with at a server of the hub: its API, or its user server. Nobody else may get it.
func ownCredentialFor(ctx context.Context, hub *hubapi.Hub, server *rest.Config) (*clientauthenticationv1.ExecCredentialStatus, error) {
	if err := checkIsOfHub(ctx, hub, server); err != nil {
		return nil, fmt.Errorf("%s: spec.cluster: %w; --managed-serviceaccount prints the token of an account on the cluster", execInfo, err)
	}
	return ownCredential(ctx, hub)
}

func checkIsOfHub(ctx context.Context, hub *hubapi.Hub, server *rest.Config) error {
	if !isUserServer(server) {
		return checkServedByHub(server, hub.Config(), "the kubeconfig")
	}
	known, err := userServer(ctx, hub)
	if err != nil {
		return err
	}
	return checkServedByHub(server, known, "APIService "+apiServiceOfProxy)
}

// The user server of a hub in an existing cluster is a Service, next to the one that the APIService names: the same process, with the same
// certificate. It takes the tokens of the hub and the client certificates of its authority, as the API does.
const (
	userServerService = "cluster-proxy-addon-user"
	userServerPort    = "9092"
)

var apiServiceOfProxy = api.Aggregated.Version + "." + api.Aggregated.Group

func isUserServer(server *rest.Config) bool {
	address, err := addressOf(server)
	return err == nil && strings.HasPrefix(address, "https://"+userServerService+".")
}

// userServer is the one of the hub, by its APIService, which nobody but administrators and the process itself can write.
func userServer(ctx context.Context, hub *hubapi.Hub) (*rest.Config, error) {
	var service struct {
		Spec struct {
			CABundle []byte `json:"caBundle"`
			Service  struct {
				Namespace string `json:"namespace"`
			} `json:"service"`
		} `json:"spec"`
	}
	err := hub.ReadIfServed(ctx, &service, "/apis/apiregistration.k8s.io/v1/apiservices", apiServiceOfProxy)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nClusterRole open-cluster-management:cluster-proxy:user of the chart cluster-proxy lets users read it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("find out who the user server of the hub is: %w", err)
	}
	namespace, ca := service.Spec.Service.Namespace, service.Spec.CABundle
	if namespace == "" || len(ca) == 0 {
		return nil, fmt.Errorf("the hub has no APIService %s with spec.service and spec.caBundle, which say who its user server is",
			apiServiceOfProxy)
	}
	return &rest.Config{Host: "https://" + userServerService + "." + namespace + ":" + userServerPort,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil
}

// checkServedByHub makes sure that a server is the hub, as it is known by something, and is verified as the hub is.
func checkServedByHub(server, hub *rest.Config, by string) error {
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
	return checkVerifiedAs(server, hub, by)
}

// checkVerifiedAs makes sure that what proves to be the server also proves to be the hub.
func checkVerifiedAs(server, hub *rest.Config, by string) error {
	if server.Insecure || server.ServerName != hub.ServerName {
		return fmt.Errorf("the server %s is not to be verified in the way in which %s verifies the hub", server.Host, by)
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
		return fmt.Errorf("the server %s is without the certificate authority by which %s verifies the hub", server.Host, by)
	}
	for _, authority := range named {
		if !slices.ContainsFunc(trusted, authority.Equal) {
			return fmt.Errorf("the certificate authority %q of the server %s is none of those of the hub in %s",
				authority.Subject, server.Host, by)
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
