// Package brokerclient exchanges events with a broker by gRPC: it connects, proves who the client is, and connects again.
package brokerclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
)

// config connects as a configuration says, and reads the files that it names.
type config struct{ *grpcconfig.Config }

const (
	defaultKeepAliveTime    = 30 * time.Second
	defaultKeepAliveTimeout = 10 * time.Second
)

// files are those whose content decides as whom, and to whom, the client connects. A token is read for every call.
func (c config) files() (all []string) {
	for _, file := range []string{c.CAFile, c.ClientCertFile, c.ClientKeyFile} {
		if file != "" {
			all = append(all, file)
		}
	}
	return all
}

// tls reads the CA now, and the client certificate for each connection.
func (c config) tls() (*tls.Config, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := content(c.CAData, c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("caFile: %w", err)
	}
	if len(ca) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("caData or caFile has no certificate in PEM")
		}
	}
	if len(c.ClientCertData) > 0 || c.ClientCertFile != "" {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.clientCertificate() }
	}
	return secure, nil
}

func (c config) clientCertificate() (*tls.Certificate, error) {
	certificate, err := content(c.ClientCertData, c.ClientCertFile)
	if err != nil {
		return nil, fmt.Errorf("clientCertFile: %w", err)
	}
	key, err := content(c.ClientKeyData, c.ClientKeyFile)
	if err != nil {
		return nil, fmt.Errorf("clientKeyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate cannot be used: %w", err)
	}
	return &pair, nil
}

func content(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}

// bearer returns the token; an empty one if there is none.
func (c config) bearer() (string, error) {
	if c.TokenFile == "" {
		return c.Token, nil
	}
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("tokenFile: %w", err)
	}
	return string(bytes.TrimSpace(token)), nil
}
