// Package clustersecret reads the Secrets that say how clusters are reached, and shows them as ClusterGateways. It is pure.
package clustersecret

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxyurl"
	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
)

const (
	// TunnelAddress is the API server as the agent at the end of a tunnel knows it.
	TunnelAddress = tunnelHost + ":443"
	tunnelHost    = "kubernetes.default.svc"
)

// Cluster is how a cluster is reached, and as whom.
type Cluster struct {
	// Name is that of the cluster, and of the Secret.
	Name string
	// Tunnel says that the cluster is reached through the tunnel that its agent keeps open.
	Tunnel bool
	// Endpoint is the URL of its API server.
	Endpoint *url.URL
	// Proxy is the forward proxy before it, if not nil.
	Proxy *url.URL
	// ServerName is for whom the certificate of the API server has to be; empty means the host of the endpoint.
	ServerName string
	// CA signs that certificate, in PEM. Without one nothing is verified, which goes for endpoints alone that are dialled directly.
	CA []byte
	// Token, Certificate with PrivateKey, or Exec are the credential.
	Token                   string
	Certificate, PrivateKey []byte
	Exec                    *api.ExecConfig
	// Rules say who callers are on this cluster; nil says nothing about it.
	Rules *identity.Exchanger
}

// Insecure says that nobody knows whether it is the cluster that answers.
func (c *Cluster) Insecure() bool { return len(c.CA) == 0 }

// Parse reads a Secret. The error has all that is wrong with it, by keys, labels and annotations.
func Parse(secret *corev1.Secret) (*Cluster, error) {
	c := &Cluster{Name: secret.Name}
	err := errors.Join(c.readEndpoint(secret), c.readCA(secret), c.readCredential(secret), c.readRules(secret))
	if err != nil {
		return nil, &ProblemError{Secret: secret.Namespace + "/" + secret.Name, Problems: err}
	}
	return c, nil
}

// ProblemError is what is wrong with a Secret.
type ProblemError struct {
	Secret   string
	Problems error
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("Secret %s: %s", e.Secret, strings.ReplaceAll(e.Problems.Error(), "\n", "; "))
}

func (e *ProblemError) Unwrap() error { return e.Problems }

func endpointType(secret *corev1.Secret) gatewayv1alpha1.ClusterEndpointType {
	if label := secret.Labels[gatewayv1alpha1.LabelEndpointType]; label != "" {
		return gatewayv1alpha1.ClusterEndpointType(label)
	}
	return gatewayv1alpha1.EndpointConst
}

func (c *Cluster) readEndpoint(secret *corev1.Secret) error {
	switch kind := endpointType(secret); kind {
	case gatewayv1alpha1.EndpointClusterProxy:
		c.Tunnel, c.ServerName = true, tunnelHost
		c.Endpoint = &url.URL{Scheme: "https", Host: TunnelAddress}
		return nil
	case gatewayv1alpha1.EndpointConst:
		return errors.Join(c.readAddress(secret), c.readProxy(secret))
	default:
		return fmt.Errorf("label %s is %q; use %s or %s", gatewayv1alpha1.LabelEndpointType, kind, gatewayv1alpha1.EndpointConst,
			gatewayv1alpha1.EndpointClusterProxy)
	}
}

func (c *Cluster) readAddress(secret *corev1.Secret) error {
	const advice = "set it to the URL of the API server, such as https://api.example.com:6443"
	text := strings.TrimSpace(string(secret.Data[gatewayv1alpha1.KeyEndpoint]))
	if text == "" {
		return fmt.Errorf("key %s is missing; %s, or the label %s to %s for a cluster with a tunnel", gatewayv1alpha1.KeyEndpoint, advice,
			gatewayv1alpha1.LabelEndpointType, gatewayv1alpha1.EndpointClusterProxy)
	}
	endpoint, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("key %s is no URL; %s", gatewayv1alpha1.KeyEndpoint, advice)
	}
	if endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		return fmt.Errorf("key %s is %q; %s", gatewayv1alpha1.KeyEndpoint, endpoint.Redacted(), advice)
	}
	endpoint.Path, endpoint.RawPath = strings.TrimRight(endpoint.Path, "/"), strings.TrimRight(endpoint.RawPath, "/")
	c.Endpoint = endpoint
	return nil
}

func (c *Cluster) readProxy(secret *corev1.Secret) error {
	text := strings.TrimSpace(string(secret.Data[gatewayv1alpha1.KeyProxyURL]))
	if text == "" {
		return nil
	}
	proxy, ok := proxyurl.Parse(text)
	if !ok {
		return fmt.Errorf("key %s is no URL of a proxy; use one with %s, such as http://proxy.example.com:3128", gatewayv1alpha1.KeyProxyURL,
			strings.Join(proxyurl.Schemes, ", "))
	}
	c.Proxy = proxy
	return nil
}

func caOf(secret *corev1.Secret) []byte {
	if ca := secret.Data[gatewayv1alpha1.KeyCA]; len(ca) > 0 {
		return ca
	}
	return secret.Data[gatewayv1alpha1.KeyCAShort]
}

func (c *Cluster) readCA(secret *corev1.Secret) error {
	c.CA = caOf(secret)
	if len(c.CA) == 0 {
		if c.Tunnel {
			return fmt.Errorf("key %s is missing; set it to the CA of the cluster: what is at the other end of a tunnel has to be verified",
				gatewayv1alpha1.KeyCA)
		}
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(c.CA) {
		return fmt.Errorf("key %s has no certificate in PEM", gatewayv1alpha1.KeyCA)
	}
	return nil
}

func (c *Cluster) readCredential(secret *corev1.Secret) error {
	switch kind := gatewayv1alpha1.CredentialType(secret.Labels[gatewayv1alpha1.LabelCredentialType]); kind {
	case gatewayv1alpha1.CredentialServiceAccountToken:
		c.Token = strings.TrimSpace(string(secret.Data[gatewayv1alpha1.KeyToken]))
		if c.Token == "" {
			return fmt.Errorf("key %s is missing; set it to the token of a service account of the cluster", gatewayv1alpha1.KeyToken)
		}
		if strings.ContainsAny(c.Token, "\r\n") {
			return fmt.Errorf("key %s has more than one line", gatewayv1alpha1.KeyToken)
		}
		return nil
	case gatewayv1alpha1.CredentialX509Certificate:
		c.Certificate, c.PrivateKey = secret.Data[gatewayv1alpha1.KeyCertificate], secret.Data[gatewayv1alpha1.KeyPrivateKey]
		if _, err := tls.X509KeyPair(c.Certificate, c.PrivateKey); err != nil {
			// The error may quote what it could not read.
			return fmt.Errorf("keys %s and %s are no certificate with its private key, both in PEM", gatewayv1alpha1.KeyCertificate,
				gatewayv1alpha1.KeyPrivateKey)
		}
		return nil
	case gatewayv1alpha1.CredentialDynamic:
		return c.readExec(secret)
	default:
		return fmt.Errorf("label %s is %q; use %s, %s or %s", gatewayv1alpha1.LabelCredentialType, kind,
			gatewayv1alpha1.CredentialServiceAccountToken, gatewayv1alpha1.CredentialX509Certificate, gatewayv1alpha1.CredentialDynamic)
	}
}

// readExec reads the part of a kubeconfig that says which command returns the credential.
func (c *Cluster) readExec(secret *corev1.Secret) error {
	var exec clientcmdv1.ExecConfig
	if err := json.Unmarshal(secret.Data[gatewayv1alpha1.KeyExec], &exec); err != nil || exec.Command == "" {
		return fmt.Errorf("key %s is no configuration of a command in JSON; set it to what users[].user.exec is in kubeconfigs",
			gatewayv1alpha1.KeyExec)
	}
	c.Exec = &api.ExecConfig{
		Command: exec.Command, Args: exec.Args, APIVersion: exec.APIVersion, ProvideClusterInfo: exec.ProvideClusterInfo,
		InteractiveMode: api.NeverExecInteractiveMode,
	}
	for _, variable := range exec.Env {
		c.Exec.Env = append(c.Exec.Env, api.ExecEnvVar{Name: variable.Name, Value: variable.Value})
	}
	return nil
}

func (c *Cluster) readRules(secret *corev1.Secret) error {
	text := secret.Annotations[gatewayv1alpha1.AnnotationProxyConfiguration]
	if text == "" {
		return nil
	}
	rules, err := identity.Parse([]byte(text))
	if err != nil {
		return fmt.Errorf("annotation %s: %w", gatewayv1alpha1.AnnotationProxyConfiguration, err)
	}
	c.Rules = rules
	return nil
}

// EndpointHash is a fingerprint of where a Secret says that the cluster is. Whoever has a stream open to another place is not to keep it.
func EndpointHash(secret *corev1.Secret) string {
	return digest([]byte(secret.UID), []byte(endpointType(secret)), secret.Data[gatewayv1alpha1.KeyEndpoint],
		secret.Data[gatewayv1alpha1.KeyProxyURL])
}

// Version is a fingerprint of all that Parse reads.
func Version(secret *corev1.Secret) string {
	parts := [][]byte{[]byte(EndpointHash(secret)), []byte(secret.Labels[gatewayv1alpha1.LabelCredentialType]), caOf(secret)}
	for _, key := range []string{
		gatewayv1alpha1.KeyToken, gatewayv1alpha1.KeyCertificate, gatewayv1alpha1.KeyPrivateKey, gatewayv1alpha1.KeyExec,
	} {
		parts = append(parts, secret.Data[key])
	}
	return digest(append(parts, []byte(secret.Annotations[gatewayv1alpha1.AnnotationProxyConfiguration]))...)
}

func digest(parts ...[]byte) string {
	hash := sha256.New()
	for _, part := range parts {
		one := sha256.Sum256(part)
		hash.Write(one[:])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Gateway shows a Secret as a ClusterGateway, whatever is wrong with it.
func Gateway(secret *corev1.Secret) *gatewayv1alpha1.ClusterGateway {
	shown := &gatewayv1alpha1.ClusterGateway{
		TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1alpha1.GroupVersion.String(), Kind: "ClusterGateway"},
		ObjectMeta: metav1.ObjectMeta{
			Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion, Labels: secret.Labels,
			CreationTimestamp: secret.CreationTimestamp, DeletionTimestamp: secret.DeletionTimestamp,
		},
	}
	shown.Spec.Access.Credential = &gatewayv1alpha1.ClusterAccessCredential{
		Type: gatewayv1alpha1.CredentialType(secret.Labels[gatewayv1alpha1.LabelCredentialType]),
	}
	shown.Spec.Access.Endpoint = &gatewayv1alpha1.ClusterEndpoint{Type: endpointType(secret)}
	if endpointType(secret) == gatewayv1alpha1.EndpointConst {
		shown.Spec.Access.Endpoint.Const = address(secret)
	}
	shown.Status.Healthy, _ = strconv.ParseBool(secret.Annotations[gatewayv1alpha1.AnnotationHealthy])
	shown.Status.HealthyReason = secret.Annotations[gatewayv1alpha1.AnnotationHealthyReason]
	return shown
}

func address(secret *corev1.Secret) *gatewayv1alpha1.ClusterEndpointConst {
	shown := &gatewayv1alpha1.ClusterEndpointConst{CABundle: caOf(secret)}
	if endpoint, err := url.Parse(string(secret.Data[gatewayv1alpha1.KeyEndpoint])); err == nil {
		shown.Address = endpoint.Redacted()
	}
	if len(shown.CABundle) == 0 {
		insecure := true
		shown.Insecure = &insecure
	}
	if proxy, err := url.Parse(string(secret.Data[gatewayv1alpha1.KeyProxyURL])); err == nil && proxy.Host != "" {
		redacted := proxy.Redacted()
		shown.ProxyURL = &redacted
	}
	return shown
}
