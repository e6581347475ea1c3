package mqtt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The defaults of a configuration.
const (
	DefaultKeepAlive   = 60 // seconds
	DefaultDialTimeout = time.Minute
	DefaultQoS         = 1
)

// Config says where the broker is, how to connect to it, and by which topics. It is a file in YAML.
type Config struct {
	// BrokerHost is HOST:PORT of the broker. It is reached by TLS if there is a CA or a certificate.
	BrokerHost string `json:"brokerHost"`
	// Username and Password are those of the client, if the broker asks for them.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// KeepAlive is the number of seconds after which a silent connection is tried; 60 by default.
	KeepAlive *uint16 `json:"keepAlive,omitempty"`
	// DialTimeout bounds an attempt to connect; one minute by default.
	DialTimeout *metav1.Duration `json:"dialTimeout,omitempty"`
	// PubQoS and SubQoS are the qualities of service of what is sent and of what is received: 0, 1 or 2; 1 by default.
	PubQoS *byte `json:"pubQoS,omitempty"`
	SubQoS *byte `json:"subQoS,omitempty"`
	// Topics are the topics of the events.
	Topics Topics `json:"topics"`

	// CAFile or CAData, in base64, has the certificates of the authorities that the broker's certificate is from.
	CAFile string `json:"caFile,omitempty"`
	CAData []byte `json:"caData,omitempty"`
	// ClientCertFile and ClientKeyFile, or the same as data in base64, are the certificate of the client and its key. When a file changes,
	// another connection is made with what it has now.
	ClientCertFile string `json:"clientCertFile,omitempty"`
	ClientCertData []byte `json:"clientCertData,omitempty"`
	ClientKeyFile  string `json:"clientKeyFile,omitempty"`
	ClientKeyData  []byte `json:"clientKeyData,omitempty"`
}

// Load reads a configuration, and says what is wrong with it.
func Load(file string) (*Config, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the MQTT broker: %w", err)
	}
	config, err := Parse(content)
	if err == nil {
		_, err = config.tls()
	}
	if err != nil {
		return nil, fmt.Errorf("configuration of the MQTT broker %s: %w", file, err)
	}
	return config, nil
}

// Parse reads a configuration, and says what is wrong with it. It does not read the files that the configuration names.
func Parse(content []byte) (*Config, error) {
	config := &Config{}
	if err := yaml.UnmarshalStrict(content, config); err != nil {
		return nil, err
	}
	return config, config.validate()
}

func (c *Config) validate() error {
	problems := []error{c.Topics.validate()}
	host, port, err := net.SplitHostPort(c.BrokerHost)
	if number, _ := strconv.ParseUint(port, 10, 16); err != nil || host == "" || number == 0 {
		problems = append(problems, fmt.Errorf("brokerHost is %q, want HOST:PORT, such as mqtt.example.com:8883", c.BrokerHost))
	}
	for name, qos := range map[string]*byte{"pubQoS": c.PubQoS, "subQoS": c.SubQoS} {
		if qos != nil && *qos > 2 {
			problems = append(problems, fmt.Errorf("%s is %d, want 0, 1 or 2", name, *qos))
		}
	}
	if c.DialTimeout != nil && c.DialTimeout.Duration <= 0 {
		problems = append(problems, fmt.Errorf("dialTimeout is %s, want a time such as %s", c.DialTimeout.Duration, DefaultDialTimeout))
	}
	if c.Password != "" && c.Username == "" {
		problems = append(problems, errors.New("there is a password and no username"))
	}
	hasCert, hasKey := c.ClientCertFile != "" || len(c.ClientCertData) > 0, c.ClientKeyFile != "" || len(c.ClientKeyData) > 0
	if hasCert != hasKey {
		problems = append(problems, errors.New("a client certificate takes both clientCertFile and clientKeyFile, or clientCertData and clientKeyData"))
	}
	return errors.Join(problems...)
}

// tls is nil for a connection without TLS.
func (c *Config) tls() (*tls.Config, error) {
	ca, err := content("caFile", c.CAFile, c.CAData)
	if err != nil {
		return nil, err
	}
	cert, err := content("clientCertFile", c.ClientCertFile, c.ClientCertData)
	if err != nil {
		return nil, err
	}
	key, err := content("clientKeyFile", c.ClientKeyFile, c.ClientKeyData)
	if err != nil {
		return nil, err
	}
	if len(ca) == 0 && len(cert) == 0 {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("caFile or caData has no certificate in PEM")
		}
	}
	if len(cert) > 0 && len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate and its key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// files are those that tls reads.
func (c *Config) files() []string {
	return slices.DeleteFunc([]string{c.CAFile, c.ClientCertFile, c.ClientKeyFile}, func(file string) bool { return file == "" })
}

// content is that of the file, or the data if no file is named.
func content(field, file string, data []byte) ([]byte, error) {
	if file == "" {
		return data, nil
	}
	read, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return read, nil
}

func (c *Config) keepAlive() uint16 {
	if c.KeepAlive == nil {
		return DefaultKeepAlive
	}
	return *c.KeepAlive
}

func (c *Config) dialTimeout() time.Duration {
	if c.DialTimeout == nil {
		return DefaultDialTimeout
	}
	return c.DialTimeout.Duration
}

func qosOf(configured *byte) byte {
	if configured == nil {
		return DefaultQoS
	}
	return *configured
}
