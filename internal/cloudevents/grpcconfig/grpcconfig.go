// Package grpcconfig is the configuration with which a client reaches the gRPC server of a hub: what command lines write, operators check
// and agents connect with.
package grpcconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Config is the configuration of a client.
type Config struct {
	// URL is the address of the server, HOST:PORT. Connections are always by TLS.
	URL string `json:"url"`
	// Token is a bearer token; TokenFile has one. With a token, CAData or CAFile is required, so that the token goes to the hub alone.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// CAData, or the content of CAFile, is the PEM-encoded certificates to verify the server with; without, those of the machine.
	CAData []byte `json:"caData,omitempty"`
	CAFile string `json:"caFile,omitempty"`
	// The client certificate and its key, in PEM.
	ClientCertData []byte `json:"clientCertData,omitempty"`
	ClientCertFile string `json:"clientCertFile,omitempty"`
	ClientKeyData  []byte `json:"clientKeyData,omitempty"`
	ClientKeyFile  string `json:"clientKeyFile,omitempty"`
	// KeepAlive has the client ping the server.
	KeepAlive KeepAlive `json:"keepAliveConfig,omitzero"`
	// ServerHealthinessTimeout is how long the server may send neither an event nor a heartbeat before the client subscribes again; without,
	// for ever.
	ServerHealthinessTimeout *metav1.Duration `json:"serverHealthinessTimeout,omitempty"`
}

// KeepAlive is how a client pings a server.
type KeepAlive struct {
	Enable bool `json:"enable,omitempty"`
	// Time without traffic before a ping: 30 seconds by default, 10 at least.
	Time *metav1.Duration `json:"time,omitempty"`
	// Timeout is how long the answer to a ping may take, 10 seconds by default.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// PermitWithoutStream has pings sent without any subscription.
	PermitWithoutStream bool `json:"permitWithoutStream,omitempty"`
}

// leastKeepAliveTime is how often a client may ping, at most.
const leastKeepAliveTime = 10 * time.Second

// Parse reads a configuration, in YAML or JSON, and validates it. Keys that it does not know are left alone.
func Parse(content []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.Unmarshal(content, c); err != nil {
		return nil, fmt.Errorf("it is not the configuration of a gRPC client: %w", err)
	}
	return c, c.Validate()
}

// Validate says what cannot work, naming the key.
func (c *Config) Validate() error {
	if err := ValidateAddress(c.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	hasCA, hasToken := len(c.CAData) > 0 || c.CAFile != "", c.Token != "" || c.TokenFile != ""
	hasCert, hasKey := len(c.ClientCertData) > 0 || c.ClientCertFile != "", len(c.ClientKeyData) > 0 || c.ClientKeyFile != ""
	switch {
	case c.Token != "" && c.TokenFile != "":
		return errors.New("token and tokenFile are both set: set one of them")
	case hasToken && !hasCA:
		return errors.New("a token is set, but neither caData nor caFile: set one of them, so that the token goes to the hub alone")
	case hasCert != hasKey:
		return errors.New("a client certificate needs both of clientCertData or clientCertFile, and clientKeyData or clientKeyFile")
	case c.KeepAlive.Enable && c.KeepAlive.Time != nil && c.KeepAlive.Time.Duration < leastKeepAliveTime:
		return fmt.Errorf("keepAliveConfig.time is %s: it must be at least %s", c.KeepAlive.Time.Duration, leastKeepAliveTime)
	case c.KeepAlive.Timeout != nil && c.KeepAlive.Timeout.Duration <= 0:
		return fmt.Errorf("keepAliveConfig.timeout is %s: it must be more than 0", c.KeepAlive.Timeout.Duration)
	case c.ServerHealthinessTimeout != nil && c.ServerHealthinessTimeout.Duration <= 0:
		return fmt.Errorf("serverHealthinessTimeout is %s: it must be more than 0, such as 20s", c.ServerHealthinessTimeout.Duration)
	}
	return nil
}

// ValidateAddress is an error if this is not the address of a gRPC server.
func ValidateAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.ContainsAny(address, "/@") {
		return fmt.Errorf("%q is not the HOST:PORT of a gRPC server, such as hub.example.com:8090", address)
	}
	return nil
}

// Inline replaces the references to files by the content of the files with these names, whatever their directories: those of a volume that
// shows the keys of a Secret. Others are an error: who reads a configuration from elsewhere must not read files of its own.
func (c *Config) Inline(files map[string][]byte) error {
	token := []byte(c.Token)
	for _, reference := range []struct {
		file *string
		data *[]byte
	}{{&c.TokenFile, &token}, {&c.CAFile, &c.CAData}, {&c.ClientCertFile, &c.ClientCertData}, {&c.ClientKeyFile, &c.ClientKeyData}} {
		if *reference.file == "" {
			continue
		}
		content, found := files[path.Base(*reference.file)]
		if !found {
			return fmt.Errorf("it refers to the file %s, which is no key of the Secret; add it", *reference.file)
		}
		*reference.data, *reference.file = content, ""
	}
	c.Token = strings.TrimSpace(string(token))
	return nil
}

// TLS is how a client with a configuration without references to files connects.
func (c *Config) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CAData) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CAData) {
			return nil, errors.New("its certificate authority is no certificate in PEM")
		}
	}
	if len(c.ClientCertData) > 0 {
		pair, err := tls.X509KeyPair(c.ClientCertData, c.ClientKeyData)
		if err != nil {
			return nil, fmt.Errorf("its client certificate cannot be used: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Marshal is the configuration as YAML.
func (c *Config) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return yaml.Marshal(c)
}
