package hubaccess

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// strictServer lets in who has the token, or a client certificate, and accepts no event.
type strictServer struct {
	pb.UnimplementedCloudEventServiceServer
	token string
}

func (s strictServer) Publish(ctx context.Context, _ *pb.PublishRequest) (*emptypb.Empty, error) {
	headers, _ := metadata.FromIncomingContext(ctx)
	if tokens := headers.Get("authorization"); len(tokens) == 1 && tokens[0] == "Bearer "+s.token {
		return nil, status.Error(codes.InvalidArgument, "the event has no type")
	}
	return nil, status.Error(codes.Unauthenticated, "nobody is known by that token")
}

// serveGRPC returns the address of a server, and its certificate, which is its own authority. With clients, it lets in who has a
// certificate of these only.
func serveGRPC(t *testing.T, clients []byte) (address string, ca []byte) {
	t.Helper()
	chain, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if clients != nil {
		secure.ClientAuth, secure.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		secure.ClientCAs.AppendCertsFromPEM(clients)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)))
	pb.RegisterCloudEventServiceServer(server, strictServer{token: "good"})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), chain
}

// secretOf has the configuration, a certificate and the name of a cluster.
func secretOf(t *testing.T, config grpcconfig.Config) *corev1.Secret {
	t.Helper()
	content, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	chain, key, err := certutil.GenerateSelfSignedCertKey("agent", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Data: map[string][]byte{fleet.KeyClusterName: []byte("c1"), fleet.KeyConfig: content,
		corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}}
}

// KL-07, KL-31, GR-11: an agent that reaches the hub by gRPC needs no kubeconfig, and the reasons are the same.
func TestCheckByGRPC(t *testing.T) {
	t.Parallel()
	address, ca := serveGRPC(t, nil)
	_, otherCA := serveGRPC(t, nil)
	mutual, mutualCA := serveGRPC(t, otherCA)
	good := secretOf(t, grpcconfig.Config{URL: address, CAData: ca, Token: "good"})
	bad := secretOf(t, grpcconfig.Config{URL: address, CAData: ca, Token: "old"})
	stranger := secretOf(t, grpcconfig.Config{URL: address, CAData: otherCA, Token: "good"})
	byCertificate := secretOf(t, grpcconfig.Config{URL: mutual, CAData: mutualCA, ClientCertFile: "/spoke/hub-kubeconfig/tls.crt",
		ClientKeyFile: "/spoke/hub-kubeconfig/tls.key"})
	foreignFile := secretOf(t, grpcconfig.Config{URL: address, CAData: ca, TokenFile: "/var/run/secrets/token"})
	nowhere := secretOf(t, grpcconfig.Config{URL: "127.0.0.1:1", CAData: ca, Token: "good"})
	kubeconfig := &corev1.Secret{Data: map[string][]byte{fleet.KeyKubeconfig: []byte("a"), fleet.KeyClusterName: []byte("c1")}}
	broken := &corev1.Secret{Data: map[string][]byte{fleet.KeyConfig: []byte("url: https://hub.example.com")}}
	for name, test := range map[string]struct {
		credentials Credentials
		reason      string
		message     string
	}{
		"works": {Credentials{Hub: good}, "HubConnectionFunctional", "The gRPC server " + address + " of the hub lets the agent in, as cluster c1"},
		"nothing": {Credentials{}, "BootstrapSecretMissing,HubKubeConfigSecretMissing",
			"create it with the configuration of a gRPC client of the hub under the key config.yaml"},
		"may register":     {Credentials{Bootstrap: good}, "BootstrapSecretFunctional,HubKubeConfigSecretMissing", "lets the agent in with"},
		"old token":        {Credentials{Bootstrap: bad}, "BootstrapSecretUnauthorized,HubKubeConfigSecretMissing", "nobody is known by that token"},
		"broken bootstrap": {Credentials{Bootstrap: broken}, "BootstrapSecretError,HubKubeConfigSecretMissing", "is not the HOST:PORT of a gRPC server"},
		"only kubeconfig":  {Credentials{Bootstrap: kubeconfig}, "BootstrapSecretError,HubKubeConfigSecretMissing", "has no key config.yaml"},
		"another server":   {Credentials{Bootstrap: stranger}, "BootstrapSecretError,HubKubeConfigSecretMissing", "certificate signed by unknown authority"},
		"a file that is no key": {Credentials{Bootstrap: foreignFile}, "BootstrapSecretError,HubKubeConfigSecretMissing",
			"/var/run/secrets/token, which is no key of the Secret"},
		"hub by kubeconfig":    {Credentials{Bootstrap: good, Hub: kubeconfig}, "BootstrapSecretFunctional,HubKubeConfigMissing", "no key config.yaml; delete it"},
		"no hub":               {Credentials{Bootstrap: good, Hub: nowhere}, "BootstrapSecretFunctional,HubKubeConfigError", "connection refused"},
		"certificate refused":  {Credentials{Bootstrap: good, Hub: byCertificate}, "BootstrapSecretFunctional,HubKubeConfigError", "connect to " + mutual},
		"token of hub refused": {Credentials{Bootstrap: good, Hub: bad}, "BootstrapSecretFunctional,HubKubeConfigUnauthorized", "delete it, and the agent registers again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.credentials.Namespace, test.credentials.GRPC = "ns", true
			got := Check(t.Context(), test.credentials)
			degraded := metav1.ConditionTrue
			if test.reason == "HubConnectionFunctional" {
				degraded = metav1.ConditionFalse
			}
			if got.Status != degraded || got.Reason != test.reason || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// GR-11: the certificate of the agent lets it in, from the files that its configuration refers to.
func TestCheckByCertificate(t *testing.T) {
	t.Parallel()
	chain, key := clientCertificate(t)
	address, ca := serveGRPC(t, chain)
	secret := &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, "ca.crt": ca,
		fleet.KeyClusterName: []byte("c1"), fleet.KeyConfig: fmt.Appendf(nil,
			"url: %s\ncaFile: ca.crt\nclientCertFile: /spoke/hub-kubeconfig/tls.crt\nclientKeyFile: /spoke/hub-kubeconfig/tls.key\ntoken: good", address)}}
	if got := Check(t.Context(), Credentials{Hub: secret, GRPC: true}); got.Reason != "HubConnectionFunctional" {
		t.Errorf("got %+v", got)
	}
}

// clientCertificate is a certificate of a client, which is its own authority.
func clientCertificate(t *testing.T) (chain, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), keyPEM
}
