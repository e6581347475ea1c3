// Package ocmconfig reads ocmconfig.yaml, the configuration file of the standalone hub. It accepts what it
// understands and nothing else: a misspelt field, a wrong type or an impossible value is refused with file, line, field
// and what would be right.
package ocmconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileName is the name of the file in the configuration folder.
const FileName = "ocmconfig.yaml"

// DefaultDir is the configuration folder when none is named.
const DefaultDir = "/controlplane_config"

// DefaultPort is where the API server listens.
const DefaultPort = 9443

// Config is the content of the file with its defaults filled in.
type Config struct {
	// File is where it was read from, or would have been, for messages.
	File string `yaml:"-"`
	// NotFound says that there is no file, so that all has its default.
	NotFound bool `yaml:"-"`
	// DataDirectory holds everything the hub keeps: certificates, keys, the embedded etcd. Default /.ocm.
	DataDirectory string `yaml:"dataDirectory"`
	// APIServer says how the API server is reached and what signs its certificates.
	APIServer APIServer `yaml:"apiserver"`
	// Etcd says where objects are stored.
	Etcd Etcd `yaml:"etcd"`
	// Aggregator configures how requests are proxied to aggregated APIs.
	Aggregator Aggregator `yaml:"aggregator"`
}

// APIServer is the section apiserver.
type APIServer struct {
	// ExternalHostname is the host name or IP address clients use; empty means that it is found out.
	ExternalHostname string `yaml:"externalHostname"`
	// Port is the port to listen on, 9443 by default. Inside a cluster the hub always listens on 9443, and this is the
	// port written into kubeconfigs for clients outside; 0 there means none.
	Port int `yaml:"port"`
	// CAFile and CAKeyFile name a root CA of the user's own, in PEM; both or neither.
	CAFile    string `yaml:"caFile"`
	CAKeyFile string `yaml:"caKeyFile"`
}

// EtcdMode says which etcd is used.
type EtcdMode string

// The modes.
const (
	EtcdEmbed    EtcdMode = "embed"
	EtcdExternal EtcdMode = "external"
)

// Etcd is the section etcd.
type Etcd struct {
	// Mode is embed by default.
	Mode EtcdMode `yaml:"mode"`
	// Servers are the URLs of an external etcd; http://127.0.0.1:2379 by default.
	Servers []string `yaml:"servers"`
	// CAFile, CertFile and KeyFile are for an external etcd that speaks TLS.
	CAFile   string `yaml:"caFile"`
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// Prefix is put before every key, /registry by default. Hubs that share an etcd need different ones.
	Prefix string `yaml:"prefix"`
}

// Aggregator is the section aggregator.
type Aggregator struct {
	// ProxyClientCertFile, ProxyClientKeyFile and RequestheaderClientCAFile replace the hub's own request-header CA and
	// the certificate it signed; all three or none.
	ProxyClientCertFile       string `yaml:"proxyClientCertFile"`
	ProxyClientKeyFile        string `yaml:"proxyClientKeyFile"`
	RequestheaderClientCAFile string `yaml:"requestheaderClientCAFile"`
	// The headers a proxy in front of the hub passes the user in, by default X-Remote-User, X-Remote-Group and
	// X-Remote-Extra-.
	RequestheaderUsernameHeaders    []string `yaml:"requestheaderUsernameHeaders"`
	RequestheaderGroupHeaders       []string `yaml:"requestheaderGroupHeaders"`
	RequestheaderExtraHeadersPrefix []string `yaml:"requestheaderExtraHeadersPrefix"`
	// RequestheaderAllowedNames are the common names a proxy's certificate may have. With the hub's own CA they are by default the one of
	// the hub's certificate; a CA of another user may have signed others, so with RequestheaderClientCAFile there is no default.
	RequestheaderAllowedNames []string `yaml:"requestheaderAllowedNames"`
	// ServiceAddresses say where the services of APIServices are, for a hub that cannot resolve NAME.NAMESPACE.svc:
	// NAMESPACE/NAME to HOST:PORT.
	ServiceAddresses map[string]string `yaml:"serviceAddresses"`
}

// Options say where the file is and where the hub runs.
type Options struct {
	// Dir is the configuration folder. Without the file in it the defaults apply.
	Dir string
	// Explicit says that the user named Dir, so that its absence is a mistake.
	Explicit bool
	// InCluster says that the hub runs in a pod, where apiserver.port has another meaning.
	InCluster bool
}

// Load reads and checks the file. Its error has one line for each mistake.
func Load(o Options) (*Config, error) {
	file := filepath.Join(o.Dir, FileName)
	content, err := os.ReadFile(file)
	notFound := errors.Is(err, fs.ErrNotExist)
	if notFound {
		err = o.checkDir()
	} else if err != nil {
		err = fmt.Errorf("read the configuration: %w", err)
	}
	if err != nil {
		return nil, err
	}
	config, err := parse(file, content, o.InCluster)
	config.NotFound = notFound
	return config, err
}

// checkDir refuses a folder without the file if the user named it by mistake, or the file otherwise.
func (o Options) checkDir() error {
	if !o.Explicit {
		return nil
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return fmt.Errorf("--controlplane-config-dir %s: %w; create the folder, or leave the flag out for the defaults", o.Dir, err)
	}
	var others []string
	for _, entry := range entries {
		if extension := filepath.Ext(entry.Name()); extension == ".yaml" || extension == ".yml" {
			others = append(others, entry.Name())
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("--controlplane-config-dir %s: there is no %s, only %s; give the configuration that name, or create an empty "+
			"one for the defaults", o.Dir, FileName, strings.Join(others, ", "))
	}
	return nil
}

func parse(file string, content []byte, inCluster bool) (*Config, error) {
	config := &Config{File: file}
	doc := decode(file, content, config)
	if len(doc.problems) == 0 {
		config.setDefaults(doc, inCluster)
		config.validate(doc, inCluster)
	}
	return config, doc.err()
}

func (c *Config) setDefaults(doc *document, inCluster bool) {
	if c.DataDirectory == "" && !doc.has("dataDirectory") {
		c.DataDirectory = "/.ocm"
	}
	if c.APIServer.Port == 0 && !doc.has("apiserver.port") && !inCluster {
		c.APIServer.Port = DefaultPort
	}
	if c.Etcd.Mode == "" && !doc.has("etcd.mode") {
		c.Etcd.Mode = EtcdEmbed
	}
	if c.Etcd.Mode == EtcdExternal && !doc.has("etcd.servers") {
		c.Etcd.Servers = []string{"http://127.0.0.1:2379"}
	}
	if c.Etcd.Prefix == "" && !doc.has("etcd.prefix") {
		c.Etcd.Prefix = "/registry"
	}
	a := &c.Aggregator
	for field, header := range map[*[]string]string{
		&a.RequestheaderUsernameHeaders:    "X-Remote-User",
		&a.RequestheaderGroupHeaders:       "X-Remote-Group",
		&a.RequestheaderExtraHeadersPrefix: "X-Remote-Extra-",
	} {
		if len(*field) == 0 {
			*field = []string{header}
		}
	}
}
