package node

import (
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
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity of the certificates: longer than any cluster lives.
const validity = 365 * 24 * time.Hour

// keyPair is a certificate and its key; both are PEM.
type keyPair struct{ certificate, key []byte }

// authority signs the certificates of a cluster.
type authority struct {
	keyPair
	certificate *x509.Certificate
	signer      *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	pair, err := sign(template, template, signer, signer)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(pair.certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	return &authority{keyPair: pair, certificate: certificate, signer: signer}, err
}

// client issues a certificate for a user and its groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues a certificate for names and addresses.
func (a *authority) server(names ...string) (keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	return sign(template, a.certificate, key, a.signer)
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (keyPair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return keyPair{}, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return keyPair{}, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	return keyPair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
	}, err
}

// serviceAccountKeys are for signing the tokens of service accounts, and for verifying them.
func serviceAccountKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	encodedPublic, err := x509.MarshalPKIXPublicKey(key.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encodedPublic}), err
}

// authority signs the certificates of the node's cluster. The first node makes it, and starts before the others.
func (n *Node) authority() (*authority, error) {
	if n.HasControlPlane() {
		return newAuthority(n.Name + "-ca")
	}
	certificate, err := os.ReadFile(n.controlPlaneNode().Path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(n.controlPlaneNode().Path("pki", "ca.key"))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key of the authority is a %T", pair.PrivateKey)
	}
	return &authority{keyPair: keyPair{certificate, key}, certificate: pair.Leaf, signer: signer}, nil
}

// writeCredentials writes the keys, certificates and kubeconfigs of all programs.
func (n *Node) writeCredentials() error {
	ca, err := n.authority()
	if err != nil {
		return err
	}
	files := map[string][]byte{"pki/ca.crt": ca.keyPair.certificate}
	pairs := map[string]func() (keyPair, error){
		"kubelet-server": func() (keyPair, error) { return ca.server(n.Name, n.IP()) },
	}
	users := map[string]func() (keyPair, error){
		"network-policies": func() (keyPair, error) { return ca.client("kube-network-policies", "system:masters") },
		"kube-proxy":       func() (keyPair, error) { return ca.client("system:kube-proxy") },
		"kubelet":          func() (keyPair, error) { return ca.client("system:node:"+n.Name, "system:nodes") },
	}
	if n.HasControlPlane() {
		if err := n.addControlPlane(ca, files, pairs, users); err != nil {
			return err
		}
	}
	for name, issue := range pairs {
		pair, err := issue()
		if err != nil {
			return err
		}
		files["pki/"+name+".crt"], files["pki/"+name+".key"] = pair.certificate, pair.key
	}
	for name, issue := range users {
		pair, err := issue()
		if err != nil {
			return err
		}
		files[name+".kubeconfig"], err = n.kubeconfig(ca.keyPair.certificate, pair)
		if err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(n.Path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// addControlPlane adds the credentials that the first node alone has.
func (n *Node) addControlPlane(ca *authority, files map[string][]byte, pairs, users map[string]func() (keyPair, error)) error {
	proxyCA, err := newAuthority(n.Name + "-front-proxy-ca")
	if err != nil {
		return err
	}
	private, public, err := serviceAccountKeys()
	if err != nil {
		return err
	}
	files["pki/ca.key"] = ca.key
	files["pki/front-proxy-ca.crt"] = proxyCA.keyPair.certificate
	files["pki/sa.key"], files["pki/sa.pub"] = private, public
	pairs["apiserver"] = func() (keyPair, error) {
		return ca.server("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
			n.APIServerServiceIP(), n.IP(), "127.0.0.1")
	}
	pairs["apiserver-kubelet"] = func() (keyPair, error) { return ca.client("kube-apiserver-kubelet-client", "system:masters") }
	pairs["front-proxy"] = func() (keyPair, error) { return proxyCA.client("front-proxy-client") }
	users["admin"] = func() (keyPair, error) { return ca.client("kubernetes-admin", "system:masters") }
	users["controller-manager"] = func() (keyPair, error) { return ca.client("system:kube-controller-manager") }
	users["scheduler"] = func() (keyPair, error) { return ca.client("system:kube-scheduler") }
	return nil
}

func (n *Node) kubeconfig(ca []byte, user keyPair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[n.Name] = &clientcmdapi.Cluster{Server: n.URL(), CertificateAuthorityData: ca}
	config.AuthInfos[n.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: user.certificate, ClientKeyData: user.key}
	config.Contexts[n.Name] = &clientcmdapi.Context{Cluster: n.Name, AuthInfo: n.Name}
	config.CurrentContext = n.Name
	return clientcmd.Write(*config)
}
