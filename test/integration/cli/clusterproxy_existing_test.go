package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/aggregated"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/dialer"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-01, CP-03, CP-07, CP-09, CG-08, HC-08, NX-03: in an existing cluster, agents make their tunnels to, and users of the hub reach
// clusters by, an aggregated API, whose process has the rights that its chart gives it.
func TestClusterProxyExisting(t *testing.T) {
	t.Parallel()
	const name, namespaceOnHub = "proxied-existing", "open-cluster-management-addon"
	existing, _ := framework.HubInExistingCluster(t)
	framework.StartPlacementControllers(t, existing)
	h, address, userServer := existing.Client(t), env.FreeAddress(t), env.FreeAddress(t)
	framework.Namespace(t, h, namespaceOnHub)
	framework.Create(t, h, framework.ChartOutside(t, "cluster-proxy", address)...)
	_, userServerPort, err := net.SplitHostPort(userServer)
	if err != nil {
		t.Fatal(err)
	}
	issuer := oidctest.Start(t)
	process := env.NewAggregatedAPI(t, "cluster-proxy", framework.KubeconfigIn(t, existing, namespaceOnHub, "cluster-proxy"), address,
		"--lease-namespace", namespaceOnHub, "--user-server-port", userServerPort, "--user-server-hosts", userServerHost,
		"--user-server-oidc-issuers", issuer.URL)
	framework.StartChartProcess(t, process)
	token := framework.TokenOf(t, existing, fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	p := &framework.Proxied{On: existing, API: api.Aggregated, Name: name, Alice: "alice-" + name}
	p.Agent = env.NewAgent(t, existing, framework.Managed, name, token, "--namespace",
		framework.Namespace(t, framework.Managed.Client(t), name))
	if err := p.Agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, name)
	env.AwaitAvailable(t, h, name)
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
	p.LetAliceEnter(t)

	testUsersOfExisting(t, p)
	testOthersInExisting(t, p)
	testDialerOfExisting(t, p)
	testGatewayOfExisting(t, p)
	testUserServer(t, p, namespaceOnHub, userServer, issuer)
	testReplicaOfExisting(t, p, namespaceOnHub)
	existing.Capstan(t, "", "kubeconfig", name).Succeeds(t, "/apis/reach.capstan.io/v1alpha1/managedclusters/"+name+"/proxy")
	existing.Capstan(t, "", "proxy", "health").Succeeds(t, name, "True")
	process.Kill()
	process.AwaitExit(t)
	existing.Capstan(t, "", "get", "pods", "--clusters", name).Ends(t, 1, "find out how clusters are reached")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		_, err := p.As(t, p.Alice).CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{})
		return err
	})
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
}

// userServerHost is that of the chart, in the namespace of its release.
const userServerHost = "cluster-proxy-addon-user.open-cluster-management-addon.svc"

// testUserServer: with tokens of the hub, of the cluster, and of an issuer that the cluster trusts, and with client certificates of the
// hub, the cluster is reached by its name at a port of its own.
func testUserServer(t *testing.T, p *framework.Proxied, namespaceOnHub, address string, issuer *oidctest.Issuer) {
	t.Helper()
	h := p.On.Client(t)
	ca := &corev1.Secret{}
	if err := h.Get(t.Context(), types.NamespacedName{Namespace: namespaceOnHub, Name: "proxy-server-ca"}, ca); err != nil {
		t.Fatal(err)
	}
	with := func(token string) *rest.Config {
		return &rest.Config{Host: "https://" + address + "/" + p.Name, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAData: ca.Data["ca.crt"], ServerName: userServerHost}}
	}
	token, _ := framework.AccountOnCluster(t, p.Name+"-user")
	if who := p.WhoIsThere(t, with(token), nil); who.Username != "system:serviceaccount:default:"+p.Name+"-user" {
		t.Errorf("with a token of the cluster, it is %+v", who)
	}
	services := "/api/v1/namespaces/default/services/https:kubernetes:443/proxy-service/version"
	if code, answer := p.Send(t, with(token), http.MethodGet, services, nil, ""); code != http.StatusUnauthorized ||
		!strings.Contains(answer, "services of clusters are for users of the hub") {
		t.Errorf("a service answers %d %s", code, answer)
	}
	p.Trust(t, issuer, "")
	ofIssuer := issuer.Token(t, issuer.Claims("dana", nil))
	env.Eventually(t, func(context.Context) error {
		if code, answer := p.Send(t, with(ofIssuer), http.MethodGet, "/api/v1/nodes", nil, ""); code != http.StatusForbidden ||
			!strings.Contains(answer, issuer.URL+"#dana") {
			return fmt.Errorf("with a token of the issuer, the answer is %d %s", code, answer)
		}
		return nil
	})
	expired := issuer.Token(t, issuer.Claims("dana", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}))
	if code, answer := p.Send(t, with(expired), http.MethodGet, "/version", nil, ""); code != http.StatusUnauthorized ||
		!strings.Contains(answer, "token is expired") {
		t.Errorf("with an expired token, the answer is %d %s", code, answer)
	}
	another := oidctest.Start(t)
	for _, token := range []string{"forged", "", another.Token(t, another.Claims("dana", nil))} {
		if code, answer := p.Send(t, with(token), http.MethodGet, "/api/v1/nodes", nil, ""); code != http.StatusUnauthorized && code != http.StatusForbidden {
			t.Errorf("with the token %q, the answer is %d %s", token, code, answer)
		}
	}
	ofHub := with(framework.TokenOf(t, p.On, namespaceOnHub, "cluster-proxy"))
	const who = "system:serviceaccount:open-cluster-management-addon:cluster-proxy"
	if code, answer := p.Send(t, ofHub, http.MethodGet, "/version", nil, ""); code != http.StatusForbidden ||
		!strings.Contains(answer, `User \"`+who+`\" cannot get resource \"managedclusters/proxy\"`) {
		t.Errorf("without a right on the hub, the answer is %d %s", code, answer)
	}
	framework.Create(t, h, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "enter-" + p.Name + "-too"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "enter-" + p.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespaceOnHub, Name: "cluster-proxy"}}})
	env.Eventually(t, func(context.Context) error {
		if code, answer := p.Send(t, ofHub, http.MethodGet, "/version", nil, ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	if there := p.WhoIsThere(t, ofHub, nil); there.Username != access.Prefix+who {
		t.Errorf("with a token of the hub, it is %+v", there)
	}
	testCertificatesAtUserServer(t, p, with(""))
}

// testCertificatesAtUserServer: a client certificate of the hub is that user, who needs the right; that of another authority is nobody.
func testCertificatesAtUserServer(t *testing.T, p *framework.Proxied, nobody *rest.Config) {
	t.Helper()
	with := func(user *rest.Config) *rest.Config {
		config := rest.CopyConfig(nobody)
		config.CertData, config.KeyData = user.CertData, user.KeyData
		return config
	}
	admin, agent := framework.AsAdmin(t, p.On), framework.CredentialOf(t, p.Agent)
	want := access.Prefix + framework.WhoIs(t, admin).Username
	if there := p.WhoIsThere(t, with(admin), nil); there.Username != want {
		t.Errorf("with a certificate of the hub, it is %+v, want %s", there, want)
	}
	const path = "/api/v1/nodes"
	if code, answer := p.Send(t, with(agent), http.MethodGet, path, nil, ""); code != http.StatusForbidden ||
		!strings.Contains(answer, `User \"`+framework.WhoIs(t, agent).Username+`\" cannot get resource \"managedclusters/proxy\"`) {
		t.Errorf("with a certificate without a right on the hub, the answer is %d %s", code, answer)
	}
	ofCluster := with(framework.AsAdmin(t, framework.Managed))
	if code, answer := p.Send(t, ofCluster, http.MethodGet, path, nil, ""); code != http.StatusUnauthorized && code != http.StatusForbidden ||
		strings.Contains(answer, access.Prefix) {
		t.Errorf("with a certificate of another authority, the answer is %d %s", code, answer)
	}
}

// testUsersOfExisting: they are themselves on the cluster, and have the rights that it gives them.
func testUsersOfExisting(t *testing.T, p *framework.Proxied) {
	t.Helper()
	alice := p.As(t, p.Alice)
	_, err := alice.CoreV1().ConfigMaps(p.Name).List(t.Context(), metav1.ListOptions{})
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `User "cluster:hub:`+p.Alice+`" cannot list resource "configmaps"`)
	who := p.WhoIsThere(t, p.Config(t, p.Alice, "ops"), http.Header{access.HeaderUser: {"system:admin"}, access.HeaderGroup: {"system:masters"}})
	if who.Username != access.Prefix+p.Alice || strings.Join(who.Groups, " ") != "cluster:hub:ops system:authenticated" {
		t.Errorf("on the cluster she is %+v", who)
	}
	p.Bind(t, p.Alice)
	watch, err := alice.CoreV1().ConfigMaps(p.Name).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=from-alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: "from-alice"},
		BinaryData: map[string][]byte{"key": bytes.Repeat([]byte("x"), 700<<10)}}
	framework.Create(t, framework.Managed.Client(t), big)
	framework.AwaitWatched(t, watch, "ADDED", "from-alice")
	for _, path := range []string{"/%2e%2e/version", "/api/..%2f..%2fversion", "/a%5cb"} {
		if code, answer := p.Send(t, p.Config(t, p.Alice), http.MethodGet, path, nil, ""); code != http.StatusBadRequest ||
			!strings.Contains(answer, "path") {
			t.Errorf("to %s the answer is %d %s", path, code, answer)
		}
	}
	services := "/api/v1/namespaces/default/services/https:kubernetes:443/proxy-service/version"
	if code, answer := p.Send(t, p.Config(t, p.Alice), http.MethodGet, services, nil, ""); code != http.StatusForbidden ||
		!strings.Contains(answer, "this hub exposes no services") {
		t.Errorf("the answer of a service that is not exposed is %d %s", code, answer)
	}
}

// testOthersInExisting: who has no right on the hub gets no further, and no agent takes the tunnel of another cluster.
func testOthersInExisting(t *testing.T, p *framework.Proxied) {
	t.Helper()
	_, err := p.As(t, "bob").CoreV1().ConfigMaps(p.Name).List(t.Context(), metav1.ListOptions{})
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `User "bob" cannot get resource "managedclusters/proxy" in API group "reach.capstan.io"`)
	agent := p.Agent.HubConfig(t)
	agent.NextProtos = []string{"http/1.1"}
	c, err := rest.HTTPClientFor(agent)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tunnel.Dial(t.Context(), c, agent.Host+api.Path(api.Aggregated, "another", fleet.SubresourceAttach))
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, "only the agent of the cluster makes a tunnel")
}

// testGatewayOfExisting: the gateway there goes through the tunnel, with the right that its chart gives it for konnectivityEgress.
func testGatewayOfExisting(t *testing.T, p *framework.Proxied) {
	t.Helper()
	h, address := p.On.Client(t), env.FreeAddress(t)
	framework.Create(t, h, framework.ChartOutside(t, "cluster-gateway-addon-manager", address)...)
	dial := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gateway-dials"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{api.Aggregated.Group}, Resources: []string{"managedclusters/portforward"}, Verbs: []string{"create"}}}}
	framework.Create(t, h, dial, &rbacv1.ClusterRoleBinding{ObjectMeta: dial.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: dial.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: framework.GatewayServer, Name: "cluster-gateway"}}})
	framework.StartGateway(t, p.On, address, "--tunnels")
	token, config := framework.AccountOnCluster(t, p.Name)
	framework.Create(t, h, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: framework.GatewayNamespace, Name: p.Name, Labels: map[string]string{
			gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken", gatewayv1alpha1.LabelEndpointType: "ClusterProxy"}},
		Data: map[string][]byte{"ca.crt": config.CAData, "token": []byte(token)},
	})
	env.Eventually(t, func(ctx context.Context) error {
		_, err := framework.ThroughGateway(t, framework.AsAdmin(t, p.On), p.Name).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot list resource") {
			return fmt.Errorf("the cluster has not answered: %w", errors.Join(err, errors.New("no refusal")))
		}
		return nil
	})
}

// testDialerOfExisting: another process of the hub connects to the API server of the cluster, if it may, and to nothing else.
func testDialerOfExisting(t *testing.T, p *framework.Proxied) {
	t.Helper()
	dial := func(config *rest.Config, address string) (*tls.Conn, error) {
		d, err := dialer.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		conn, err := d.DialCluster(ctx, p.Name, address)
		cancel() // which ends no connection that is made
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), nil // the name of its certificate is another
	}
	admin := framework.AsAdmin(t, p.On)
	server, err := dial(admin, "kubernetes.default.svc:443")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := dial(admin, "db.default.svc:5432"); err == nil || !strings.Contains(err.Error(), "db.default.svc:5432") {
		t.Errorf("another address: %v", err)
	}
	alice := rest.CopyConfig(admin)
	alice.Impersonate = rest.ImpersonationConfig{UserName: p.Alice}
	_, err = dial(alice, "kubernetes.default.svc:443")
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `cannot create resource "managedclusters/portforward"`)
}

// testReplicaOfExisting: another process with the rights of the chart reaches the cluster by the tunnel of the first, and nobody else opens
// streams there.
func testReplicaOfExisting(t *testing.T, p *framework.Proxied, namespaceOnHub string) {
	t.Helper()
	address := env.FreeAddress(t)
	framework.StartChartProcess(t, env.NewAggregatedAPI(t, "cluster-proxy", framework.KubeconfigIn(t, p.On, namespaceOnHub, "cluster-proxy"), address,
		"--lease-namespace", namespaceOnHub))
	admin := framework.AsAdmin(t, p.On)
	config, err := aggregated.Access(t.Context(), admin, api.Aggregated)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rest.UnversionedRESTClientForConfigAndClient(dynamic.ConfigFor(config), c)
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		return other.Get().AbsPath(api.Path(api.Aggregated, p.Name, fleet.SubresourceProxy), "version").Do(ctx).Error()
	})
	admin.NextProtos = []string{tunnel.HTTP}
	if c, err = rest.HTTPClientFor(admin); err != nil {
		t.Fatal(err)
	}
	_, err = tunnel.Upgrade(t.Context(), c, admin.Host+api.Path(api.Aggregated, p.Name, fleet.SubresourceStream), api.ProtocolStream)
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, "only another process of the hub opens streams")
}
