package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/controlplane/rbac"
)

// hostingWith is a hosting cluster that has the given objects, by path.
func hostingWith(t *testing.T, objects map[string]string) *Hosting {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, found := objects[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			object = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"there is none"}`
		}
		_, _ = fmt.Fprint(w, object)
	}))
	t.Cleanup(server.Close)
	return &Hosting{Namespace: "planes", Client: &rest.Config{Host: server.URL}}
}

// SC-04, SC-05: in a cluster the hub listens on 9443, and finds out by which name it is reached from outside, or says
// what to set.
func TestHostedAddress(t *testing.T) {
	t.Parallel()
	const (
		servicePath = "/api/v1/namespaces/planes/services/multicluster-controlplane"
		routePath   = "/apis/route.openshift.io/v1/namespaces/planes/routes/multicluster-controlplane"
	)
	service := func(kind, ingress string) string {
		return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","spec":{"type":%q},"status":{"loadBalancer":{"ingress":[%s]}}}`, kind, ingress)
	}
	route := `{"kind":"Route","apiVersion":"route.openshift.io/v1","metadata":{"name":"multicluster-controlplane"},"spec":{"host":"plane.apps.test"}}`
	for name, c := range map[string]struct {
		config  ocmconfig.APIServer
		objects map[string]string
		want    string
		mistake string
	}{
		"configured":              {config: ocmconfig.APIServer{ExternalHostname: "hub.test", Port: 443}, want: "https://hub.test:443"},
		"configured without port": {config: ocmconfig.APIServer{ExternalHostname: "hub.test"}, want: "https://hub.test"},
		"route": {objects: map[string]string{servicePath: service("ClusterIP", ""), routePath: route},
			want: "https://plane.apps.test"},
		"no route": {objects: map[string]string{servicePath: service("ClusterIP", "")},
			mistake: "Route multicluster-controlplane"},
		"balancer with name": {objects: map[string]string{servicePath: service("LoadBalancer", `{"hostname":"lb.test","ip":"192.0.2.1"}`)},
			want: "https://lb.test"},
		"balancer with IPv4": {objects: map[string]string{servicePath: service("LoadBalancer", `{"ip":"192.0.2.1"}`)},
			want: "https://192.0.2.1"},
		"balancer with IPv6": {objects: map[string]string{servicePath: service("LoadBalancer", `{"ip":"2001:db8::1"}`)},
			want: "https://[2001:db8::1]"},
		"balancer pending": {objects: map[string]string{servicePath: service("LoadBalancer", "")},
			mistake: "no load balancer address yet"},
		"node port":  {objects: map[string]string{servicePath: service("NodePort", "")}, mistake: "type NodePort"},
		"no service": {mistake: "Service multicluster-controlplane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewOptions()
			o.Config.APIServer = c.config
			o.Hosting = hostingWith(t, c.objects)
			got, err := o.findAddress(t.Context())
			if c.mistake != "" {
				if err == nil {
					t.Fatalf("found %+v", got)
				}
				says(t, err, "planes", c.mistake, "set apiserver.externalHostname in "+ocmconfig.FileName)
				return
			}
			must(t, err)
			if got.url() != c.want || got.listen != 9443 {
				t.Errorf("%s at port %d, want %s at 9443", got.url(), got.listen, c.want)
			}
		})
	}
}

// SC-05: a hub beside a cluster publishes the address at which it listens, also if only its own machine reaches that, unless it has a
// configured name.
func TestAddressBesideACluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ bind, configured, want, wantPeer string }{
		"this machine":       {bind: "127.0.0.1", want: "https://127.0.0.1:9443", wantPeer: "127.0.0.1:9443"},
		"this machine, IPv6": {bind: "::1", want: "https://[::1]:9443", wantPeer: "[::1]:9443"},
		"one address":        {bind: "192.0.2.7", want: "https://192.0.2.7:9443", wantPeer: "192.0.2.7:9443"},
		"a name":             {bind: "127.0.0.1", configured: "hub.test", want: "https://hub.test:9443", wantPeer: "127.0.0.1:9443"},
	} {
		o := NewOptions()
		o.serving.BindAddress = net.ParseIP(test.bind)
		o.Config.APIServer = ocmconfig.APIServer{ExternalHostname: test.configured, Port: 9443}
		got, err := o.findAddress(t.Context())
		must(t, err)
		if got.url() != test.want || o.PeerAddress() != test.wantPeer {
			t.Errorf("%s: %s, and %s to others; want %s and %s", name, got.url(), o.PeerAddress(), test.want, test.wantPeer)
		}
	}
	all := NewOptions()
	got, err := all.findAddress(t.Context())
	must(t, err)
	if host := net.ParseIP(got.host); host == nil || host.IsUnspecified() {
		t.Errorf("at all addresses, it publishes %q", got.host)
	}
}

// SC-07: what hands on TLS to a hub that listens for its own machine alone may be reached at the address of the machine.
func TestServerNamesOfALoopbackAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bind, configured string
		want             bool
	}{
		"this machine":                 {bind: "127.0.0.1", want: true},
		"this machine, IPv6":           {bind: "::1", want: true},
		"this machine, with a name":    {bind: "127.0.0.1", configured: "hub.test"},
		"an address that is published": {bind: "192.0.2.7"},
	} {
		o := NewOptions()
		o.serving.BindAddress = net.ParseIP(test.bind)
		o.Config.APIServer.ExternalHostname = test.configured
		a, err := o.findAddress(t.Context())
		must(t, err)
		family := net.IPv4zero
		if o.serving.BindAddress.To4() == nil {
			family = net.IPv6zero
		}
		machine, err := utilnet.ResolveBindAddress(family)
		if err != nil {
			t.Skipf("this machine has no address: %v", err)
		}
		if names := o.serverNames(a); names[0] != a.host || slices.Contains(names, machine.String()) != test.want {
			t.Errorf("%s: %v; with %s: %t", name, names, machine, test.want)
		}
	}
}

// newHosted is a hub that runs in another as if that were its hosting cluster, with the rights it needs there.
func newHosted(t *testing.T, namespace string) *testHub {
	t.Helper()
	const name = "plane"
	_, err := shared.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, create)
	must(t, err)
	self := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	must(t, rbac.Ensure(t.Context(), shared.client, rbac.Policy{
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{bind(namespace, "system:auth-delegator", self)},
		Roles: map[string][]rbacv1.Role{namespace: {{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "update"}}},
		}}},
		RoleBindings: map[string][]rbacv1.RoleBinding{
			namespace: {{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{self}}},
			metav1.NamespaceSystem: {{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: namespace},
				RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "extension-apiserver-authentication-reader"}, Subjects: []rbacv1.Subject{self}}},
		},
	}))
	dir := t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	must(t, os.WriteFile(tokenFile, []byte(accountToken(t, namespace, name)), 0o600))
	return newHub(t, dir, func(o *Options) {
		o.hostedPort = o.Config.APIServer.Port
		o.Config.APIServer = ocmconfig.APIServer{ExternalHostname: "hub.test", Port: 443}
		o.DelegatingAuthentication = true
		o.Hosting = &Hosting{Namespace: namespace, Client: &rest.Config{
			Host: shared.config.Host, BearerTokenFile: tokenFile,
			TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(certDir(shared.options.Config.DataDirectory), "ca-bundle",
				"root-ca-bundle.crt")},
		}}
	})
}

func accountToken(t *testing.T, namespace, name string) string {
	t.Helper()
	issued, err := shared.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, create)
	must(t, err)
	return issued.Status.Token
}

func serverOf(t *testing.T, kubeconfig []byte) string {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	return config.Host
}

// SC-04, SC-07, SC-09: what a hub in a cluster writes for those on the same machine, in the same cluster and outside.
func TestHostedKubeconfigs(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	h := newHosted(t, namespace)
	inCluster := "https://multicluster-controlplane." + namespace + ".svc/"
	for file, want := range map[string]string{adminKubeconfig: fmt.Sprintf("https://127.0.0.1:%d", h.port), inClusterKubeconfig: inCluster} {
		content, err := os.ReadFile(filepath.Join(certDir(h.options.Config.DataDirectory), file))
		must(t, err)
		if got := serverOf(t, content); got != want {
			t.Errorf("%s is for %s, want %s", file, got, want)
		}
	}
	for name, want := range map[string]string{inClusterKubeconfigSecret: inCluster, externalKubeconfigSecret: "https://hub.test:443"} {
		secret, err := shared.client.CoreV1().Secrets(namespace).Get(t.Context(), name, get)
		must(t, err)
		if got := serverOf(t, secret.Data["kubeconfig"]); got != want {
			t.Errorf("Secret %s is for %s, want %s", name, got, want)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(secret.Data["ca.crt"])
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", fmt.Sprintf("127.0.0.1:%d", h.port),
			&tls.Config{RootCAs: roots, ServerName: "multicluster-controlplane." + namespace + ".svc"})
		if err != nil {
			t.Errorf("a client that trusts the certificate authority in Secret %s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
	info, err := h.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", get)
	must(t, err)
	if got := serverOf(t, []byte(info.Data["kubeconfig"])); got != "https://hub.test:443" {
		t.Errorf("cluster-info names %s", got)
	}
	for _, name := range []string{
		"hub.test", "kubernetes.default", "kubernetes.default.svc", "multicluster-controlplane." + namespace,
		"multicluster-controlplane." + namespace + ".svc", "localhost", "127.0.0.1", "10.0.0.1",
	} {
		if err := served(t, h.port).VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

func served(t *testing.T, port int) *x509.Certificate {
	t.Helper()
	conn, err := dialInsecure(port)
	must(t, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}

// SC-15: with delegated authentication the users of the hosting cluster are let in, and have no rights but those given here. Its kube:admin
// is an admin. Its service accounts are not those of the hub, whatever their names are.
func TestDelegatedAuthentication(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	_, err := shared.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "alice"}}, create)
	must(t, err)
	h := newHosted(t, namespace)
	token := accountToken(t, namespace, "alice")
	alice := h.withToken(t, token)
	var review *authenticationv1.SelfSubjectReview
	eventually(t, func(ctx context.Context) string {
		if review, err = alice.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, create); err != nil {
			return err.Error()
		}
		return ""
	})
	if got, want := review.Status.UserInfo.Username, "hosting-cluster:system:serviceaccount:"+namespace+":alice"; got != want {
		t.Errorf("alice is %q, want %q", got, want)
	}
	if _, err := alice.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("alice may read secrets: %v", err)
	}
	tampered := token[:len(token)-6] + strings.Repeat("A", 6)
	if _, err := h.withToken(t, tampered).CoreV1().Namespaces().List(t.Context(), list); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token with another signature: %v", err)
	}
	certificate := h.as(t, func(c *rest.Config) {
		keys := certDir(shared.options.Config.DataDirectory)
		c.CertFile, c.KeyFile = keys+"/"+string(pki.Admin)+".crt", keys+"/"+string(pki.Admin)+".key"
	})
	if _, err := certificate.CoreV1().Namespaces().List(t.Context(), list); err != nil {
		t.Errorf("the hosting cluster's admin: %v", err)
	}
	binding, err := h.client.RbacV1().ClusterRoleBindings().Get(t.Context(), "kube-admin", get)
	must(t, err)
	if binding.RoleRef.Name != "cluster-admin" ||
		!slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.UserKind && s.Name == "kube:admin" }) {
		t.Errorf("kube-admin binds %v to %s", binding.Subjects, binding.RoleRef.Name)
	}
}

// SC-15: outside of a cluster --delegating-authentication changes nothing, and kube:admin is nobody.
func TestDelegationOutsideOfACluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, t.TempDir(), func(o *Options) { o.DelegatingAuthentication = true })
	if _, err := h.client.RbacV1().ClusterRoleBindings().Get(t.Context(), "kube-admin", get); !apierrors.IsNotFound(err) {
		t.Errorf("binding kube-admin: %v", err)
	}
}
