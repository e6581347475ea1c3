// Package serverconfig has the configuration file of the gRPC server of a hub.
package serverconfig

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/yaml"
)

// leastCertWatchInterval is what cert_watch_interval has to exceed.
const leastCertWatchInterval = 30 * time.Second

// Config is the configuration of the server. Durations are texts such as 10s.
type Config struct {
	// TLSCertFile and TLSKeyFile are the serving certificate and its key.
	TLSCertFile string `json:"tls_cert_file"`
	TLSKeyFile  string `json:"tls_key_file"`
	// ClientCAFile has the certificates of those who sign client certificates.
	ClientCAFile string `json:"client_ca_file"`
	// TLSMinVersion and TLSMaxVersion are versions by their names in Go, such as VersionTLS12.
	TLSMinVersion string `json:"tls_min_version"`
	TLSMaxVersion string `json:"tls_max_version"`
	// CipherSuites are those served up to TLS 1.2, by their IANA names, with commas between them. Empty stands for those of Go.
	CipherSuites string `json:"cipher_suites"`
	// ServerBindPort is the port, on all addresses.
	ServerBindPort string `json:"server_bind_port"`
	// MaxConcurrentStreams is how many calls one connection may have open.
	MaxConcurrentStreams uint32 `json:"max_concurrent_streams"`
	// MaxReceiveMessageSize and MaxSendMessageSize are in bytes.
	MaxReceiveMessageSize int `json:"max_receive_message_size"`
	MaxSendMessageSize    int `json:"max_send_message_size"`
	// WriteBufferSize and ReadBufferSize of each connection are in bytes.
	WriteBufferSize int `json:"write_buffer_size"`
	ReadBufferSize  int `json:"read_buffer_size"`
	// ConnectionTimeout is how long a client has for the handshake.
	ConnectionTimeout metav1.Duration `json:"connection_timeout"`
	// MaxConnectionAge is after how long clients have to connect again.
	MaxConnectionAge metav1.Duration `json:"max_connection_age"`
	// ClientMinPingInterval is how often clients may ping at most.
	ClientMinPingInterval metav1.Duration `json:"client_min_ping_interval"`
	// ServerPingInterval is after how long without activity the server pings a client, and ServerPingTimeout how long it waits for the answer.
	ServerPingInterval metav1.Duration `json:"server_ping_interval"`
	ServerPingTimeout  metav1.Duration `json:"server_ping_timeout"`
	// PermitPingWithoutStream lets clients ping without an open call.
	PermitPingWithoutStream bool `json:"permit_ping_without_stream"`
	// CertWatchInterval is accepted for configurations that have it. Changes of the files are watched for, and taken over at once.
	CertWatchInterval metav1.Duration `json:"cert_watch_interval"`
}

// Default returns the configuration without a file.
func Default() Config {
	const folder = "/var/run/secrets/hub/grpc"
	return Config{
		TLSCertFile: folder + "/serving-cert/tls.crt", TLSKeyFile: folder + "/serving-cert/tls.key", ClientCAFile: folder + "/ca/ca-bundle.crt",
		TLSMinVersion: "VersionTLS12", TLSMaxVersion: "VersionTLS13", ServerBindPort: "8090",
		MaxConcurrentStreams: math.MaxUint32, MaxReceiveMessageSize: 4 << 20, MaxSendMessageSize: math.MaxInt32,
		WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10, ConnectionTimeout: metav1.Duration{Duration: 120 * time.Second},
		MaxConnectionAge:      metav1.Duration{Duration: math.MaxInt64},
		ClientMinPingInterval: metav1.Duration{Duration: 5 * time.Second}, ServerPingInterval: metav1.Duration{Duration: 30 * time.Second},
		ServerPingTimeout: metav1.Duration{Duration: 10 * time.Second}, CertWatchInterval: metav1.Duration{Duration: time.Minute},
	}
}

// Read reads a file. What it does not say is as in [Default]; so is everything, if there is no file. It fails for fields that there are
// not.
func Read(file string) (Config, error) {
	config := Default()
	if file == "" {
		return config, nil
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return config, nil
	}
	if err != nil {
		return config, fmt.Errorf("read the configuration of the gRPC server: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return config, fmt.Errorf("the configuration of the gRPC server in %s: %w", file, err)
	}
	return config, nil
}

// Validate fails for values that make no sense, and names all of them.
func (c *Config) Validate() error {
	var problems []error
	refuse := func(field string, value any, want string) {
		problems = append(problems, fmt.Errorf("%s is %v, want %s", field, value, want))
	}
	for field, value := range map[string]string{"tls_cert_file": c.TLSCertFile, "tls_key_file": c.TLSKeyFile,
		"client_ca_file": c.ClientCAFile} {
		if value == "" {
			refuse(field, `""`, "the name of a file")
		}
	}
	if port, err := strconv.ParseUint(c.ServerBindPort, 10, 16); err != nil || port == 0 {
		refuse("server_bind_port", strconv.Quote(c.ServerBindPort), `a port, such as "8090"`)
	}
	if c.MaxConcurrentStreams == 0 {
		refuse("max_concurrent_streams", 0, "at least 1")
	}
	for field, value := range map[string]int{"max_receive_message_size": c.MaxReceiveMessageSize,
		"max_send_message_size": c.MaxSendMessageSize} {
		if value <= 0 {
			refuse(field, value, "bytes, at least 1")
		}
	}
	for field, value := range map[string]int{"write_buffer_size": c.WriteBufferSize, "read_buffer_size": c.ReadBufferSize} {
		if value < 0 {
			refuse(field, value, "bytes, or 0 for no buffer")
		}
	}
	for field, value := range map[string]metav1.Duration{
		"connection_timeout": c.ConnectionTimeout, "max_connection_age": c.MaxConnectionAge, "client_min_ping_interval": c.ClientMinPingInterval,
		"server_ping_interval": c.ServerPingInterval, "server_ping_timeout": c.ServerPingTimeout,
	} {
		if value.Duration <= 0 {
			refuse(field, value.Duration, "a duration above 0, such as 10s")
		}
	}
	if c.CertWatchInterval.Duration <= leastCertWatchInterval {
		refuse("cert_watch_interval", c.CertWatchInterval.Duration, "more than "+leastCertWatchInterval.String())
	}
	if _, err := c.tls(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Address is where the server listens.
func (c *Config) Address() string { return net.JoinHostPort("", c.ServerBindPort) }

// tls returns the bounds of versions and cipher suites.
func (c *Config) tls() (*tls.Config, error) {
	least, err := cliflag.TLSVersion(c.TLSMinVersion)
	if err != nil {
		return nil, fmt.Errorf("tls_min_version: %w", err)
	}
	most := uint16(tls.VersionTLS13)
	if c.TLSMaxVersion != "" {
		if most, err = cliflag.TLSVersion(c.TLSMaxVersion); err != nil {
			return nil, fmt.Errorf("tls_max_version: %w", err)
		}
	}
	if least < tls.VersionTLS12 || least > most {
		return nil, fmt.Errorf("tls_min_version is %s and tls_max_version %s, want at least VersionTLS12, and no less for the latter",
			c.TLSMinVersion,
			c.TLSMaxVersion)
	}
	var names []string
	for name := range strings.SplitSeq(c.CipherSuites, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	suites, err := cliflag.TLSCipherSuites(names)
	if err != nil {
		return nil, fmt.Errorf("cipher_suites: %w", err)
	}
	return &tls.Config{MinVersion: least, MaxVersion: most, CipherSuites: suites}, nil
}

// ServerOptions returns the options of a server of gRPC, besides those for TLS.
func (c *Config) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(c.MaxConcurrentStreams), grpc.MaxRecvMsgSize(c.MaxReceiveMessageSize),
		grpc.MaxSendMsgSize(c.MaxSendMessageSize),
		grpc.WriteBufferSize(c.WriteBufferSize), grpc.ReadBufferSize(c.ReadBufferSize), grpc.ConnectionTimeout(c.ConnectionTimeout.Duration),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: c.ClientMinPingInterval.Duration, PermitWithoutStream: c.PermitPingWithoutStream}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: c.MaxConnectionAge.Duration, Time: c.ServerPingInterval.Duration, Timeout: c.ServerPingTimeout.Duration}),
	}
}
