package hubaccess

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/agent/brokerapi"
	"github.com/capstan-io/capstan/internal/cloudevents/brokerclient"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GRPCExtension names what a kubeconfig in memory has of a gRPC configuration that kubeconfigs have no field for.
const GRPCExtension = "capstan.io/grpc"

const (
	// hubName is the name of the hub in these kubeconfigs; configurations have none.
	hubName = "hub"
	scheme  = "https://"
)

// GRPC reaches hubs by their gRPC servers, as a client with the given ID. Without an ID, it is the name of the cluster.
func GRPC(clientID string) *Access {
	return &Access{
		Key: fleet.KeyConfig, Signer: fleet.SignerGRPC, Brokered: true, Load: loadGRPC, Encode: encodeGRPC, Decode: decodeGRPC,
		Connect: func(ctx context.Context, config *clientcmdapi.Config, cluster string) (*rest.Config, error) {
			return connectToBroker(ctx, config, cluster, clientID)
		},
	}
}

// file is a gRPC configuration, with what the agent remembers of it.
type file struct {
	grpcconfig.Config `json:",inline"`
	Extensions        map[string]json.RawMessage `json:"extensions,omitempty"`
}

// settings are what kubeconfigs have no field for.
type settings struct {
	KeepAlive                grpcconfig.KeepAlive `json:"keepAliveConfig,omitzero"`
	ServerHealthinessTimeout *metav1.Duration     `json:"serverHealthinessTimeout,omitempty"`
}

func parse(content []byte) (*file, error) {
	f := &file{}
	if err := yaml.Unmarshal(content, f); err != nil {
		return nil, fmt.Errorf("it is not the configuration of a gRPC client: %w", err)
	}
	return f, f.Validate()
}

func loadGRPC(path string) (*clientcmdapi.Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range []*string{&f.CAFile, &f.TokenFile, &f.ClientCertFile, &f.ClientKeyFile} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(filepath.Dir(path), *name)
		}
	}
	return f.kubeconfig(&clientcmdapi.AuthInfo{
		Token: f.Token, TokenFile: f.TokenFile, ClientCertificate: f.ClientCertFile, ClientCertificateData: f.ClientCertData,
		ClientKey: f.ClientKeyFile, ClientKeyData: f.ClientKeyData,
	})
}

func (f *file) kubeconfig(user *clientcmdapi.AuthInfo) (*clientcmdapi.Config, error) {
	hub := &clientcmdapi.Cluster{Server: scheme + f.URL, CertificateAuthority: f.CAFile, CertificateAuthorityData: f.CAData,
		Extensions: map[string]runtime.Object{}}
	for name, raw := range f.Extensions {
		hub.Extensions[name] = &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
	}
	own, err := json.Marshal(settings{f.KeepAlive, f.ServerHealthinessTimeout})
	if err != nil {
		return nil, err
	}
	if string(own) != "{}" {
		hub.Extensions[GRPCExtension] = &runtime.Unknown{Raw: own, ContentType: runtime.ContentTypeJSON}
	}
	return &clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{hubName: hub},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{fleet.KubeconfigUser: user},
		Contexts: map[string]*clientcmdapi.Context{fleet.KubeconfigContext: {Cluster: hubName, AuthInfo: fleet.KubeconfigUser,
			Namespace: fleet.KubeconfigNamespace}},
		CurrentContext: fleet.KubeconfigContext,
	}, nil
}

// fileOf is the gRPC configuration that a kubeconfig stands for.
func fileOf(config *clientcmdapi.Config) (*file, error) {
	hub, user, err := current(config)
	if err != nil {
		return nil, err
	}
	f := &file{Config: grpcconfig.Config{
		URL: strings.TrimPrefix(hub.Server, scheme), CAData: hub.CertificateAuthorityData, CAFile: hub.CertificateAuthority,
		Token: user.Token, TokenFile: user.TokenFile, ClientCertData: user.ClientCertificateData, ClientCertFile: user.ClientCertificate,
		ClientKeyData: user.ClientKeyData, ClientKeyFile: user.ClientKey,
	}, Extensions: map[string]json.RawMessage{}}
	for name, extension := range hub.Extensions {
		unknown, ok := extension.(*runtime.Unknown)
		switch {
		case !ok:
		case name == GRPCExtension:
			own := settings{}
			if err := json.Unmarshal(unknown.Raw, &own); err != nil {
				return nil, fmt.Errorf("extension %s: %w", name, err)
			}
			f.KeepAlive, f.ServerHealthinessTimeout = own.KeepAlive, own.ServerHealthinessTimeout
		default:
			f.Extensions[name] = unknown.Raw
		}
	}
	return f, nil
}

// encodeGRPC names the files of the certificate by their paths, for whoever else reads the configuration.
func encodeGRPC(kubeconfig []byte, folder string) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := fileOf(config)
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	f.ClientCertData, f.ClientKeyData = nil, nil
	f.ClientCertFile, f.ClientKeyFile = filepath.Join(folder, fleet.KeyTLSCert), filepath.Join(folder, fleet.KeyTLSKey)
	return yaml.Marshal(f)
}

// decodeGRPC takes the files of the certificate to be next to the configuration, which may have been written by an agent with another
// folder.
func decodeGRPC(content []byte) ([]byte, error) {
	f, err := parse(content)
	if err != nil {
		return nil, err
	}
	config, err := f.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificate: fleet.KeyTLSCert, ClientKey: fleet.KeyTLSKey})
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

func connectToBroker(ctx context.Context, config *clientcmdapi.Config, cluster, clientID string) (*rest.Config, error) {
	f, err := fileOf(config)
	if err != nil {
		return nil, err
	}
	broker, err := brokerclient.New(ctx, fleet.AgentUserAgent, &f.Config)
	if err != nil {
		return nil, err
	}
	if clientID == "" {
		clientID = cluster
	}
	return brokerapi.New(ctx, brokerapi.Options{Broker: broker, Address: f.URL, Cluster: cluster, Source: clientID, Clock: clock.RealClock{}}).
		Config(), nil
}
